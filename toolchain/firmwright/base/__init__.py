"""Foundations that import nothing else of ours: errors, dtypes, quantisation, names, text."""
