"""The kernels that move rows: make room for one, fill some, take one in.
Those that keep a tensor for the next run are here too.

Each works on whole words where the sizes allow it. Their names say all that they depend on, so two
segments that need the same one share it.
"""

from __future__ import annotations

import numpy as np

from firmwright.base.dtypes import INT32, DType
from firmwright.ir import tir
from firmwright.ir.tir.builder import Builder

_UNROLLED = 4


def shift_rows_kernel(
    dtype: DType, rows: int, row_elements: int, band: int, target: str
) -> tir.PrimFunc:
    """Rows `band`.. of `kept` become rows 0..; what the last ones hold then does not matter."""
    b = Builder(f"slide_{rows}x{row_elements}_{dtype.name}" + (f"_by_{band}" if band > 1 else ""))
    kept = b.buffer_param("kept", dtype, (rows * row_elements,), "inout", 4)
    _move(b, kept, band * row_elements, kept, (rows - band) * row_elements)
    return b.build(comment=f"Moves the rows up: room for {band} more.", target=target)


def copy_row_kernel(dtype: DType, elements: int, target: str) -> tir.PrimFunc:
    """`y` = `x`; rows of a number of bytes that is no multiple of 4 may lie anywhere."""
    alignment = 4 if elements * dtype.size_bytes % 4 == 0 else 1
    b = Builder(f"copy_{elements}_{dtype.name}")
    x = b.buffer_param("x", dtype, (elements,), "in", alignment)
    y = b.buffer_param("y", dtype, (elements,), "out", alignment)
    _move(b, x, 0, y, elements)
    return b.build(comment="Takes in a row.", target=target)


def copy_tensor_kernel(dtype: DType, elements: int, target: str) -> tir.PrimFunc:
    """`y` = `x`, whole buffers that begin at words."""
    b = Builder(f"keep_{elements}_{dtype.name}")
    x = b.buffer_param("x", dtype, (elements,), "in", 4)
    y = b.buffer_param("y", dtype, (elements,), "out", 4)
    _move(b, x, 0, y, elements)
    return b.build(comment="Copies a tensor to where it is kept.", target=target)


def fill_kernel(dtype: DType, elements: int, value: float, target: str) -> tir.PrimFunc:
    """Every element of `y` becomes `value`."""
    size_bytes = elements * dtype.size_bytes
    by_words = size_bytes % 4 == 0
    word = int(np.frombuffer(np.full(4 // dtype.size_bytes, value, dtype.np).tobytes(), "<i4")[0])
    b = Builder(f"fill_{elements}_{dtype.name}_{word & 0xFFFFFFFF:08x}")
    y = b.buffer_param("y", dtype, (elements,), "out", 4 if by_words else 1)
    if by_words:
        with (
            b.view("words", y, 0, [size_bytes // 4], dtype=INT32, access="w", alignment=4) as w,
            b.for_("i", size_bytes // 4) as i,
        ):
            b.store(w, [i], word)
    else:
        with b.for_("i", elements) as i:
            b.store(y, [i], value)
    return b.build(comment=f"Rows of {value:g}.", target=target)


def _move(b: Builder, x: tir.Buffer, start: int, y: tir.Buffer, elements: int) -> None:
    """y[0..elements) = x[start..start + elements), first to last."""
    size = x.dtype.size_bytes
    if elements * size % 4 or start * size % 4:
        with b.for_("i", elements) as i:
            b.store(y, [i], b.load(x, [i + start]))
        return
    words = elements * size // 4
    with (
        b.view("from", x, start, [words], dtype=INT32, access="r", alignment=4) as source,
        b.view("to", y, 0, [words], dtype=INT32, access="w", alignment=4) as target,
    ):
        step = _UNROLLED if words % _UNROLLED == 0 else 1
        with b.for_("i", words // step) as i, b.for_("k", step, kind="unrolled") as k:
            at = i * step + k
            b.store(target, [at], b.load(source, [at]))
