"""Schedules for RISC-V cores with integer vectors (Zve32x) of any length."""
