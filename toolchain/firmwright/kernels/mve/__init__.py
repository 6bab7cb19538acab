"""Micro-kernels of Helium as programs."""
