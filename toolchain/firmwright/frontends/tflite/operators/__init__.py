"""Importers of TFLite's operators: one module per family, each with a table
IMPORTERS.
"""
