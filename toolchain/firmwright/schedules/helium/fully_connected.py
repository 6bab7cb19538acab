"""fully_connected on Helium: eight outputs at a time, directly from the input.

If the number of rows is not a multiple of eight, the last block overlaps the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import minimum
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv2d import weights_of
from firmwright.ops.fully_connected import has_int32_multiplier, requantization_of
from firmwright.ops.kernel import Kernel
from firmwright.schedules.epilogue import accumulator_bounds, fold_zero_point_into_bias
from firmwright.schedules.folded_requantize import fold_requantize
from firmwright.schedules.helium import matvec_microkernels as blocks
from firmwright.schedules.helium.dot_product_loop import pack_weight_rows, pad_tap_count
from firmwright.schedules.schedule_factories import helium_schedule

_ROWS = blocks.ROWS


def _configs(op: OpCall) -> Sequence[Config]:
    if op.input(0).dtype != INT8 or op.input(1).dtype != INT8:
        return ()
    return ({},) if has_int32_multiplier(op) and _settings(op) is not None else ()


def _settings(op: OpCall) -> list[int] | None:
    """Return the micro-kernel's immediate operands, or None if the epilogue is not exact."""
    matrix = weights_of(op)
    low, high = accumulator_bounds(fold_zero_point_into_bias(op, matrix), matrix)
    folded = fold_requantize(requantization_of(op), low, high)
    if folded is None:
        return None
    return blocks.epilogue_settings(folded, min(matrix.shape[0], _ROWS), matrix.shape[1])


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    matrix = weights_of(op)
    outputs, depth = matrix.shape
    settings = _settings(op)
    assert settings is not None
    lanes = min(outputs, _ROWS)
    starts = [min(start, outputs - lanes) for start in range(0, outputs, _ROWS)]
    packed = b.constant("weights", pack_weight_rows(matrix, starts, _ROWS), INT8)
    folded_bias = fold_zero_point_into_bias(op, matrix)
    bias = np.stack([np.resize(folded_bias[start:], _ROWS) for start in starts])
    table = b.constant("bias", bias, INT32)
    size = pad_tap_count(depth) * _ROWS
    with (
        b.for_("n", op.output.elements // outputs) as n,
        b.for_("block", len(starts)) as block,
        b.let("row", minimum(block * _ROWS, outputs - lanes)) as row,
    ):
        b.evaluate(
            blocks.matvec_microkernel_name(depth),
            [
                b.pointer(packed, block * size, size),
                b.pointer(b.input(0), n * depth, depth),
                b.pointer(table, block * _ROWS, _ROWS),
                b.pointer(b.y, n * outputs + row, lanes, "w"),
                *settings,
            ],
        )


SCHEDULES = (
    helium_schedule(
        "helium.fully_connected.rows", "fully_connected", configs=_configs, build=_build
    ),
)
