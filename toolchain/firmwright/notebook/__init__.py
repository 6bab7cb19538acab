"""Views of models, sessions and results in notebooks."""
