"""Packages for other build systems, and their self-tests."""
