"""Cortex-M with the DSP extension: M4, M7, M33 (and M55 until it has schedules of its own)."""
