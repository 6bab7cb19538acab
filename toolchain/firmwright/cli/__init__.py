"""The command line: one module for each verb, on top of `flows`."""
