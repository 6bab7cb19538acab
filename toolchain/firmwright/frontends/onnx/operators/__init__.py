"""What ONNX operators mean in ours: a module a family, each with a table IMPORTERS."""
