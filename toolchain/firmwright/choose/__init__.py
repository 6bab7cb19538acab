"""Kernel selection: a kernel for each call, and the AOT main that runs the kernels."""
