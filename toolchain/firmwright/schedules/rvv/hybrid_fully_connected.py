"""hybrid_fully_connected on RISC-V vectors: integer sums of all channels in lanes."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.conv2d import weights_of
from firmwright.ops.hybrid_fully_connected import (
    dequantized,
    has_constant_operands,
    quantized_rows,
    weight_scales,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.rvv.sums import VectorSums

# The zero point of a row times the sum of a channel's weights is its share of the sum.


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    fits = has_constant_operands(op) and op.input(1).dtype == INT8
    return (NO_CONFIG,) if fits else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    weights = weights_of(op)
    outputs = len(weights)
    scales, weight_scale = weight_scales(op, b)
    product = VectorSums.plan(b, weights, np.zeros(outputs, np.int32), INT8)
    of_weights = b.constant("weight_sums", weights.sum(axis=1, dtype=np.int64), INT32)
    sums = b.allocate("sums", INT32, (outputs,))
    with quantized_rows(op, b, weight_scale) as (n, quantized, row):
        product.emit(b, quantized, [n * 0], sums)
        out = b.view("out", b.y, n * outputs, (outputs,), access="w")
        with b.for_("o", outputs) as o:
            total = b.load(sums, [o])
            if row.offset is not None:
                total = total - row.offset.value * b.load(of_weights, [o])
            b.store(out, [o], dequantized(op, b, total, row, o, scales))


SCHEDULES = (
    Schedule(
        "rvv.hybrid_fully_connected.sums",
        "hybrid_fully_connected",
        frozenset({"rvv"}),
        _configs,
        _build,
    ),
)
