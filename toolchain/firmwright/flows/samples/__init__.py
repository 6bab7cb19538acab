"""Inputs, labels and expected outputs."""
