"""Proof bundles: evidence of a firmware that a program of another kind checks."""
