"""Kernels that shift, copy and fill rows of streamed segments, or copy states."""

import numpy as np

from firmwright.base.dtypes import INT32, DType
from firmwright.ir import tir
from firmwright.ir.tir.builder import Builder
from firmwright.ops.intrinsics import COPY_8_WORDS

_UNROLLED = 4
"""Words that an iteration of a copy or fill handles."""


def shift_rows_kernel(
    dtype: DType, rows: int, row_elements: int, band: int, target: str
) -> tir.PrimFunc:
    """Build a kernel that shifts all rows by `band`, so that row `band` becomes row 0.

    The contents of the last rows are undefined afterwards.
    """
    name = f"slide_{rows}x{row_elements}_{dtype.name}"
    if band > 1:
        name += f"_by_{band}"
    b = Builder(name)
    buffer = b.buffer_param("kept", dtype, (rows * row_elements,), "inout", 4)
    _move(b, buffer, band * row_elements, buffer, (rows - band) * row_elements)
    comment = f"Shift the rows to make room for {band} more."
    return b.build(comment=comment, target=target)


def copy_row_kernel(dtype: DType, elements: int, target: str) -> tir.PrimFunc:
    """Build a kernel `y = x`; rows without whole words may be unaligned."""
    alignment = 4 if elements * dtype.size_bytes % 4 == 0 else 1
    b = _copy_builder("copy", dtype, elements, alignment)
    return b.build(comment="Copy one row.", target=target)


def copy_tensor_kernel(dtype: DType, elements: int, target: str) -> tir.PrimFunc:
    """Build a kernel `y = x` for tensors, which are aligned."""
    b = _copy_builder("keep", dtype, elements, 4)
    return b.build(comment="Copy a tensor to its state buffer.", target=target)


def _copy_builder(name: str, dtype: DType, elements: int, alignment: int) -> Builder:
    b = Builder(f"{name}_{elements}_{dtype.name}")
    x = b.buffer_param("x", dtype, (elements,), "in", alignment)
    y = b.buffer_param("y", dtype, (elements,), "out", alignment)
    _move(b, x, 0, y, elements)
    return b


def fill_kernel(dtype: DType, elements: int, value: float, target: str) -> tir.PrimFunc:
    """Build a kernel that sets all elements to `value`, by words if possible."""
    size_bytes = elements * dtype.size_bytes
    by_words = size_bytes % 4 == 0
    elements_of_word = np.full(4 // dtype.size_bytes, value, dtype.np)
    word = int(np.frombuffer(elements_of_word.tobytes(), "<i4")[0])
    b = Builder(f"fill_{elements}_{dtype.name}_{word & 0xFFFFFFFF:08x}")
    y = b.buffer_param("y", dtype, (elements,), "out", 4 if by_words else 1)
    if by_words:
        shape = [size_bytes // 4]
        w = b.view("words", y, 0, shape, dtype=INT32, access="w", alignment=4)
        with b.unrolled("i", size_bytes // 4, _UNROLLED) as i:
            b.store(w, [i], word)
    else:
        with b.for_("i", elements) as i:
            b.store(y, [i], value)
    return b.build(comment=f"Fill rows with {value:g}.", target=target)


def _move(b: Builder, x: tir.Buffer, start: int, y: tir.Buffer, elements: int) -> None:
    """Emit y[0..elements) = x[start..start + elements) in ascending order.

    Eight words are loaded before any is stored, so within one buffer the blocks must
    not overlap.
    """
    size = x.dtype.size_bytes
    if elements * size % 4 or start * size % 4:
        with b.for_("i", elements) as i:
            b.store(y, [i], b.load(x, [i + start]))
        return
    words = elements * size // 4
    source = b.view("from", x, start, [words], dtype=INT32, access="r", alignment=4)
    target = b.view("to", y, 0, [words], dtype=INT32, access="w", alignment=4)
    block = COPY_8_WORDS.operands[0].extent
    are_disjoint = x is not y or 4 * block <= start * size
    if words % block == 0 and are_disjoint:
        with b.for_("i", words // block) as i:
            to_block = b.pointer(target, i * block, block, "w")
            from_block = b.pointer(source, i * block, block)
            b.evaluate(COPY_8_WORDS.name, (to_block, from_block))
        return
    with b.unrolled("i", words, _UNROLLED) as word:
        b.store(target, [word], b.load(source, [word]))
