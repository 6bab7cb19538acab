"""C literals of arrays."""

import numpy as np
import pytest

from firmwright.base.dtypes import DTYPES, DType
from firmwright.codegen.array_literals import format_literals, format_rows
from firmwright.ir.core import Constant

ARRAYS = tuple(dtype for dtype in DTYPES if dtype.is_int or dtype.is_float)


def plain_rows(constant: Constant) -> list[str]:
    """Format value by value: 96 columns, each word with a comma and a blank."""
    values = constant.array().reshape(-1)
    words = format_literals(values, constant.dtype)
    if constant.dtype.name == "uint32":
        words = [f"0x{value:08x}u" for value in values.tolist()]
    width = max(map(len, words))
    count = max(1, 96 // (width + 2))
    lines = [words[start : start + count] for start in range(0, len(words), count)]
    return [
        " " * 4 + ", ".join(word.rjust(width) for word in line) + "," for line in lines
    ]


@pytest.mark.parametrize("dtype", ARRAYS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("count", [1, 24, 1000, 70_001])
def test_rows_equal_those_formatted_value_by_value(dtype: DType, count: int) -> None:
    rng = np.random.default_rng(count)
    if dtype.is_float:
        values = (rng.normal(size=count) * 10.0 ** rng.integers(-9, 9, count)).astype(
            dtype.np
        )
        values[0], values[-1] = np.nan, -np.inf
    else:
        values = rng.integers(
            dtype.min, dtype.max, count, dtype=dtype.np, endpoint=True
        )
        values[-1] = dtype.min
    constant = Constant.from_array("c", values, dtype)
    assert "\n".join(format_rows(constant)).split("\n") == plain_rows(constant)


def test_columns_are_as_wide_as_the_longest_word_of_the_array() -> None:
    constant = Constant.from_array("c", np.array([1, 2, 3], np.int8), DTYPES[0])
    assert list(format_rows(constant)) == ["    1, 2, 3,"]
