"""Target kinds: attributes, features and text form; backends for accelerators."""
