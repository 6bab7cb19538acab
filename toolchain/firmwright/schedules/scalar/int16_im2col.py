"""int16 GEMM (schedules/int16_im2col.py) on any core, by single multiplications."""

from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, Array, DType
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.schedule import Schedule
from firmwright.ops.kernel import Kernel, Nest
from firmwright.schedules import int16_im2col


class _SingleMac:
    @property
    def taps(self) -> int:
        return 1

    @property
    def dtype(self) -> DType:
        return INT16

    def weights(self, b: Kernel, flat: Array, rows: int) -> tir.Buffer:
        groups = flat.reshape(-1, rows, flat.shape[1]).swapaxes(1, 2)
        return b.constant("weights", np.ascontiguousarray(groups), INT8)

    def add(
        self,
        b: Kernel,
        acc: tir.Buffer,
        columns: tir.Buffer,
        weights: tir.Buffer,
        at: tuple[ArithExpr, ArithExpr],
    ) -> None:
        (group, step), pixels, rows = at, columns.shape[0], weights.shape[2]
        with Nest() as enter:
            values = [
                enter(b.let("x", b.load_i32(columns, [pixel, step, 0]))) for pixel in range(pixels)
            ]
            for row in range(rows):
                with b.let("w", b.load_i32(weights, [group, step, row])) as w:
                    for pixel in range(pixels):
                        at_sum = [pixel * rows + row]
                        b.store(acc, at_sum, b.load(acc, at_sum) + values[pixel] * w)


SCHEDULES = tuple(
    Schedule(
        f"scalar.{op}.int16_im2col",
        op,
        frozenset(),
        int16_im2col.int16_gemm_configs,
        partial(int16_im2col.build_int16_gemm, _SingleMac()),
    )
    for op in ("conv2d", "fully_connected")
)
