"""Passes over graph functions."""
