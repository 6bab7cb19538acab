"""depthwise_conv2d on RISC-V vectors: channels in lanes, one or two pixels at once."""

from collections.abc import Sequence
from functools import partial
from textwrap import indent

from firmwright.base.dtypes import INT8, INT16, INT32
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder, VectorProgram
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.conv2d import channel_multiplier_of, requantization_of, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.rvv import vector_requantize
from firmwright.schedules.rvv.window_kernel import (
    block_text,
    emit_window_kernel,
    make_intrinsic,
)

_C = read_sections(__file__)

# If a layer has few channels and a horizontal stride of 1, several adjacent pixels are
# one pixel of more channels: the values of each tap are adjacent, too, and weights and
# parameters are repeated. Two pixels share the weights.

_REPEATED_CHANNELS = 64


def _text(pixels: int) -> str:
    sums = vector_requantize.pixel_sums(pixels)
    start = "vint32m8_t sum1 = sum0;" if pixels > 1 else "(void)pixel_step;"
    return fill_text(
        _C["text"],
        start=start,
        products=indent(vector_text(_tap(pixels)), " " * 12),
        finish=block_text(sums, 8),
    )


def _tap(pixels: int) -> VectorProgram:
    """Return the products of a tap of all channels with those of some pixels."""
    lanes = vector_requantize.NOMINAL_LANES
    k, halves = VectorBuilder("tap"), partial(riscv_row, lanes, INT16)
    load = riscv_row(lanes, INT8, "vle8_v")

    def extended(name: str, place: str) -> VirtualRegister:
        return k.named(name, halves("vsext_vf2"), k(load, k.pointer(place, INT8)[0]))

    tap = extended("tap", "weight")
    for p in range(pixels):
        total = k.variable(f"sum{p}", RegisterPlace(RegisterClass.VECTOR, INT32, lanes))
        x = extended(f"x{p}", f"from + {p} * pixel_step" if p else "from")
        k(riscv_row(lanes, INT32, "vwmacc_vv"), total, x, tap, into=total)
    return k.build_vectors()


def _count(pixels: int, rows: int, columns: int, channels: int) -> int:
    blocks = divide_up(channels, vector_requantize.NOMINAL_LANES)
    return blocks * (24 + 8 * pixels + 4 * rows + rows * columns * (4 + 4 * pixels))


def _intrinsic(pixels: int) -> Intrinsic:
    name = f"rvv_depthwise_{pixels}"
    count = partial(_count, pixels)
    return make_intrinsic(name, pixels, _text(pixels), count, by_channel=True)


INTRINSICS = (_intrinsic(1), _intrinsic(2))


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if not vector_requantize.is_int8_layer(op) or channel_multiplier_of(op) != 1:
        return ()
    applies = vector_requantize.supports_requantize(requantization_of(op))
    return (NO_CONFIG,) if applies else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    kernel, width = weights_of(op)[0], op.output.shape[2]
    rows, columns, channels = kernel.shape
    window = window_of(op, (rows, columns))
    repeats = 1
    if window.stride[1] == 1:
        repeats = min(width, max(_REPEATED_CHANNELS // channels, 1))
    pixels = min(2, width // repeats)
    flat = kernel.reshape(-1, channels).T
    row = (columns, window.dilation[1] * channels, channels * repeats)
    emit_window_kernel(
        b=b,
        op=op,
        window=window,
        name=f"rvv_depthwise_{pixels}",
        flat=flat,
        pixels=pixels,
        columns=row,
        repeats=repeats,
    )


SCHEDULES = (
    Schedule(
        "rvv.depthwise_conv2d.channels",
        "depthwise_conv2d",
        frozenset({"rvv"}),
        _configs,
        _build,
    ),
)
