"""The stage that tells people: everything known about a build, as one HTML page or one drawing."""
