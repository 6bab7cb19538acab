"""The names of the supported operators, here and in other formats."""

from collections.abc import Mapping

from firmwright.frontends.onnx.contrib_expansion import EXPANDED_OPERATORS
from firmwright.frontends.onnx.operators.registry import onnx_importers
from firmwright.frontends.tflite.operators.registry import tflite_names as tflite_names
from firmwright.ops.opdef import OpDef


def listed_operators(ops: Mapping[str, OpDef]) -> list[OpDef]:
    """Return all operators except `custom`, in order of their names."""
    return [opdef for _, opdef in sorted(ops.items()) if opdef.dtypes]


def onnx_operators() -> tuple[str, ...]:
    return tuple(sorted({*onnx_importers(), *EXPANDED_OPERATORS}))
