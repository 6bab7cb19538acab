"""Schedules for float32 on Helium: vectors of four channels, summed in the default
loops' order.
"""
