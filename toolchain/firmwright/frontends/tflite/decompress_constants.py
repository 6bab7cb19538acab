"""Decompression of constants as defined by TFLM's custom operator TFLM_DECODE.

The ancillary tensor has a header of 16 bytes: byte 0 the kind, byte 1 the version (1),
byte 4 the version of the kind's data (1), and the bytes listed below. A table follows.
Bits are read from the most significant end of each byte.

    0 look-up  byte 5 & 7: bits per index; byte 6: entries of a channel's table.
               The encoded tensor has one index per element.
    1 Huffman  byte 5 & 1: entries of 32 bits, else 16; byte 5 >> 4: bits of the first
               look-up, minus one. The encoded tensor has code words.
    2 pruning  The encoded tensor has one bit per element: 1 for the table's next value,
               0 for the zero point.

Source of the format: TFLM's documentation of its compression and its operator's
reference.
"""

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType

DECODE_OPERATOR = "custom:TFLM_DECODE"
_HEADER_BYTES = 16


def decompress_constant(encoded: bytes, ancillary: bytes, kind: TensorType) -> Array:
    """Return the tensor of type `kind`; NotSupportedError for a format violation."""
    if len(ancillary) < _HEADER_BYTES:
        raise NotSupportedError(
            f"ancillary data of {len(ancillary)} bytes, which needs 16"
        )
    decoder = _DECODERS.get(ancillary[0])
    if decoder is None:
        raise NotSupportedError(f"a compression of kind {ancillary[0]}")
    if (ancillary[1], ancillary[4]) != (1, 1):
        raise NotSupportedError(
            f"a compression of version {ancillary[1]}.{ancillary[4]}"
        )
    return decoder(encoded, ancillary, kind).astype(kind.dtype.np).reshape(kind.shape)


def _decode_lut(encoded: bytes, ancillary: bytes, kind: TensorType) -> Array:
    width, stride = ancillary[5] & 7, ancillary[6]
    if not width:
        raise NotSupportedError("indices of no bits")
    bits = _bits(encoded, kind.elements * width).reshape(-1, width)
    indices = bits @ (1 << np.arange(width)[::-1])
    table = _table(ancillary, kind.dtype.np)
    places = _channels(kind) * stride + indices
    if places.max() >= table.size:
        raise NotSupportedError(
            f"an index of {places.max()} into a table of {table.size} values"
        )
    values: Array = table[places]
    return values


def _decode_pruned(encoded: bytes, ancillary: bytes, kind: TensorType) -> Array:
    is_stored = _bits(encoded, kind.elements).astype(np.bool_)
    table = _table(ancillary, kind.dtype.np)
    if is_stored.sum() > table.size:
        raise NotSupportedError(f"{is_stored.sum()} values of a table of {table.size}")
    zeros = kind.quantization.zero_points if kind.quantization else (0,)
    values: Array = np.array(zeros, kind.dtype.np)[_channels(kind) % len(zeros)]
    values[is_stored] = table[: is_stored.sum()]
    return values


def _decode_huffman(encoded: bytes, ancillary: bytes, kind: TensorType) -> Array:
    """Decode by nested tables of symbols, or of the next lookup's width and offset.

    A symbol's entry has the number of the last bits that it uses; others are read
    again.
    """
    is_wide = bool(ancillary[5] & 1)
    if kind.dtype.name != "int8" and not (is_wide and kind.dtype.name == "int16"):
        raise NotSupportedError(
            f"code words of {'32' if is_wide else '16'} bits for {kind}"
        )
    table = _table(ancillary, np.dtype("<u4" if is_wide else "<u2")).tolist()
    # An entry, most significant bit first:
    #     1 | 4: last bits in use | symbol
    #     0 | 4: width of the next lookup, minus one | offset of its table
    symbol_bit, shift = (31, 27) if is_wide else (15, 11)
    first = (ancillary[5] >> 4) + 1
    stream = _BitReader(encoded)
    symbols = []
    for _ in range(kind.elements):
        width, place = first, stream.take(first)
        entry = _entry(table, place)
        while not entry >> symbol_bit:
            width = (entry >> shift & 0xF) + 1
            place += (entry & (1 << shift) - 1) + stream.take(width)
            entry = _entry(table, place)
        stream.place -= max(0, width - (entry >> shift & 0xF))
        symbols.append(entry & 0xFFFF)
    bits = np.array(symbols, "<u2")
    if kind.dtype.name == "int16":
        return bits.view("<i2")
    return bits.astype("u1").view("i1")


def _entry(table: list[int], place: int) -> int:
    if place >= len(table):
        raise NotSupportedError(f"a code word at {place} of a table of {len(table)}")
    return table[place]


class _BitReader:
    """Reads bits, most significant first; `place` is the number of bits consumed."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def take(self, count: int) -> int:
        """Return the next `count` bits; bits past the end are zero."""
        first = self.place >> 3
        last = (self.place + count + 7) >> 3
        if first > len(self.data):
            raise NotSupportedError(
                f"code words beyond the {len(self.data)} bytes of the tensor"
            )
        window = int.from_bytes(self.data[first:last].ljust(last - first, b"\0"), "big")
        self.place += count
        return window >> (last * 8 - self.place) & (1 << count) - 1


def _bits(encoded: bytes, count: int) -> Array:
    if len(encoded) * 8 < count:
        raise NotSupportedError(f"{count} bits of a tensor of {len(encoded)} bytes")
    return np.unpackbits(np.frombuffer(encoded, np.uint8), count=count)


def _table(ancillary: bytes, dtype: np.dtype[np.generic]) -> Array:
    rest = ancillary[_HEADER_BYTES:]
    count = len(rest) // dtype.itemsize
    return np.frombuffer(rest[: count * dtype.itemsize], dtype)


def _channels(kind: TensorType) -> Array:
    """Return the channel of each element, on the first or the quantized last axis."""
    quantization = kind.quantization
    count = len(quantization.scales) if quantization else 1
    places = np.arange(kind.elements)
    if count == 1 or quantization is None:
        return np.zeros_like(places)
    if quantization.axis == len(kind.shape) - 1:
        return places % count
    if quantization.axis:
        raise NotSupportedError(f"channels along axis {quantization.axis}")
    return places // (kind.elements // count)


_DECODERS = {0: _decode_lut, 1: _decode_huffman, 2: _decode_pruned}
