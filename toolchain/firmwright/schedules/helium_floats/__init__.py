"""Schedules for float32 on Helium, summing as the default loops do, four at a time."""
