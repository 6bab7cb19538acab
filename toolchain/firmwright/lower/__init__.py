"""Lowering of graph functions to PrimFuncs, with a list of candidates per call."""
