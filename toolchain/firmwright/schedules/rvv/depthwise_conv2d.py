"""depthwise_conv2d on RISC-V vectors: channels in lanes, one or two pixels at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import indent

from firmwright.base.dtypes import INT8, INT16, INT32, DType
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder, VectorProgram
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.conv2d import channel_multiplier_of, weight_offsets
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.rvv.endings import (
    BYTES,
    HALVES,
    NOMINAL_LANES,
    SUMS,
    Ending,
    layer_ending,
    pixel_sums,
)
from firmwright.schedules.rvv.window_kernel import (
    emit_window_kernel,
    ending_text,
    make_intrinsic,
)

_C = read_sections(__file__)

# If a layer has few channels and a horizontal stride of 1, several adjacent pixels are
# one pixel of more channels: the values of each tap are adjacent, too, and weights and
# parameters are repeated. Two pixels share the weights.

_REPEATED_CHANNELS = 64


def _text(ending: Ending, pixels: int, weight: DType) -> str:
    start = "vint32m8_t sum1 = sum0;" if pixels > 1 else "(void)pixel_step;"
    return fill_text(
        _C["text"],
        type=ending.input.c_type,
        weight=weight.c_type,
        start=start,
        products=indent(vector_text(_tap(ending.input, pixels, weight)), " " * 12),
        finish=ending_text(ending, pixel_sums(pixels), 8),
    )


def _tap(dtype: DType, pixels: int, weight: DType) -> VectorProgram:
    """Return the products of a tap of all channels with those of some pixels."""
    lanes = NOMINAL_LANES
    k, halves = VectorBuilder("tap"), partial(riscv_row, lanes, INT16)

    def loaded(name: str, place: str, dtype: DType) -> VirtualRegister:
        load = riscv_row(lanes, dtype, f"vle{dtype.bits}_v")
        at = k.pointer(place, dtype)[0]
        if dtype == INT16:
            return k.named(name, load, at)
        return k.named(name, halves("vsext_vf2"), k(load, at))

    tap = loaded("tap", "weight", weight)
    for p in range(pixels):
        total = k.variable(f"sum{p}", RegisterPlace(RegisterClass.VECTOR, INT32, lanes))
        x = loaded(f"x{p}", f"from + {p} * pixel_step" if p else "from", dtype)
        k(riscv_row(lanes, INT32, "vwmacc_vv"), total, x, tap, into=total)
    return k.build_vectors()


def _count(pixels: int, rows: int, columns: int, channels: int) -> int:
    blocks = divide_up(channels, NOMINAL_LANES)
    return blocks * (24 + 8 * pixels + 4 * rows + rows * columns * (4 + 4 * pixels))


def kernel_name(ending: Ending, pixels: int, weight: DType) -> str:
    wide = "_wide" if weight == INT16 else ""
    return f"rvv_depthwise{ending.name}{wide}_{pixels}"


def _intrinsic(ending: Ending, pixels: int, weight: DType) -> Intrinsic:
    return make_intrinsic(
        kernel_name(ending, pixels, weight),
        ending,
        pixels,
        _text(ending, pixels, weight),
        partial(_count, pixels),
        by_channel=True,
        weight=weight,
    )


_FORMS = ((BYTES, INT8), (BYTES, INT16), (HALVES, INT8), (SUMS[INT8], INT8))
INTRINSICS = tuple(
    _intrinsic(ending, pixels, weight) for ending, weight in _FORMS for pixels in (1, 2)
)


def _configs(dtype: DType, op: OpCall) -> Sequence[ScheduleConfig]:
    if op.input(0).dtype != dtype or channel_multiplier_of(op) != 1:
        return ()
    is_byte = dtype == INT8
    return (NO_CONFIG,) if layer_ending(op, takes_zero_point=is_byte) else ()


@dataclass(frozen=True, slots=True)
class DepthwiseBlocks:
    """How a layer is computed: `pixels` at a time, each of `repeats` adjacent ones.

    `columns` are those of `emit_windows`.
    """

    window: ConvWindow
    pixels: int
    repeats: int
    columns: tuple[int, int, int]

    @classmethod
    def of(cls, op: OpCall) -> DepthwiseBlocks:
        rows, columns, channels = op.input(1).shape[1:]
        width = op.output.shape[2]
        window = window_of(op, (rows, columns))
        repeats = adjacent_pixels(window, width, channels)
        row = (columns, window.dilation[1] * channels, channels * repeats)
        return cls(window, min(2, width // repeats), repeats, row)


def adjacent_pixels(window: ConvWindow, width: int, channels: int) -> int:
    """Return how many pixels of an output row are one."""
    if window.stride[1] != 1:
        return 1
    return min(width, max(_REPEATED_CHANNELS // channels, 1))


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    kernel = weight_offsets(op)[0]
    layer = layer_ending(op, takes_zero_point=True)
    assert layer is not None
    blocks = DepthwiseBlocks.of(op)
    flat = kernel.reshape(-1, kernel.shape[2]).T
    is_wide = flat.dtype == INT16.np
    emit_window_kernel(
        b=b,
        op=op,
        window=blocks.window,
        name=kernel_name(layer.ending, blocks.pixels, INT16 if is_wide else INT8),
        layer=layer,
        flat=flat,
        pixels=blocks.pixels,
        columns=blocks.columns,
        repeats=blocks.repeats,
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
