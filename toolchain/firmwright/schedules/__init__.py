"""Optimised lowerings: <family>/<operator>.py, TIR builders with a config space.

A rule is chosen by operator and target features; what it computes is bit for bit what the default
lowering computes.
"""
