"""Measured search: kernels tried on a board or emulator, written to a log that `compile` reads."""
