"""Models, and their compilation."""
