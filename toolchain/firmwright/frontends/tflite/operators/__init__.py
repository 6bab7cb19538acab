"""Importers of TFLite's operators: a module per family, each with a table IMPORTERS."""
