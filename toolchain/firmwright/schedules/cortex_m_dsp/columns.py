"""Packed columns: the inputs of four output pixels as int16 pairs, side by side.

A column is the kernel window of one output pixel, flattened and cut into groups of four int8
values k0..k3. SXTB16 widens a group to the words (k0, k2) and (k1, k3); word j of pixel p lies at
`columns[j, p]`, so that one multiply-accumulate step reads its four pixels from one row. A row of
the window (all its columns and channels) is contiguous in an NHWC input and is padded to whole
groups with zeros, which the weights match with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT16, UINT32
from firmwright.ir.graph.opdef import Array
from firmwright.ir.tir.builder import E, call, logical_and
from firmwright.ir.tir.nodes import Buffer
from firmwright.ops.conv_shapes import Window
from firmwright.ops.kernel import Kernel


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Rows of `run` int8 values each (kernel columns x channels), padded to groups of four."""

    window: Window
    channels: int

    @property
    def run(self) -> int:
        return self.window.size[1] * self.channels

    @property
    def words_per_row(self) -> int:
        return 2 * (-(-self.run // 4))

    @property
    def words(self) -> int:
        return self.window.size[0] * self.words_per_row

    def pack_weights(self, weights: Array, block: int, *, borrow: bool) -> Array:
        """[oc, kh, kw, ic] int8 -> uint32 [oc / block, words, block / 2], zeros where it pads.

        A word holds two taps of two neighbouring channels, as mac_blocks.py describes: lanes
        256 b + a where `borrow`, else bytes a, b, a', b'. The taps are in the columns' order.
        """
        outputs = weights.shape[0]
        rows = weights.reshape(outputs, self.window.size[0], self.run)
        padded = np.zeros(
            (-(-outputs // block) * block, self.window.size[0], 2 * self.words_per_row), np.int8
        )
        padded[:outputs, :, : self.run] = rows
        groups = padded.reshape(len(padded) // block, block // 2, 2, -1, 4)
        lanes = groups[..., [[0, 2], [1, 3]]]  # [block, pair, channel, group, word, lane]
        ordered = lanes.transpose(0, 3, 4, 1, 5, 2)  # [block, group, word, pair, lane, channel]
        if borrow:
            wide = ordered.astype(np.int16)
            ordered = (256 * wide[..., 1] + wide[..., 0])[..., None]
        packed: Array = np.ascontiguousarray(ordered).reshape(-1).view(np.uint32)
        return packed.reshape(len(padded) // block, self.words, block // 2)


def pack_pixel(
    b: Kernel,
    layout: ColumnLayout,
    columns: Buffer,
    x: Buffer,
    position: tuple[E, E, E],
    pixel: E | int,
) -> None:  # fmt: skip
    """Fill column `pixel` with the window whose top left tap is at input `position` (n, y, x)."""
    window = layout.window
    n, top, left = position
    height, width = window.input_size
    with b.for_("ky", window.size[0]) as ky, b.let("iy", top + ky * window.dilation[0]) as iy:
        word = ky * layout.words_per_row
        offset = ((n * height + iy) * width + left) * layout.channels
        if not window.guarded(0) and not window.guarded(1):
            pack_run(b, layout, columns, x, offset, word, pixel)
            return
        inside = logical_and(iy >= 0, iy < height, left >= 0, left <= width - window.size[1])
        with b.if_(inside):
            pack_run(b, layout, columns, x, offset, word, pixel)
        with b.else_():
            _pack_border(b, layout, columns, x, (n, iy, left), word, pixel)


def pack_run(
    b: Kernel, layout: ColumnLayout, columns: Buffer, x: Buffer, offset: E, word: E, pixel: E | int
) -> None:  # fmt: skip
    """A row of the window inside of the input, from element `offset`: words, then the tail."""
    groups, tail = divmod(layout.run, 4)
    alignment = 4 if layout.channels % 4 == 0 else 1
    if groups:
        window = b.window("run", x, offset, (groups,), dtype=UINT32, alignment=alignment)
        with window as run, b.for_("i", groups) as i, b.let("four", b.load(run, [i])) as four:
            b.store(columns, [word + i * 2, pixel], call("sxtb16", [four], UINT32))
            b.store(columns, [word + i * 2 + 1, pixel], call("sxtb16_ror8", [four], UINT32))
    if tail:
        with b.window("tail", x, offset + groups * 4, (tail,)) as rest:
            lanes = [b.load_i32(rest, [i]) for i in range(tail)] + [0] * (4 - tail)
            at_word = word + groups * 2
            b.store(columns, [at_word, pixel], call("pkhbt", [lanes[0], lanes[2]], UINT32))
            b.store(columns, [at_word + 1, pixel], call("pkhbt", [lanes[1], lanes[3]], UINT32))


def _pack_border(
    b: Kernel,
    layout: ColumnLayout,
    columns: Buffer,
    x: Buffer,
    at: tuple[E, E, E],
    word: E,
    pixel: E | int,
) -> None:  # fmt: skip
    """A row of the window that is partly outside: element by element, zero point outside."""
    height, width = layout.window.input_size
    channels = layout.channels
    zero_point = b.call.input(0).quantization
    assert zero_point is not None
    n, iy, left = at
    if layout.run % 4:
        last = word + layout.words_per_row - 2
        b.store(columns, [last, pixel], 0)
        b.store(columns, [last + 1, pixel], 0)
    stride = columns.shape[1]
    source = b.window(
        "halves", columns, word * stride + pixel, (layout.words_per_row, 2), dtype=INT16,
        strides=(2 * stride, 1), access="w", alignment=4,
    )  # fmt: skip
    with source as halves, b.for_("kx", layout.window.size[1]) as kx, b.let("ix", left + kx) as ix:
        inside = logical_and(iy >= 0, iy < height, ix >= 0, ix < width)
        with b.for_("c", channels) as c, b.let("k", kx * channels + c) as k:
            word_at, lane = (k >> 2) * 2 + (k & 1), (k >> 1) & 1
            with b.if_(inside):
                b.store(halves, [word_at, lane], b.load(x, [n, iy, ix, c]).cast(INT16))
            with b.else_():
                b.store(halves, [word_at, lane], zero_point.zero_point)
