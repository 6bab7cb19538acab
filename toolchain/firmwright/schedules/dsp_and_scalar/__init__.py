"""Schedules with a form for the DSP extension and a form for cores without SIMD
instructions.
"""
