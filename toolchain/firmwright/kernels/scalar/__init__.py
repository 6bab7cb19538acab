"""Micro-kernels of cores without SIMD."""
