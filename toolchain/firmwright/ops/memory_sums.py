"""Intrinsics of hardened code: sums of bytes, and the end of a run if sums differ."""

from collections.abc import Mapping

import numpy as np

from firmwright.base.dtypes import UINT8, UINT32, Array
from firmwright.base.errors import InternalError
from firmwright.base.text_sections import read_sections
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    inputs,
    pointers,
    read_intrinsics,
)

BLOCK_WORDS = 8
_TEXT = read_sections(__file__)


def add_bytes(total: Array, word: Array) -> Array:
    """Return the total plus the four bytes of each word, modulo 2^32."""
    rest = np.asarray(word, np.uint64)
    total = np.asarray(total, np.uint64)
    for shift in (0, 8, 16, 24):
        total = total + (rest >> np.uint64(shift) & np.uint64(0xFF))
    result: Array = (total & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return result


def _add_memory(total: Array, memory: Array) -> Array:
    for element in memory:
        total = add_bytes(total, element)
    return total


def _add_words(name: str, count: int, instructions: int) -> Intrinsic:
    asm = _TEXT.get(f"{name}_dsp", "")
    return Intrinsic(
        name=name,
        operands=(*inputs(UINT32, "total"), *pointers(UINT32, words=count)),
        meaning=_add_memory,
        portable=_TEXT["add_memory_word"].replace("COUNT", str(count)),
        doc="Adds the bytes of words in memory, which it reads in any case.",
        result=UINT32,
        requires="dsp" if asm else "",
        text={"gnu": asm} if asm else {},
        calls=("add_bytes",),
        instructions=instructions,
    )


ADD_MEMORY_8_WORDS = _add_words("add_memory_8_words", BLOCK_WORDS, 10)
ADD_MEMORY_WORD = _add_words("add_memory_word", 1, 5)
ADD_MEMORY_BYTE = Intrinsic(
    name="add_memory_byte",
    operands=(*inputs(UINT32, "total"), *pointers(UINT8, bytes=1)),
    meaning=_add_memory,
    portable=_TEXT["add_memory_byte"],
    doc="Adds a byte in memory, which it reads in any case.",
    result=UINT32,
    instructions=4,
)


def _require_equal(found: Array, expected: Array) -> None:
    if np.any(found != expected):
        what = f"memory has changed during a run: {found} is not {expected}"
        raise InternalError(what)


REQUIRE_EQUAL = Intrinsic(
    name="require_equal",
    operands=inputs(UINT32, "found", "expected"),
    meaning=_require_equal,
    portable="#error only the AOT main compares sums",
    doc="Ends the run with an error if two sums differ.",
)

MEMORY_SUM_INTRINSICS: Mapping[str, Intrinsic] = {
    **read_intrinsics(__file__, {"add_bytes": add_bytes}),
    **{
        item.name: item
        for item in (
            ADD_MEMORY_8_WORDS,
            ADD_MEMORY_WORD,
            ADD_MEMORY_BYTE,
            REQUIRE_EQUAL,
        )
    },
}
