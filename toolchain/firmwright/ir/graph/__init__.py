"""The operator level of the IR (the role of Relay): typed values and calls."""
