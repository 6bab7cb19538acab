"""Stage: graph Functions to PrimFuncs, a short list of alternatives a call."""
