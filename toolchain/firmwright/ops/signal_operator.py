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
    functions: tuple[
        Callable[[OpCall], tuple[TensorType, ...]],
        Callable[[OpCall, Sequence[Array]], tuple[Array, ...]],
        Callable[[OpCall, Any], None],
        Importer,
    ],
    *dtypes: str,
    macs: Callable[[OpCall], int] = lambda call: 0,
) -> OpDef:
    """Build the definition of the custom operator `custom`.

    `functions` are type inference, numpy reference, default lowering and importer.
    """
    infer, reference, lower, importer = functions
    return OpDef(
        name=name,
        infer=infer,
        reference=reference,
        lower=lower,
        imports={f"tflite:custom:{custom}": importer},
        dtypes=dtypes,
        numerics="tflm",
        macs=macs,
    )
