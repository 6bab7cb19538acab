"""Kernel selection: one candidate per call, and the AOT main that calls them in order."""
