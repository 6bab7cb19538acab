"""Lossless code of weight bytes with three code lengths (decision 0081).

The values nearest to a center have the shortest prefix code, those around them a longer
one, and all others the longest. Values in order have codes in order, so a decoder needs
no table of them.

A coded array of 16-bit words begins with a row for each range of values, in the order
of the codes: the last code, in the upper bits of a word of ones, its length, and the
first value less the first code. The positions of the blocks follow, two words each,
then the bits of each block, from the highest, padded to a word, and a word that a
decoder may read ahead.
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from firmwright.base.dtypes import Array

HEADER_WORDS = 12
_VALUES = 256
_WORD = 16
_IMPOSSIBLE = np.iinfo(np.int64).max


def encode_blocks(blocks: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Encode bytes [blocks, bytes of each], at least one byte."""
    header, codes = _assign_codes(np.bincount(blocks.reshape(-1), minlength=_VALUES))
    texts = ["".join(map(codes.__getitem__, block)) for block in blocks.tolist()]
    padded = [text + "0" * (-len(text) % _WORD) for text in texts]
    bits, position = "".join(padded), HEADER_WORDS + 2 * len(padded)
    header += [0] * (HEADER_WORDS - len(header))
    for text in padded:
        header += [position & 0xFFFF, position >> _WORD]
        position += len(text) // _WORD
    words = [int(bits[at : at + _WORD], 2) for at in range(0, len(bits), _WORD)]
    return np.array([*header, *words, 0], np.uint16)


def decode_block(coded: Array, block: int, count: int) -> NDArray[np.uint8]:
    """Return the `count` bytes of a block, as the decoder in the generated C does."""
    rows = coded[:HEADER_WORDS].reshape(-1, 3).tolist()
    low, high = coded[HEADER_WORDS + 2 * block :][:2].tolist()
    words = coded[low + (high << _WORD) :].tolist()
    bits = "".join(f"{word:016b}" for word in words)
    at, values = 0, np.zeros(count, np.uint8)
    for index in range(count):
        code = int(bits[at : at + _WORD], 2)
        _, length, offset = next(row for row in rows if code <= row[0])
        values[index] = (code >> (_WORD - length)) + offset & 0xFF
        at += length
    return values


def _assign_codes(counts: NDArray[np.int64]) -> tuple[list[int], dict[int, str]]:
    """Return the header's rows and the values' codes, with the fewest bits in total."""
    values = np.arange(_VALUES)
    distance = np.abs((values - values[:, None] + 128) % _VALUES - 128)
    center = int(np.argmin(distance @ counts))
    # In the order of their distance: center, center - 1, center + 1, center - 2, ...
    ranked = counts[(center + (values + 1) // 2 * (-1) ** values) % _VALUES]
    lengths, near, middle = _code_lengths(ranked)
    ends = [-(middle // 2), -(near // 2), near - near // 2, middle - middle // 2]
    ranges = (ends[1:3], ends[:2], ends[2:], (ends[3], ends[0] + _VALUES))
    rows: list[list[int]] = []
    codes: dict[int, str] = {}
    code = previous = 0
    for length, (first, end) in zip(lengths, ranges, strict=True):
        if first < end:
            code, previous = code << (length - previous), length
            last = (code + end - first << _WORD - length) - 1
            rows.append([last, length, (center + first - code) % _VALUES])
            for value in range(first, end):
                codes[(center + value) % _VALUES] = f"{code:0{length}b}"
                code += 1
    rows[-1][0] = 0xFFFF
    return [field for row in rows for field in row], codes


def _code_lengths(counts: NDArray[np.int64]) -> tuple[tuple[int, ...], int, int]:
    """Return the lengths for four ranges, and two counts of values.

    They are the numbers of values before the second and the last range.

    `counts` are in the order of the distance from the center.
    """
    before, near = np.concatenate([[0], np.cumsum(counts)]), np.arange(_VALUES + 1)
    best = 8 * int(before[-1]), (8, 8, 8, 8), _VALUES, _VALUES
    for a, b, c in combinations(range(1, _WORD), 3):
        # A code of a bits takes the place of 2^(c-a) codes of c bits. When each value
        # has a place, and `near` values have codes of a bits, `free` places are left;
        # as many further values as possible have codes of b bits.
        free = 2**c - _VALUES - near * (2 ** (c - a) - 1)
        middle = np.minimum(near + np.maximum(free, 0) // (2 ** (c - b) - 1), _VALUES)
        bits = c * before[-1] - (c - b) * before[middle] - (b - a) * before[near]
        at = int(np.argmin(np.where(free < 0, _IMPOSSIBLE, bits)))
        if free[at] >= 0:
            best = min(best, (int(bits[at]), (a, b, b, c), at, int(middle[at])))
    return best[1:]
