"""int16 conv2d and fully_connected on Helium."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from firmwright.base.dtypes import INT8, INT16, INT32, INT64
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, minimum
from firmwright.kernels.mve.dot_products import BYTES_PER_STEP
from firmwright.ops.conv2d import bias_of, requantization_of, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.int16x8 import accumulator_dtype
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.helium import conv2d, int16_dot, vector_requantize
from firmwright.schedules.helium.conv2d import BlockGemm, ConvolutionInput
from firmwright.schedules.helium.dot_product_loop import choose_loop, pack_weight_rows
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

_CHANNELS = vector_requantize.CHANNELS


def has_int32_sums(op: OpCall, axis: int) -> bool:
    """Return whether the layer is int16 with 32-bit sums; channels are on `axis`."""
    return op.input(0).dtype == INT16 and accumulator_dtype(op, axis) == INT32


def _conv_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if not has_int32_sums(op, 0):
        return ()
    applies = int16_dot.supports_requantize(requantization_of(op))
    return (NO_CONFIG,) if applies else ()


def _build_conv(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    kernel = weights_of(op)
    params = int16_dot.adjust_round_once_shifts(requantization_of(op))
    flat = kernel.reshape(len(kernel), -1)
    starts = conv2d.channel_block_starts(len(flat))
    table = vector_requantize.parameter_rows(params, bias_of(op, "int32"), starts)
    lanes = min(len(flat), _CHANNELS)
    packed = pack_weight_rows(flat, starts, _CHANNELS, int16_dot.WIDTH)
    gemm = BlockGemm(
        "mve_gemm_int16",
        b.constant("weights", packed, INT8),
        [b.constant("parameters", table, INT32)],
        len(flat),
        2 * flat.shape[1],
        [*int16_dot.epilogue_settings(params), lanes],
    )
    _convolve(op, b, gemm)


def _convolve(op: OpCall, b: Kernel, gemm: conv2d.TwoPixelGemm) -> None:
    *image, depth = op.input(0).shape
    x = b.view("bytes", b.input(0), 0, (*image, 2 * depth), dtype=INT8, alignment=4)
    source = ConvolutionInput(x, window_of(op, op.input(1).shape[1:3]), 0)
    conv2d.convolve_two_pixels(b, source, gemm, op.output.shape)


@dataclass(frozen=True, slots=True)
class _Int16RowGemm:
    """Computes eight weight rows at a time with a scalar epilogue; `taps` counts bytes.

    Sums of 64 bits are accumulated in chunks of `chunk` steps.
    """

    packed: tir.Buffer
    sums: Int16Accumulation
    outputs: int
    taps: int
    chunk: int

    def with_taps(self, taps: int) -> _Int16RowGemm:
        return replace(self, taps=taps)

    def emit(
        self,
        b: Kernel,
        source: tir.Buffer,
        columns: Sequence[ArithExpr],
        pixels: Sequence[ArithExpr],
    ) -> None:
        for column, pixel in zip(columns, pixels, strict=True):
            self.pixel(b, source, column, pixel)

    def pixel(
        self, b: Kernel, source: tir.Buffer, column: ArithExpr, pixel: ArithExpr
    ) -> None:
        blocks, steps = self.packed.shape[:2]
        count = min(self.outputs, int16_dot.ROWS)
        with b.for_("block", blocks) as block:
            row = b.let("row", minimum(block * int16_dot.ROWS, self.outputs - count))
            y = b.view("out", b.y, pixel * self.outputs + row, (count,), access="w")
            if self.sums.is_wide and self.chunk < steps:
                self._in_chunks(b, y, source, column, (block, row))
                return
            sums = b.reg("sum", INT32, int16_dot.ROWS)
            self._products(b, sums, source, column, (block * steps, self.taps))
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
        source: tir.Buffer,
        column: ArithExpr,
        at: tuple[ArithExpr, ArithExpr],
    ) -> None:
        block, row = at
        steps, count = self.packed.shape[1], y.shape[0]
        size = BYTES_PER_STEP * self.chunk
        total = b.reg("total", INT64, count)
        for i in range(count):
            b.store(total, [i], b.load(self.sums.bias, [row + i]))
        whole = self.taps // size
        with b.for_("chunk", whole) as chunk:
            first = block * steps + chunk * self.chunk
            self._chunk(b, total, source, column + chunk * size, (first, size))
        if self.taps % size:
            first = block * steps + whole * self.chunk
            rest = (first, self.taps % size)
            self._chunk(b, total, source, column + whole * size, rest)
        for i in range(count):
            finish = self.sums.bind_wide_channel(b, row + i)
            b.store(y, [i], finish(b.load(total, [i])))

    def _chunk(
        self,
        b: Kernel,
        total: tir.Buffer,
        source: tir.Buffer,
        column: ArithExpr,
        at: tuple[ArithExpr, int],
    ) -> None:
        sums = b.reg("sum", INT32, int16_dot.ROWS)
        self._products(b, sums, source, column, at)
        for i in range(total.elements):
            b.store(total, [i], b.load(total, [i]) + b.load(sums, [i]).cast(INT64))

    def _products(
        self,
        b: Kernel,
        sums: tir.Buffer,
        source: tir.Buffer,
        column: ArithExpr,
        at: tuple[ArithExpr, int],
    ) -> None:
        """Multiply the chunk at `at` (first weight step, bytes of the column)."""
        first, taps = at
        step = int16_dot.ROWS * int16_dot.WIDTH
        w = b.pointer(self.packed, first * step, divide_up(taps, BYTES_PER_STEP) * step)
        registers = [b.load(sums, [i]) for i in range(int16_dot.ROWS)]
        name = f"mve_rows_int16_{choose_loop(taps).suffix}"
        b.evaluate(name, [w, b.pointer(source, column, taps), taps, *registers])


def _plan_rows(op: OpCall, b: Kernel) -> _Int16RowGemm:
    kernel = weights_of(op)
    flat = kernel.reshape(len(kernel), -1)
    outputs, depth = flat.shape
    count = min(outputs, int16_dot.ROWS)
    last = outputs - count
    starts = [min(start, last) for start in range(0, outputs, int16_dot.ROWS)]
    rows = pack_weight_rows(flat, starts, int16_dot.ROWS, int16_dot.WIDTH)
    packed = b.constant("weights", rows, INT8)
    sums = plan_int16_accumulation(b, op, kernel)
    chunk = longest_chunk(flat, int16_dot.WIDTH)
    return _Int16RowGemm(packed, sums, outputs, 2 * depth, chunk)


def _build_matrix(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    rows = _plan_rows(op, b)
    batch = op.output.elements // rows.outputs
    x = b.view("bytes", b.input(0), 0, (batch * rows.taps,), dtype=INT8, alignment=4)
    with b.for_("n", batch) as n:
        rows.pixel(b, x, n * rows.taps, n)


def _build_rows(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    _convolve(op, b, _plan_rows(op, b))


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
