"""Which weight or start value of a layer each element of a table in the image holds.

The packings of the compiler are tried on the numbers of the values. The one that
explains the table is a certificate: the checker compares table and model by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from firmwright.base.dtypes import INT8, INT16, UINT32, Array
from firmwright.base.json_input import JsonObject
from firmwright.flows.certify import check_bundle as checker
from firmwright.kernels.contract import InterleavedChannels, WeightLayout
from firmwright.kernels.depthwise_contract import OverlappingBlocks
from firmwright.kernels.dsp.depthwise_weights import ChannelPairs, LinePairs
from firmwright.kernels.dsp.weight_packing import BYTES, PAIRED, PairedChannels
from firmwright.schedules.dsp_and_scalar.winograd import pack_pairs

_DIGIT: Final = 64
"""Numbers are packed by digits, each of which fits a weight."""
_LEFTS: Final = (0, 8)
_CHANNELS: Final = tuple(range(1, 17))
_LANES: Final = 4
_LANES_OF_HALVES: Final = (0, 2, 1, 3)


@dataclass(frozen=True, slots=True)
class TableOrder:
    """The numbers of the values [element, byte] of a table; -1 is none.

    The last axis has one number, or two for elements of which each byte has a value.
    Elements are shifted left by `left`.
    """

    kind: str
    left: int
    numbers: Array

    def to_json(self) -> JsonObject:
        return {"kind": self.kind, "left": self.left}

    def explains(self, table: Array, values: Array) -> bool:
        """Whether a table holds the values in this order."""
        places = (1 << self.left) * 256 ** np.arange(self.numbers.shape[1])
        expected = np.append(values, 0)[self.numbers] @ places
        return table.shape == expected.shape and bool((table == expected).all())


def find_start_order(starts: Array, table: Array) -> TableOrder | None:
    """Return the order of start values, or None.

    Odd channels may contain the even ones.
    """
    own = np.arange(len(starts))[:, None]
    before = np.where(own % 2, own - 1, -1)
    paired = np.where(own % 2, np.hstack([before, own]), np.hstack([own, before]))
    for numbers, left in product((own, paired), _LEFTS):
        order = TableOrder("<i4", left, numbers)
        if order.explains(table, starts):
            return order
    return None


def is_stream(
    image: checker.Firmware, part: checker.Layer, weights: str, starts: str
) -> bool:
    """Whether a table holds the weights in segments, as the checker requires."""
    try:
        checker.check_streams(image, part, weights, starts)
    except (checker.Rejected, ValueError, IndexError):
        return False
    return True


def find_weight_order(part: checker.Layer, data: bytes) -> TableOrder | None:
    """Return the order of weights [row, tap] in the bytes of a table, or None."""
    rows, shape = part.rows, part.w.shape
    window = (int(shape[1]), int(shape[2])) if len(shape) == 4 else (1, 1)
    for layout, kind, taps in _layouts(rows.shape, window):
        if len(data) % np.dtype(kind).itemsize:
            continue
        table = np.frombuffer(data, kind).astype(np.int64)
        is_mixed = isinstance(layout, PairedChannels) and layout.packing == PAIRED
        numbers = _numbers_of(layout.pack, kind, taps, is_mixed=is_mixed)
        for left in _LEFTS:
            order = TableOrder(kind, left, numbers)
            if order.explains(table, rows.reshape(-1)):
                return order
    return None


def find_winograd_order(
    part: checker.Layer, lefts: Array, data: bytes
) -> TableOrder | None:
    """Return the order of transformed weights in the bytes of a table, or None."""
    if len(part.w.shape) != 4:
        return None
    outputs, inputs = len(part.rows), part.rows.shape[1] // 9
    is_known = part.w.shape[1:3] == (3, 3) and inputs % 4 == outputs % 2 == 0
    if not is_known or len(data) % 2:
        return None
    try:
        values = checker.winograd_weights(part, lefts)
    except checker.Rejected:
        return None
    places = np.arange(values.size).reshape(outputs, -1, inputs)
    numbers = _numbers_of(pack_pairs, "<i2", places, is_mixed=False)
    order = TableOrder("<i2", 0, numbers)
    table = np.frombuffer(data, "<i2").astype(np.int64)
    return order if order.explains(table, values) else None


def _layouts(
    shape: tuple[int, ...], window: tuple[int, int]
) -> Iterator[tuple[WeightLayout, str, Array]]:
    """Yield packings, the type of elements, and the numbers [row, tap] of weights."""
    channels, count = shape
    taps = np.arange(channels * count).reshape(shape)
    for packing, width, runs in product((BYTES, PAIRED), _CHANNELS, {1, window[0]}):
        if width % 2 == channels % width == count % runs == 0:
            layout = PairedChannels(packing, width, runs, count // runs)
            yield layout, packing.element.np.str, taps
    for width in (*_CHANNELS, channels):
        yield InterleavedChannels(INT8, (width,)), "<i1", taps
        yield InterleavedChannels(INT16, (width,)), "<i2", taps
        yield InterleavedChannels(UINT32, (width,), taps_per_step=4), "<i1", taps
    yield OverlappingBlocks(INT8, _LANES), "<i1", taps
    yield OverlappingBlocks(INT16, _LANES, _LANES_OF_HALVES), "<i2", taps
    yield ChannelPairs(channels), "<i2", taps
    lines, columns = window
    if lines * columns == count:
        across = taps.reshape(-1, *window).swapaxes(1, 2).reshape(shape)
        for element in (INT8, INT16):
            yield LinePairs(lines, columns, element), element.np.str, taps
            yield LinePairs(columns, lines, element), element.np.str, across


def _numbers_of(
    pack: Callable[[Array], Array], kind: str, taps: Array, *, is_mixed: bool
) -> Array:
    """Return the number of each weight in the table, by packing digits of numbers."""
    numbers: Array = np.array(0)
    rest, place = taps + 1, 1
    while rest.any():
        packed = np.ascontiguousarray(pack(rest % _DIGIT)).reshape(-1).view(kind)
        elements = packed.astype(np.int64)[:, None]
        if is_mixed:
            elements = np.concatenate([elements & 255, elements >> 8], axis=1)
        numbers = numbers + place * elements
        rest, place = rest // _DIGIT, place * _DIGIT
    return numbers - 1
