"""Stage: one alternative a call, and the AOT main that calls them in order."""
