"""Schedules with a form for the DSP extension and one for cores without SIMD."""
