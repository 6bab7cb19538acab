"""The ONNX frontend: `preprocess_model` completes a file, `import_onnx` converts it."""

from typing import TYPE_CHECKING

from firmwright.base.package_modules import export_on_use

if TYPE_CHECKING:
    from firmwright.frontends.onnx.importer import import_onnx as import_onnx
    from firmwright.frontends.onnx.opset_conversion import (
        convert_opset as convert_opset,
    )
    from firmwright.frontends.onnx.preprocess import BoundedShapes as BoundedShapes
    from firmwright.frontends.onnx.preprocess import ModelOverrides as ModelOverrides
    from firmwright.frontends.onnx.preprocess import open_inputs as open_inputs
    from firmwright.frontends.onnx.preprocess import (
        preprocess_model as preprocess_model,
    )
    from firmwright.frontends.onnx.reader import is_onnx as is_onnx

__getattr__ = export_on_use(
    __name__,
    {
        "importer": ["import_onnx"],
        "opset_conversion": ["convert_opset"],
        "preprocess": [
            "BoundedShapes",
            "ModelOverrides",
            "open_inputs",
            "preprocess_model",
        ],
        "reader": ["is_onnx"],
    },
)
