"""Schedules for float32 on Helium: four channels, summed in the default loops' order."""
