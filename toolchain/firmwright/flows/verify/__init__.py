"""Comparisons with the reference runtimes."""
