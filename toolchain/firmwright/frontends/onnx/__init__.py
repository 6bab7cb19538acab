"""The ONNX frontend: `import_onnx` turns a complete model's bytes into a module of one graph."""

from firmwright.frontends.onnx.complete import Given, complete
from firmwright.frontends.onnx.importer import import_onnx
from firmwright.frontends.onnx.reader import is_onnx

__all__ = ["Given", "complete", "import_onnx", "is_onnx"]
