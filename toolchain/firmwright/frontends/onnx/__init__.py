"""The ONNX frontend: `preprocess_model` completes a file, `import_onnx` converts it to a module."""

from firmwright.frontends.onnx.importer import import_onnx
from firmwright.frontends.onnx.opset_conversion import convert_opset
from firmwright.frontends.onnx.preprocess import ModelOverrides, preprocess_model
from firmwright.frontends.onnx.reader import is_onnx

__all__ = ["ModelOverrides", "convert_opset", "import_onnx", "is_onnx", "preprocess_model"]
