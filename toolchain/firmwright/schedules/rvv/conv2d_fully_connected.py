"""conv2d and fully_connected on RISC-V vectors: output channels in lanes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.rvv import register_group, riscv_row
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.conv2d import channel_weights
from firmwright.ops.conv_window import ConvWindow, kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.rvv.endings import (
    BYTES,
    EXACT,
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
    adjacent_taps,
    emit_window_kernel,
    ending_text,
    extended,
    window_extents,
)

_C = read_sections(__file__)

# A tap is a load of one weight for each lane and, for each pixel, the load of a scalar
# input and VWMACC.
#
# `rvv_dot_PIXELS`: weights are extended to 16 bits, products are added to 32-bit sums
# of 24 registers. `rvv_dot_offset_PIXELS` subtracts the zero point of the weights as it
# extends them, for layers of uint8, whose weights less that have nine bits.
#
# `rvv_dot_1_GROUP`, for one pixel of int8: the products of GROUP successive taps are
# added in 16 bits, which they fit (`longest_group`), and these to 32-bit sums in two
# variables. Instructions have twice as many lanes.

_GROUPS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class RvvDotKernel:
    """The micro-kernel of `pixels`; with a `group`, products are added in 16 bits."""

    ending: Ending
    pixels: int
    group: int = 0
    has_weight_point: bool = False

    @property
    def name(self) -> str:
        size = f"{self.pixels}" + (f"_{self.group}" if self.group else "")
        offset = "_offset" if self.has_weight_point else ""
        return f"rvv_dot{self.ending.name}{offset}_{size}"

    @property
    def lmul(self) -> int:
        """The registers of a variable of 32-bit sums."""
        return 8 if self.group else min(8, 24 // self.pixels)

    def instructions(self, rows: int, run: int, channels: int) -> int:
        """Return the instructions for all channels with vectors of 128 bits."""
        lanes = NOMINAL_LANES * (16 if self.group else self.lmul) // 8
        tap = 4.4 + 4 / self.group if self.group else 4 + 2 * self.pixels
        sums = 2 if self.group else self.pixels
        ending = 24 + self.ending.instructions * sums
        block = round(ending + rows * (6 + run * tap))
        return divide_up(channels, lanes) * block

    def text(self) -> str:
        return self._grouped_text() if self.group else self._pixels_text()

    def _grouped_text(self) -> str:
        finish = self.ending.text
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
        byte = k(riscv_row(lanes, INT8, "vle8_v"), k.pointer("weight", INT8)[0])
        tap = extended(k, lanes, "tap", byte, self.has_weight_point)
        for p, total in enumerate(sums):
            value = k.number(f"value[k + {p} * pixel_step]" if p else "value[k]")
            k(words("vwmacc_vx"), total, value, tap, into=total)
        group = register_group(INT32, lanes).removeprefix(INT32.short)
        copies = [f"    vint32{group}_t {total.name} = sum0;" for total in sums[1:]]
        kept = ", ".join(f'"+vr"({total.name})' for total in sums)
        tap_text = fill_text(_C["tap"], tap=vector_text(k.build_vectors()), sums=kept)
        return fill_text(
            _C["pixels"],
            type=self.ending.input.c_type,
            start="\n".join(copies or ["    (void)pixel_step;"]),
            tap=indent(tap_text, " " * 16),
            last=indent(tap_text, " " * 12),
            finish=ending_text(self.ending, pixel_sums(self.pixels), self.lmul),
            m=group,
        )


LOOPS = (
    *(RvvDotKernel(each, n) for each in (BYTES, FLOAT_BYTES) for n in (3, 6, 12)),
    *(
        RvvDotKernel(each, 1, n)
        for each in (BYTES, FLOAT_BYTES, SUMS[INT8])
        for n in _GROUPS
    ),
    *(RvvDotKernel(each, n) for each in (HALVES, EXACT) for n in (1, 2, 3, 6, 12)),
    RvvDotKernel(SUMS[INT16], 1),
    *(RvvDotKernel(SUMS[INT8], n) for n in (3, 6, 12)),
    *(RvvDotKernel(BYTES, n, has_weight_point=True) for n in (1, 3, 6, 12)),
)


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


def choose_loop(ending: Ending, flat: Array, rows: int, pixels: int) -> RvvDotKernel:
    """Return the loop with the fewest instructions for `pixels` pixels."""
    channels, run = len(flat), flat.shape[1] // rows
    is_wide = flat.dtype == INT16.np
    limit = 0 if is_wide else longest_group(flat, run)
    loops = []
    for loop in LOOPS:
        if loop.ending is not ending or loop.pixels > pixels:
            continue
        if loop.has_weight_point != is_wide:
            continue
        if loop.group in (0, limit):
            loops.append(loop)

    def cost(loop: RvvDotKernel) -> int:
        blocks = divide_up(pixels, loop.pixels)
        return blocks * loop.instructions(rows, run, channels)

    return min(loops, key=cost)


def _intrinsic(loop: RvvDotKernel) -> Intrinsic:
    form = WindowForm(
        loop.ending,
        loop.pixels,
        by_channel=False,
        has_weight_point=loop.has_weight_point,
    )
    return form.intrinsic(loop.name, loop.text(), loop.instructions)


INTRINSICS = tuple(map(_intrinsic, LOOPS))


def _configs(dtype: DType, op: OpCall) -> Sequence[ScheduleConfig]:
    if op.input(0).dtype != dtype or adjacent_taps(kernel_window(op), 1) is None:
        return ()
    is_byte = dtype == INT8
    return (NO_CONFIG,) if layer_ending(op, takes_zero_point=is_byte) else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    layer = layer_ending(op, takes_zero_point=True)
    assert layer is not None
    emit_layer(op, b, channel_weights(op), kernel_window(op), layer)


def emit_layer(
    op: OpCall, b: Kernel, flat: Array, window: ConvWindow, layer: LayerEnding
) -> None:
    """Compute a layer with weights `flat` [channel, tap]."""
    extents = window_extents(op, window)
    loop = choose_loop(layer.ending, flat, extents.rows, extents.pixels)
    row = (extents.run, 1, 1)
    emit_window_kernel(b, op, window, loop.name, layer, flat, loop.pixels, row)


def _single_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    """Return a configuration of a depthwise layer of one input channel."""
    return _configs(INT8, op) if op.input(0).shape[3] == 1 else ()


_BY_CHANNEL = tuple(
    Schedule(
        f"rvv.{name}.{variant}",
        name,
        frozenset({"rvv"}),
        partial(_configs, dtype),
        _build,
        takes_weight_zero_point=dtype == INT8,
    )
    for name in ("conv2d", "fully_connected")
    for dtype, variant in ((INT8, "channels"), (INT16, "int16"))
)
SCHEDULES = (
    *_BY_CHANNEL,
    Schedule(
        "rvv.depthwise_conv2d.single",
        "depthwise_conv2d",
        frozenset({"rvv"}),
        _single_configs,
        _build,
        takes_weight_zero_point=True,
    ),
)
