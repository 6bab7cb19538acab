"""int16 conv2d and fully_connected on Helium (halves.py), where sums provably have 32 bits.

Convolutions go by columns as int8's do (conv2d.py), on the bytes of the input: a pixel of C values
is one of 2 C bytes, and 0 stands around it in both. Fully connected layers take eight rows of
weights at a time; their sums end in the operator's own step, which is exact to 53 bits in the
profile litert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from firmwright.base.dtypes import INT8, INT16, INT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import E, minimum
from firmwright.ir.tir.nodes import Buffer
from firmwright.ir.tir.schedule import Config, Rule
from firmwright.ops.conv2d import bias_of, requant_of, weights_of
from firmwright.ops.conv_shapes import window_of
from firmwright.ops.fully_connected import int16_step
from firmwright.ops.int16x8 import accumulator_dtype, ending
from firmwright.ops.kernel import Kernel
from firmwright.schedules.helium import halves, requantize
from firmwright.schedules.helium.conv2d import Source, block_starts, sweep
from firmwright.schedules.helium.steps import shape_of

_CHANNELS = requantize.CHANNELS


def is_provable(op: OpCall, axis: int) -> bool:
    """Whether it is a layer of int16 whose sums fit 32 bits; the channels lie along `axis`."""
    return op.input(0).dtype == INT16 and accumulator_dtype(op, axis) == INT32


def _conv_configs(op: OpCall) -> Sequence[Config]:
    applies = is_provable(op, 0) and halves.applies(requant_of(op))
    return ({},) if applies else ()


@dataclass(frozen=True, slots=True)
class _Product:
    """From sums to int16; see conv2d.py. `taps` are bytes."""

    packed: Buffer
    table: Buffer
    channels: int
    taps: int
    settings: list[int]

    def with_taps(self, taps: int) -> _Product:
        return replace(self, taps=taps)

    def run(self, b: Kernel, source: Buffer, columns: Sequence[E], pixels: Sequence[E]) -> None:
        lanes = min(self.channels, _CHANNELS)
        blocks, steps, *_ = self.packed.shape
        size = steps * _CHANNELS * halves.WIDTH
        with (
            b.for_("block", blocks) as block,
            b.let("channel", minimum(block * _CHANNELS, self.channels - lanes)) as channel,
        ):
            b.evaluate(
                f"mve_halves_{shape_of(self.taps).suffix}",
                [
                    b.pointer(self.packed, block * size, size),
                    *(b.pointer(source, column, self.taps) for column in columns),
                    b.pointer(self.table, block * requantize.PARAMETERS, requantize.PARAMETERS),
                    *(
                        b.pointer(b.y, pixel * self.channels + channel, lanes, "w")
                        for pixel in pixels
                    ),
                    *self.settings, lanes, self.taps,
                ],
            )  # fmt: skip


def _build_conv(op: OpCall, config: Config, b: Kernel) -> None:
    kernel, params = weights_of(op), halves.stepped(requant_of(op))
    flat = kernel.reshape(len(kernel), -1)
    starts = block_starts(len(flat))
    table = requantize.parameter_rows(params, bias_of(op, "int32"), starts)
    product = _Product(
        b.constant("weights", halves.pack_rows(flat, starts, _CHANNELS), INT8),
        b.constant("parameters", table, INT32),
        len(flat), 2 * flat.shape[1], halves.settings(params),
    )  # fmt: skip
    *image, depth = op.input(0).shape
    with b.window("bytes", b.input(0), 0, (*image, 2 * depth), dtype=INT8, alignment=4) as x:
        sweep(b, Source(x, window_of(op, kernel.shape[1:3]), 0), product, op.output.shape)


def _matrix_configs(op: OpCall) -> Sequence[Config]:
    return ({},) if is_provable(op, 0) else ()


def _build_matrix(op: OpCall, config: Config, b: Kernel) -> None:
    matrix = weights_of(op)
    outputs, depth = matrix.shape
    count, taps = min(outputs, halves.ROWS), 2 * depth
    starts = [min(start, outputs - count) for start in range(0, outputs, halves.ROWS)]
    packed = b.constant("weights", halves.pack_rows(matrix, starts, halves.ROWS), INT8)
    bias = b.constant("bias", bias_of(op, "int32"), INT32)
    finish = ending(b, int16_step(op), INT32, op.output.dtype)
    size = packed.elements // len(starts)
    batch = op.output.elements // outputs
    with (
        b.window("bytes", b.input(0), 0, (batch * taps,), dtype=INT8, alignment=4) as x,
        b.for_("n", batch) as n,
        b.for_("block", len(starts)) as block,
        b.let("row", minimum(block * halves.ROWS, outputs - count)) as row,
        b.window("out", b.y, n * outputs + row, (count,), access="w") as y,
    ):
        sums = b.reg("sum", INT32, halves.ROWS)
        registers = [b.load(sums, [i]) for i in range(halves.ROWS)]
        b.evaluate(
            f"mve_half_rows_{shape_of(taps).suffix}",
            [b.pointer(packed, block * size, size), b.pointer(x, n * taps, taps), taps, *registers],
        )
        for i in range(count):
            with b.let("total", b.load(sums, [i]) + b.load(bias, [row + i])) as total:
                b.store(y, [i], finish(total, row + i))


_NEEDED = frozenset({"mve"})
RULES = (
    Rule("helium.conv2d.halves", "conv2d", _NEEDED, _conv_configs, _build_conv, keeps_order=True),
    Rule(
        "helium.fully_connected.halves", "fully_connected", _NEEDED, _matrix_configs, _build_matrix,
        keeps_order=True,
    ),
)  # fmt: skip
