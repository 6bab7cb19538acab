"""The ONNX frontend: `import_onnx` turns a complete model's bytes into a module of one graph."""

from firmwright.frontends.onnx.importer import import_onnx
from firmwright.frontends.onnx.preprocess import ModelOverrides, preprocess_model
from firmwright.frontends.onnx.reader import is_onnx

__all__ = ["ModelOverrides", "import_onnx", "is_onnx", "preprocess_model"]
