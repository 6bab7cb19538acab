"""What a board did with a model, as a file that others can check."""
