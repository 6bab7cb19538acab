"""conv2d and fully_connected on RISC-V vectors: output channels in lanes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.rvv import register_group, riscv_row
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.ops import fully_connected
from firmwright.ops.conv2d import weights_of
from firmwright.ops.conv_window import kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.epilogue import layer_requantization
from firmwright.schedules.rvv import vector_requantize
from firmwright.schedules.rvv.vector_requantize import NOMINAL_LANES
from firmwright.schedules.rvv.window_kernel import (
    block_text,
    emit_window_kernel,
    make_intrinsic,
)

_C = read_sections(__file__)

# A tap is a load of one weight for each lane and, for each pixel, the load of a scalar
# input and VWMACC.
#
# `rvv_dot_PIXELS`: weights are extended to 16 bits, products are added to 32-bit sums
# of 24 registers. `rvv_dot_1_GROUP`, for one pixel: the products of GROUP successive
# taps are added in 16 bits, which they fit (`longest_group`), and these to 32-bit sums
# in two variables. Instructions have twice as many lanes.

_GROUPS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class RvvDotKernel:
    """The micro-kernel of `pixels`; with a `group`, products are added in 16 bits."""

    pixels: int
    group: int = 0

    @property
    def name(self) -> str:
        return f"rvv_dot_{self.pixels}" + (f"_{self.group}" if self.group else "")

    @property
    def lmul(self) -> int:
        """The registers of a variable of 32-bit sums."""
        return 8 if self.group else 24 // self.pixels

    def instructions(self, rows: int, run: int, channels: int) -> int:
        """Return the instructions for all channels with vectors of 128 bits."""
        lanes = NOMINAL_LANES * (16 if self.group else self.lmul) // 8
        tap = 4.4 + 4 / self.group if self.group else 4 + 2 * self.pixels
        sums = 2 if self.group else self.pixels
        block = round(24 + 8 * sums + rows * (6 + run * tap))
        return divide_up(channels, lanes) * block

    def text(self) -> str:
        return self._grouped_text() if self.group else self._pixels_text()

    def _grouped_text(self) -> str:
        finish = vector_requantize.requantize_text
        first = finish([("sum0", "y + at")], 8, "at", "vl0")
        second = finish([("sum1", "y + at + vl0")], 8, "at + vl0", "vl1")
        return fill_text(
            _C["grouped"],
            group=self.group,
            add=indent(_C["add"], " " * 16),
            add_one=indent(_C["add"], " " * 12),
            first=indent(first, " " * 8),
            second=indent(second, " " * 8),
        )

    def _pixels_text(self) -> str:
        lanes = 4 * self.lmul
        k, words = VectorBuilder("tap"), partial(riscv_row, lanes, INT32)
        place = RegisterPlace(RegisterClass.VECTOR, INT32, lanes)
        sums = [k.variable(f"sum{p}", place) for p in range(self.pixels)]
        weight = k.pointer("weight", INT8)
        byte = k(riscv_row(lanes, INT8, "vle8_v"), weight[0])
        tap = k.named("tap", riscv_row(lanes, INT16, "vsext_vf2"), byte)
        for p, total in enumerate(sums):
            value = k.number(f"value[k + {p} * pixel_step]" if p else "value[k]")
            k(words("vwmacc_vx"), total, value, tap, into=total)
        group = register_group(INT32, lanes).removeprefix(INT32.short)
        copies = [f"    vint32{group}_t {total.name} = sum0;" for total in sums[1:]]
        kept = ", ".join(f'"+vr"({total.name})' for total in sums)
        tap_text = fill_text(_C["tap"], tap=vector_text(k.build_vectors()), sums=kept)
        return fill_text(
            _C["pixels"],
            start="\n".join(copies),
            tap=indent(tap_text, " " * 16),
            last=indent(tap_text, " " * 12),
            finish=block_text(vector_requantize.pixel_sums(self.pixels), self.lmul),
            m=group,
        )


LOOPS = (*map(RvvDotKernel, (3, 6, 12)), *(RvvDotKernel(1, group) for group in _GROUPS))


def longest_group(flat: Array, run: int) -> int:
    """Return how many successive taps have products whose sum always fits 16 bits.

    `flat` is [channel, tap], `run` the taps of a row of a window.
    """
    rows = flat.astype(np.int64).reshape(len(flat), -1, run)
    positive = np.maximum(rows, 0)
    negative = np.minimum(rows, 0)

    def fits(group: int) -> bool:
        up = np.add.reduceat(positive, range(0, run, group), axis=2)
        down = np.add.reduceat(negative, range(0, run, group), axis=2)
        most = up * INT8.max + down * INT8.min
        least = up * INT8.min + down * INT8.max
        return bool(most.max() <= INT16.max and least.min() >= INT16.min)

    return max(group for group in _GROUPS if group == 1 or fits(group))


def choose_loop(flat: Array, rows: int, pixels: int) -> RvvDotKernel:
    """Return the loop with the fewest instructions for `pixels` pixels."""
    channels, run = len(flat), flat.shape[1] // rows
    limit = longest_group(flat, run)
    loops = []
    for loop in LOOPS:
        if loop.pixels <= pixels and loop.group in (0, limit):
            loops.append(loop)

    def cost(loop: RvvDotKernel) -> int:
        blocks = divide_up(pixels, loop.pixels)
        return blocks * loop.instructions(rows, run, channels)

    return min(loops, key=cost)


def _intrinsic(loop: RvvDotKernel) -> Intrinsic:
    count = loop.instructions
    return make_intrinsic(loop.name, loop.pixels, loop.text(), count, by_channel=False)


INTRINSICS = tuple(map(_intrinsic, LOOPS))


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if not vector_requantize.is_int8_layer(op) or kernel_window(op).dilation[1] != 1:
        return ()
    if op.op == "fully_connected" and not fully_connected.has_int32_multiplier(op):
        return ()
    applies = vector_requantize.supports_requantize(layer_requantization(op))
    return (NO_CONFIG,) if applies else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    kernel, window = weights_of(op), kernel_window(op)
    flat = kernel.reshape(len(kernel), -1)
    rows = window.size[0]
    if window.pointwise:
        pixels = op.output.elements // len(kernel)
    else:
        pixels = op.output.shape[2]
    loop = choose_loop(flat, rows, pixels)
    row = (flat.shape[1] // rows, 1, 1)
    emit_window_kernel(b, op, window, loop.name, flat, loop.pixels, row)


SCHEDULES = tuple(
    Schedule(f"rvv.{name}.channels", name, frozenset({"rvv"}), _configs, _build)
    for name in ("conv2d", "fully_connected")
)
