"""Passes over PrimFuncs."""
