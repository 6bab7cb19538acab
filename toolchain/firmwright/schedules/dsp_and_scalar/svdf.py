"""svdf of int8: features by the GEMM of the DSP extension or scalar micro-kernels."""

from collections.abc import Callable
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.scalar.gemm import ScalarMicrokernel
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.ops.svdf import emit_units, folded_feature_biases, requantize_state
from firmwright.schedules.cortex_m_dsp.vector_product import ROWS, VectorProduct
from firmwright.schedules.scalar.microkernels import (
    MLA_FAMILY,
    RV32M_FAMILY,
    MicrokernelFamily,
)
from firmwright.schedules.schedule_factories import for_inputs_of


def _build(
    family: MicrokernelFamily | None, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    weights = op.constant_array(1).astype(np.int64)
    bias = folded_feature_biases(op)
    lanes = family.rows(len(weights), 1) if family else ROWS
    depth = weights.shape[1]
    rows = (0, -len(weights) % lanes)
    kernel = np.pad(weights, (rows, (0, 0)))
    biases = np.pad(bias, rows)
    sums = b.allocate("sums", INT32, (len(kernel),))
    if family is None:
        product = VectorProduct(b, kernel, biases, lambda acc, index, place: acc)
    else:
        packed = kernel.reshape(-1, lanes, depth).swapaxes(1, 2).reshape(-1)
        w = b.constant("weights", packed, INT8)
        begin = b.constant("bias", biases, INT32)
        shape = ScalarMicrokernel("bytes", lanes, 1, family.unrolled(depth))
        name = family.block(shape)

    def start(n: ArithExpr) -> Callable[[ArithExpr], ArithExpr]:
        if family is None:
            product.emit(b, b.input(0), [n], sums)
            return lambda f: requantize_state(op, b.load(sums, [f]))
        x = b.pointer(b.input(0), n * depth, depth)
        with b.for_("row", len(kernel) // lanes) as block:
            first = block * lanes
            acc = b.reg("acc", INT32, lanes)
            values = [b.load(acc, [row]) for row in range(lanes)]
            w_rows = b.pointer(w, first * depth, lanes * depth)
            start_values = b.pointer(begin, first, lanes)
            b.evaluate(name, [w_rows, x, start_values, depth, depth, *values])
            for row, value in enumerate(values):
                b.store(sums, [first + row], value)
        return lambda f: requantize_state(op, b.load(sums, [f]))

    emit_units(op, b, start)


SCHEDULES = tuple(
    Schedule(
        f"{name}.svdf.features",
        "svdf",
        frozenset({name}),
        for_inputs_of(INT8),
        partial(_build, family),
        disable_scheduling=True,
    )
    for name, family in (("dsp", None), ("mla", MLA_FAMILY), ("rvm", RV32M_FAMILY))
)
