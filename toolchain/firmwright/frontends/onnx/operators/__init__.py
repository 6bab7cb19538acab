"""Importers of ONNX operators: one module per family, each with a table IMPORTERS."""
