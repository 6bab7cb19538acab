"""Translators of ATen operators, by families."""
