"""Micro-kernels of the DSP extension."""
