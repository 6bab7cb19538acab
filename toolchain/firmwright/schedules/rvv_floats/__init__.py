"""Schedules for RISC-V cores with float vectors (Zve32f) of any length."""
