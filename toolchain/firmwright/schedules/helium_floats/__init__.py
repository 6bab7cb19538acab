"""Schedules for float32 on Helium: vectors of four channels, in the order of the default loops."""
