"""Builders for operators that exist only in TFLM's signal library."""

from collections.abc import Callable, Sequence
from typing import Any

from firmwright.base.dtypes import Array
from firmwright.ir.graph import OpCall, OpDef, TensorType
from firmwright.ops.import_checks import Importer, importer, int_options


def options_importer(op: str, inputs: int, *options: str, outputs: int = 1) -> Importer:
    """Build an importer that keeps all inputs and turns integer `options` into attributes."""
    return importer(op, inputs, lambda context: int_options(context, *options), outputs=outputs)


def signal_operator(
    name: str,
    custom: str,
    infer: Callable[[OpCall], tuple[TensorType, ...]],
    reference: Callable[[OpCall, Sequence[Array]], tuple[Array, ...]],
    lower: Callable[[OpCall, Any], None],
    importer: Importer,
    *dtypes: str,
    macs: Callable[[OpCall], int] = lambda call: 0,
) -> OpDef:
    """Build the definition of the custom operator `custom`."""
    return OpDef(
        name, infer, reference, lower, {f"tflite:custom:{custom}": importer}, dtypes, "tflm", macs
    )
