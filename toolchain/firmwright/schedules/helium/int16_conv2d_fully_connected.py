"""int16 conv2d and fully_connected on Helium."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from firmwright.base.dtypes import INT8, INT16, INT32, INT64, Array
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.mve.dot_products import BYTES_PER_STEP
from firmwright.ops.conv2d import bias_of, requantization_of, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.int16x8 import accumulator_dtype
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.helium import int16_dot, vector_requantize
from firmwright.schedules.helium.column_runs import ConvolutionInput
from firmwright.schedules.helium.pixel_pairs import (
    ColumnGemm,
    convolve_two_pixels,
    flat_weights,
)
from firmwright.schedules.int16_accumulation import (
    Int16Accumulation,
    longest_chunk,
    plan_int16_accumulation,
)
from firmwright.schedules.schedule_factories import for_inputs_of, helium_schedule

# Convolutions run as for int8 (conv2d.py) on the bytes of the input: a pixel of C
# values is one of 2 C bytes, and both are padded with 0. If sums provably fit 32 bits,
# the micro-kernel requantizes. Fully connected layers, and convolutions with 64-bit
# sums (int16_accumulation.py), process eight weight rows at a time and requantize with
# the operator's own epilogue.


def has_int32_sums(op: OpCall, axis: int) -> bool:
    """Return whether the layer is int16 with 32-bit sums; channels are on `axis`."""
    return op.input(0).dtype == INT16 and accumulator_dtype(op, axis) == INT32


def _conv_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if not has_int32_sums(op, 0):
        return ()
    applies = int16_dot.supports_requantize(requantization_of(op))
    return (NO_CONFIG,) if applies else ()


def _build_conv(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    flat = flat_weights(op)
    params = int16_dot.adjust_round_once_shifts(requantization_of(op))
    microkernel = int16_dot.PAIR_INT16
    blocks = microkernel.blocks(len(flat))
    bias = bias_of(op, "int32")
    table = vector_requantize.parameter_table(params, bias, blocks)
    settings = [*int16_dot.epilogue_settings(params), blocks.stored]
    _convolve(op, b, microkernel.gemm(b, flat, {"parameters": table}, settings))


def _convolve(op: OpCall, b: Kernel, gemm: ColumnGemm) -> None:
    *image, depth = op.input(0).shape
    x = b.view("bytes", b.input(0), 0, (*image, 2 * depth), dtype=INT8, alignment=4)
    source = ConvolutionInput(x, window_of(op, op.input(1).shape[1:3]), 0)
    convolve_two_pixels(b, source, gemm, op.output.shape)


@dataclass(frozen=True, slots=True)
class _Int16RowGemm:
    """Computes eight weight rows at a time with a scalar epilogue; `taps` counts bytes.

    Sums of 64 bits are accumulated in chunks of `chunk` steps.
    """

    packed: tir.Buffer
    sums: Int16Accumulation
    blocks: ChannelBlocks
    taps: int
    chunk: int

    def with_taps(self, taps: int) -> _Int16RowGemm:
        return replace(self, taps=taps)

    def emit(
        self, b: Kernel, columns: Sequence[tir.AccessPtr], pixels: Sequence[ArithExpr]
    ) -> None:
        for column, pixel in zip(columns, pixels, strict=True):
            self.pixel(b, column, pixel)

    def pixel(self, b: Kernel, column: tir.AccessPtr, pixel: ArithExpr) -> None:
        blocks, steps = self.blocks, self.packed.shape[1]
        count = blocks.stored
        with b.for_("block", blocks.count) as block:
            row = b.let("row", blocks.first(block))
            y = b.view("out", b.y, pixel * blocks.channels + row, (count,), access="w")
            if self.sums.is_wide and self.chunk < steps:
                self._in_chunks(b, y, column, (block, row))
                return
            sums = b.reg("sum", INT32, blocks.size)
            self._products(b, sums, column, block * steps)
            for i in range(count):
                finish = self.sums.bind_channel(b, row + i)
                total = b.load(sums, [i])
                if not self.sums.is_wide:
                    total = total + b.load(self.sums.bias, [row + i])
                b.store(y, [i], finish(total))

    def _in_chunks(
        self,
        b: Kernel,
        y: tir.Buffer,
        column: tir.AccessPtr,
        at: tuple[ArithExpr, ArithExpr],
    ) -> None:
        block, row = at
        steps, count = self.packed.shape[1], y.shape[0]
        size = BYTES_PER_STEP * self.chunk
        start = ArithExpr(column.offset)
        total = b.reg("total", INT64, count)
        for i in range(count):
            b.store(total, [i], b.load(self.sums.bias, [row + i]))
        whole = self.taps // size
        with b.for_("chunk", whole) as chunk:
            part = b.pointer(column.buffer, start + chunk * size, size)
            self._chunk(b, total, part, block * steps + chunk * self.chunk)
        if self.taps % size:
            part = b.pointer(column.buffer, start + whole * size, self.taps % size)
            self._chunk(b, total, part, block * steps + whole * self.chunk)
        for i in range(count):
            finish = self.sums.bind_wide_channel(b, row + i)
            b.store(y, [i], finish(b.load(total, [i])))

    def _chunk(
        self, b: Kernel, total: tir.Buffer, column: tir.AccessPtr, first: ArithExpr
    ) -> None:
        sums = b.reg("sum", INT32, self.blocks.size)
        self._products(b, sums, column, first)
        for i in range(total.elements):
            b.store(total, [i], b.load(total, [i]) + b.load(sums, [i]).cast(INT64))

    def _products(
        self, b: Kernel, sums: tir.Buffer, column: tir.AccessPtr, first: ArithExpr
    ) -> None:
        """Multiply a part of a column by weights from step `first` on."""
        microkernel = int16_dot.ROW_SUMS
        step, taps = microkernel.layout.step_bytes, column.extent
        w = b.pointer(self.packed, first * step, divide_up(taps, BYTES_PER_STEP) * step)
        registers = [b.load(sums, [i]) for i in range(sums.elements)]
        b.evaluate(microkernel.name(taps), [w, column, *registers, taps])


def _plan_rows(op: OpCall, b: Kernel, flat: Array) -> _Int16RowGemm:
    outputs, depth = flat.shape
    microkernel = int16_dot.ROW_SUMS
    blocks = microkernel.blocks(outputs)
    packed = b.constant("weights", microkernel.layout.pack(blocks.rows(flat)), INT8)
    sums = plan_int16_accumulation(b, op, weights_of(op))
    chunk = longest_chunk(flat, microkernel.layout.taps_per_step)
    return _Int16RowGemm(packed, sums, blocks, 2 * depth, chunk)


def _build_matrix(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    kernel = weights_of(op)
    rows = _plan_rows(op, b, kernel.reshape(len(kernel), -1))
    batch = op.output.elements // rows.blocks.channels
    x = b.view("bytes", b.input(0), 0, (batch * rows.taps,), dtype=INT8, alignment=4)
    with b.for_("n", batch) as n:
        rows.pixel(b, b.pointer(x, n * rows.taps, rows.taps), n)


def _build_rows(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    _convolve(op, b, _plan_rows(op, b, flat_weights(op)))


INT16_ROW_RULE = helium_schedule(
    "helium.conv2d.int16_rows",
    "conv2d",
    build=_build_rows,
    configs=lambda op: () if _conv_configs(op) else for_inputs_of(INT16)(op),
)
SCHEDULES = (
    INT16_ROW_RULE,
    helium_schedule(
        "helium.conv2d.int16", "conv2d", configs=_conv_configs, build=_build_conv
    ),
    helium_schedule(
        "helium.fully_connected.int16",
        "fully_connected",
        configs=for_inputs_of(INT16),
        build=_build_matrix,
    ),
)
