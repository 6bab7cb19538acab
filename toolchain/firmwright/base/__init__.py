"""Foundations without dependencies: errors, dtypes, quantization, names, text."""
