"""Micro-kernels of the FPU as programs."""
