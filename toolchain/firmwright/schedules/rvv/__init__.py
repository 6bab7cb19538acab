"""Schedules for RISC-V cores with integer vectors (Zve32x), for vectors of any
length.
"""
