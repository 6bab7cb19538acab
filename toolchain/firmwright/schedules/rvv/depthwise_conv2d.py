"""depthwise_conv2d on RISC-V vectors: channels in lanes, one or two pixels at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT16, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import Argument, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder, VectorProgram
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.conv2d import channel_multiplier_of, weight_offsets
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import has_weight_zero_point
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.rvv.endings import (
    BYTES,
    FLOAT_BYTES,
    HALVES,
    NOMINAL_LANES,
    SUMS,
    Ending,
    pixel_sums,
)
from firmwright.schedules.rvv.layer_endings import LayerEnding, layer_ending
from firmwright.schedules.rvv.window_kernel import (
    WindowForm,
    emit_window_kernel,
    ending_text,
    extended,
)

_C = read_sections(__file__)

# If a layer has few channels and a horizontal stride of 1, several adjacent pixels are
# one pixel of more channels: the values of each tap are adjacent, too, and weights and
# parameters are repeated. Two pixels share the weights. Where several channels read one
# input channel, inputs are gathered: a table has the offset for each output channel.

_BYTE_LANES = 64


@dataclass(frozen=True, slots=True)
class DepthwiseKernel:
    """The micro-kernel of one or two pixels of all channels.

    It subtracts the zero point of the weights if they have one.
    """

    ending: Ending
    pixels: int
    has_weight_point: bool = False
    gathers: bool = False

    @property
    def name(self) -> str:
        offset = "_offset" if self.has_weight_point else ""
        gather = "_gather" if self.gathers else ""
        return f"rvv_depthwise{self.ending.name}{offset}{gather}_{self.pixels}"

    def text(self) -> str:
        start = "vint32m8_t sum1 = sum0;" if self.pixels > 1 else "(void)pixel_step;"
        return fill_text(
            _C["text"],
            type=self.ending.input.c_type,
            start=f"{start}\n    {_C['offsets'].strip()}" if self.gathers else start,
            at="" if self.gathers else " + at",
            products=indent(vector_text(self._tap()), " " * 12),
            finish=ending_text(self.ending, pixel_sums(self.pixels), 8),
        )

    def _tap(self) -> VectorProgram:
        """Return the products of a tap of all channels with those of some pixels."""
        lanes = NOMINAL_LANES
        k = VectorBuilder("tap")
        byte = k(riscv_row(lanes, INT8, "vle8_v"), k.pointer("weight", INT8)[0])
        tap = extended(k, lanes, "tap", byte, self.has_weight_point)
        place = RegisterPlace(RegisterClass.VECTOR, INT32, lanes)
        for p in range(self.pixels):
            total = k.variable(f"sum{p}", place)
            x = self._inputs(k, p)
            k(riscv_row(lanes, INT32, "vwmacc_vv"), total, x, tap, into=total)
        return k.build_vectors()

    def _inputs(self, k: VectorBuilder, pixel: int) -> VirtualRegister:
        """Return the inputs of a tap of a pixel in halves."""
        lanes, dtype, name = NOMINAL_LANES, self.ending.input, f"x{pixel}"
        place = f"from + {pixel} * pixel_step" if pixel else "from"
        load = riscv_row(lanes, dtype, f"vle{dtype.bits}_v")
        operands: list[Argument] = [k.pointer(place, dtype)[0]]
        if self.gathers:
            load = riscv_row(lanes, dtype, "vluxei16_v")
            index = RegisterPlace(RegisterClass.VECTOR, UINT16, lanes)
            operands.append(k.variable("offsets", index))
        if dtype == INT16:
            return k.named(name, load, *operands)
        return extended(k, lanes, name, k(load, *operands), has_point=False)

    def instructions(self, rows: int, columns: int, channels: int) -> int:
        """Return the instructions for all channels with vectors of 128 bits."""
        pixels, blocks = self.pixels, divide_up(channels, NOMINAL_LANES)
        taps = rows * columns * (4 + 4 * pixels)
        return blocks * (24 + self.gathers + 8 * pixels + 4 * rows + taps)

    def intrinsic(self) -> Intrinsic:
        form = WindowForm(
            self.ending,
            self.pixels,
            by_channel=True,
            has_weight_point=self.has_weight_point,
            gathers=self.gathers,
        )
        return form.intrinsic(self.name, self.text(), self.instructions)


_FORMS = (
    (BYTES, False, False),
    (BYTES, True, False),
    (BYTES, False, True),
    (BYTES, True, True),
    (HALVES, False, False),
    (HALVES, False, True),
    (FLOAT_BYTES, False, False),
    (FLOAT_BYTES, False, True),
    (SUMS[INT8], False, False),
    (SUMS[INT8], False, True),
)
INTRINSICS = tuple(
    DepthwiseKernel(ending, pixels, has_point, gathers).intrinsic()
    for ending, has_point, gathers in _FORMS
    for pixels in (1, 2)
)


def _configs(dtype: DType, op: OpCall) -> Sequence[ScheduleConfig]:
    if op.input(0).dtype != dtype or not has_short_offsets(op):
        return ()
    is_byte = dtype == INT8
    return (NO_CONFIG,) if layer_ending(op, takes_zero_point=is_byte) else ()


def has_short_offsets(op: OpCall) -> bool:
    """Whether the offsets of all input channels fit 16 bits."""
    x = op.input(0)
    return x.shape[3] * x.dtype.size_bytes <= UINT16.max


@dataclass(frozen=True, slots=True)
class DepthwiseBlocks:
    """How a layer is computed: `pixels` at a time, each of `repeats` adjacent ones.

    `columns` are those of `emit_windows`. If several channels read one input channel,
    `offsets` are those of the inputs, in bytes.
    """

    window: ConvWindow
    pixels: int
    repeats: int
    columns: tuple[int, int, int]
    offsets: Array | None

    @classmethod
    def of(cls, op: OpCall, lanes: int = _BYTE_LANES) -> DepthwiseBlocks:
        """Return the blocks of a layer; pixels of few channels fill `lanes`."""
        rows, columns, channels = op.input(1).shape[1:]
        width, x = op.output.shape[2], op.input(0)
        window = window_of(op, (rows, columns))
        repeats = _adjacent_pixels(window, width, channels, lanes)
        row = (columns, window.dilation[1] * x.shape[3], x.shape[3] * repeats)
        offsets, multiple = None, channel_multiplier_of(op)
        if multiple > 1:
            offsets = np.arange(channels * repeats) // multiple * x.dtype.size_bytes
        return cls(window, min(2, width // repeats), repeats, row, offsets)


def _adjacent_pixels(window: ConvWindow, width: int, channels: int, lanes: int) -> int:
    """Return how many pixels of an output row are one."""
    if window.stride[1] != 1:
        return 1
    return min(width, max(lanes // channels, 1))


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    layer = layer_ending(op, takes_zero_point=True)
    assert layer is not None
    emit_depthwise(op, b, layer)


def emit_depthwise(op: OpCall, b: Kernel, layer: LayerEnding) -> None:
    kernel = weight_offsets(op)[0]
    blocks = DepthwiseBlocks.of(op)
    flat = kernel.reshape(-1, kernel.shape[2]).T
    has_point = has_weight_zero_point(op)
    loop = DepthwiseKernel(
        layer.ending, blocks.pixels, has_point, blocks.offsets is not None
    )
    emit_window_kernel(
        b=b,
        op=op,
        window=blocks.window,
        name=loop.name,
        layer=layer,
        flat=flat,
        pixels=blocks.pixels,
        columns=blocks.columns,
        repeats=blocks.repeats,
        offsets=blocks.offsets,
    )


SCHEDULES = tuple(
    Schedule(
        f"rvv.depthwise_conv2d.{variant}",
        "depthwise_conv2d",
        frozenset({"rvv"}),
        partial(_configs, dtype),
        _build,
        takes_weight_zero_point=dtype == INT8,
    )
    for dtype, variant in ((INT8, "channels"), (INT16, "int16"))
)
