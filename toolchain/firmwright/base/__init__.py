"""Foundations without dependencies on other packages: errors, dtypes, quantization,
names, text.
"""
