"""svdf of int8 on cores without SIMD instructions: the features by GEMM micro-kernels."""

from collections.abc import Callable
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.kernel import Kernel
from firmwright.ops.svdf import emit_units, folded_feature_biases, requantize_state, weights_at
from firmwright.schedules.scalar.microkernels import MicrokernelFamily, ScalarMicrokernel
from firmwright.schedules.scalar.rv32_microkernels import RV32M_FAMILY
from firmwright.schedules.scalar.thumb2_microkernels import MLA_FAMILY
from firmwright.schedules.schedule_factories import for_inputs_of


def _build(family: MicrokernelFamily, op: OpCall, config: Config, b: Kernel) -> None:
    weights, bias = weights_at(op, 1), folded_feature_biases(op)
    filters, depth = weights.shape
    rows = family.rows(filters, 1)
    shape, added = ScalarMicrokernel("bytes", rows, 1, family.unrolled(depth)), -filters % rows
    packed = np.pad(weights, ((0, added), (0, 0))).reshape(-1, rows, depth).swapaxes(1, 2)
    w, biases = (
        b.constant("weights", packed, INT8),
        b.constant("bias", np.pad(bias, (0, added)), INT32),
    )
    sums = b.allocate("sums", INT32, biases.shape)

    def start(n: ArithExpr) -> Callable[[ArithExpr], ArithExpr]:
        with b.for_("block", len(packed)) as block:
            acc = b.reg("acc", INT32, rows)
            registers = [b.load(acc, [row]) for row in range(rows)]
            pointers = [
                b.pointer(w, block * (rows * depth), rows * depth),
                b.pointer(b.input(0), n * depth, depth),
                b.pointer(biases, block * rows, rows),
            ]
            b.evaluate(family.block(shape), [*pointers, depth, depth, *registers])
            for row, register in enumerate(registers):
                b.store(sums, [block * rows + row], register)
        return lambda f: requantize_state(op, b.load(sums, [f]))

    emit_units(op, b, start)


SCHEDULES = tuple(
    Schedule(
        f"{family.name}.svdf.features", "svdf", frozenset({family.name}), for_inputs_of(INT8),
        partial(_build, family), disable_scheduling=True,
    )
    for family in (MLA_FAMILY, RV32M_FAMILY)
)  # fmt: skip
