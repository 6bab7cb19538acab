"""GEMM kernel of float32 layers: packed weights times the columns of a few pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, immediate, minimum
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import apply_activation
from firmwright.schedules.fpu.microkernels import (
    FPU_TILES,
    FpuTile,
    MultiplyAddStyle,
    microkernel_name,
)

# y[p, o] = activation(sum over k of column[k, p] * w[o, k], + bias[o]), in that order. Weights are
# packed in channel groups, element k of a group contiguous. The last group overlaps its
# predecessor; fewer channels than a group are padded with zeros that are not stored.


@dataclass(frozen=True, slots=True)
class FloatGemmKernel:
    """Constants of a layer of `outputs` x `depth` and its tile."""

    style: MultiplyAddStyle
    tile: FpuTile
    outputs: int
    depth: int
    weights: tir.Buffer
    bias: tir.Buffer
    activation: str

    def emit(self, b: Kernel, columns: tir.Buffer, at: ArithExpr) -> None:
        """Compute all channels of the pixels starting at `at`; `columns` is [depth, pixels]."""
        tile, size = self.tile, self.tile.lanes * self.depth
        with b.for_("group", -(-self.outputs // tile.lanes)) as group:
            first = group * tile.lanes
            if self.outputs > tile.lanes and self.outputs % tile.lanes:
                first = minimum(first, self.outputs - tile.lanes)
            sums = b.reg("sum", FLOAT32, tile.sums)
            w = b.pointer(self.weights, group * size, size)
            x = b.pointer(columns, 0, tile.pixels * self.depth)
            registers = [b.load(sums, [i]) for i in range(tile.sums)]
            steps = ArithExpr(immediate(self.depth, INT32))
            name = microkernel_name(self.style, tile, self.depth)
            b.evaluate(name, [w, x, steps, *registers])
            with b.let("first", first) as channel:
                self._store(b, sums, at, channel)

    def _store(self, b: Kernel, sums: tir.Buffer, at: ArithExpr, first: ArithExpr) -> None:
        tile, stored = self.tile, min(self.tile.lanes, self.outputs)
        window = b.view(
            "out", b.y, at * self.outputs + first, (tile.pixels, stored),
            strides=(self.outputs, 1), access="w",
        )  # fmt: skip
        with window as y:
            for lane in range(stored):
                with b.let("channel_bias", b.load(self.bias, [first + lane])) as bias:
                    for pixel in range(tile.pixels):
                        total = b.load(sums, [pixel * tile.lanes + lane]) + bias
                        b.store(y, [pixel, lane], apply_activation(total, self.activation))


def plan_float_gemm(
    b: Kernel, weights: Array, bias: Array, activation: str, style: MultiplyAddStyle, tile: FpuTile
) -> FloatGemmKernel:
    """Return a layer's constants, with `weights` [outputs, depth] packed for `tile`."""
    outputs, depth = weights.shape
    lanes = tile.lanes
    padded = np.pad(weights, ((0, max(lanes - outputs, 0)), (0, 0)))
    last = len(padded) - lanes
    starts = range(0, outputs, lanes)
    groups = [padded[min(at, last) : min(at, last) + lanes].T.reshape(-1) for at in starts]
    return FloatGemmKernel(
        style, tile, outputs, depth,
        b.constant("weights", np.concatenate(groups), FLOAT32),
        b.constant("bias", bias, FLOAT32), activation,
    )  # fmt: skip


def cheapest_tiles(outputs: int, pixels: int, depth: int, overhead: int = 0) -> Sequence[FpuTile]:
    """Return the cheapest tile and, if it differs, the cheapest tile of one pixel.

    `overhead` is the cost of packing a pixel, in instructions per element.
    """
    fitting = [tile for tile in FPU_TILES if tile.pixels <= pixels]

    def cost(tile: FpuTile) -> tuple[int, int]:
        blocks = -(-pixels // tile.pixels)
        groups = -(-outputs // tile.lanes)
        step = len(tile.step("separate"))
        packing = 0 if tile.pixels == 1 and not overhead else max(overhead, 2) * tile.pixels
        return blocks * (groups * (step * depth + 6 * tile.sums) + packing * depth), -tile.sums

    best = min(fitting, key=cost)
    single = min((tile for tile in fitting if tile.pixels == 1), key=cost)
    return (best,) if best == single else (best, single)
