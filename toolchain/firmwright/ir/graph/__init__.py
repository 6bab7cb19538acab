"""The operator level of the IR (Relay's role): typed values and calls in topological order."""
