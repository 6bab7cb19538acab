"""Schedules for float32 on Cortex-M cores with a single-precision FPU, or without."""
