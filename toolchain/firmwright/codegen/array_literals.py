"""C literals of an array in aligned columns; numpy formats equal values once."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from firmwright.base.dtypes import FLOAT64, UINT32, DType
from firmwright.codegen.c_expr import float_digits, float_literal, format_unsigned
from firmwright.codegen.c_writer import INDENT_COLUMNS, LINE_COLUMNS
from firmwright.ir.core import Constant

_LINES_PER_BLOCK = 4096
_VALUES_PER_PART = 1 << 16
_HEX_COLUMNS = 11
_Literals = npt.NDArray[np.bytes_]


def format_rows(constant: Constant) -> Iterator[str]:
    """Yield blocks of lines, without the last line break."""
    dtype = constant.dtype
    values = np.frombuffer(constant.data, dtype.stored.np)
    starts = range(0, len(values), _VALUES_PER_PART)
    slices = (values[start : start + _VALUES_PER_PART] for start in starts)
    parts: Iterator[_Literals]
    if dtype == UINT32:
        width, parts = _HEX_COLUMNS, map(_format_words, slices)
    else:
        tables = [_literal_table(part, dtype) for part in slices]
        width = max((literals.itemsize for literals, _ in tables), default=0)
        parts = (np.char.rjust(literals, width)[places] for literals, places in tables)
    count = max(1, (LINE_COLUMNS - INDENT_COLUMNS) // (width + 2))
    step = count * _LINES_PER_BLOCK
    words = np.empty(min(step, len(values)), f"S{width or 1}")
    filled = 0
    for part in parts:
        while len(part):
            taken = part[: step - filled]
            words[filled : filled + len(taken)] = taken
            part, filled = part[len(taken) :], filled + len(taken)
            if filled == step:
                yield _format_lines(words, count)
                filled = 0
    if filled:
        yield from _format_rest(words[:filled], count)


def _format_rest(words: _Literals, count: int) -> Iterator[str]:
    whole = len(words) // count * count
    if whole:
        yield _format_lines(words[:whole], count)
    if whole < len(words):
        yield _format_lines(words[whole:], len(words) - whole)


def _format_lines(words: _Literals, count: int) -> str:
    #     columns   | indent | word , space | word , space | ... | word , newline |
    letters = words.view(np.uint8).reshape(-1, count, words.itemsize)
    columns = INDENT_COLUMNS + count * (words.itemsize + 2)
    lines = np.full((len(letters), columns), ord(" "), "u1")
    cells = lines[:, INDENT_COLUMNS:].reshape(len(lines), count, -1)
    cells[:, :, : words.itemsize] = letters
    cells[:, :, words.itemsize] = ord(",")
    lines[:, INDENT_COLUMNS:] = cells.reshape(len(lines), -1)
    lines[:, -1] = ord("\n")
    return lines.tobytes()[:-1].decode("ascii")


def _format_words(values: npt.NDArray[np.generic]) -> _Literals:
    text = values.astype(">u4").tobytes().hex().encode()
    words = np.empty((len(values), _HEX_COLUMNS), np.uint8)
    words[:, :2] = list(b"0x")
    words[:, 2:10] = np.frombuffer(text, np.uint8).reshape(-1, 8)
    words[:, 10] = ord("u")
    return words.reshape(-1).view(f"S{_HEX_COLUMNS}")


def _literal_table(
    values: npt.NDArray[np.generic], dtype: DType
) -> tuple[_Literals, npt.NDArray[np.uint16]]:
    """Return the distinct values' literals, and the position of each value's one."""
    present, places = np.unique(values.view(f"u{values.itemsize}"), return_inverse=True)
    literals = np.array(format_literals(present.view(values.dtype), dtype), "S")
    return literals, places.astype(np.uint16)


def format_literals(values: npt.NDArray[np.generic], dtype: DType) -> list[str]:
    items = values.tolist()
    if dtype.is_float:
        return [_float_initializer(value, dtype) for value in items]
    if dtype.bits == 64 and dtype.signed:
        return ["INT64_MIN" if v == dtype.min else f"INT64_C({v})" for v in items]
    if dtype.bits == 64:
        return [f"UINT64_C({format_unsigned(value, 16)})" for value in items]
    if dtype.bits == 32 and dtype.signed:
        return ["INT32_MIN" if v == dtype.min else str(v) for v in items]
    return [str(int(value)) for value in items]


def _float_initializer(value: float, dtype: DType) -> str:
    if not math.isfinite(value):
        return float_literal(value, dtype).text
    digits = f"{value:.17g}" if dtype == FLOAT64 else f"{value:.9g}"
    return float_digits(digits, dtype)
