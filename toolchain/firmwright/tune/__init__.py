"""Measured search: runs kernels on a board or emulator and writes a log that `compile` reads."""
