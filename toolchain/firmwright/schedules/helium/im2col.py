"""im2col packing for Helium, with the copies, fills and gathers of int8 runs for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT16, Array
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    Meaning,
    Operand,
    OperandKind,
    immediates,
    pointers,
)
from firmwright.kernels.mve.dot_products import BYTES_PER_STEP
from firmwright.kernels.mve.moves import COPY, FILL, GATHER, VectorMove
from firmwright.kernels.mve.weight_layout import padded_taps
from firmwright.ops.conv_window import ConvWindow
from firmwright.ops.kernel import Kernel
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.row_band import RowMoves

VECTOR_BYTES = COPY.lanes
MAX_UNROLLED_VECTORS = 8
GATHER_LANES = GATHER.lanes


def copy_bytes(
    b: Kernel,
    target: tir.Buffer,
    at: ArithExpr | int,
    source: tir.Buffer,
    start: ArithExpr,
    count: int,
) -> None:
    for first, vectors, last in _pieces(b, count):
        elements = VECTOR_BYTES * (vectors - 1) + last
        y = b.pointer(target, at + first, elements, "w")
        x = b.pointer(source, start + first, elements)
        b.evaluate(f"mve_copy_{vectors}", [y, x, last])


def fill_bytes(
    b: Kernel,
    target: tir.Buffer,
    at: ArithExpr | int,
    value: ArithExpr | int,
    count: int,
) -> None:
    name = "mve_fill" if isinstance(value, int) else "mve_fill_by"
    for first, vectors, last in _pieces(b, count):
        y = b.pointer(target, at + first, VECTOR_BYTES * (vectors - 1) + last, "w")
        b.evaluate(f"{name}_{vectors}", [y, value, last])


def gather_bytes(
    b: Kernel,
    target: tir.Buffer,
    at: ArithExpr | int,
    source: tir.Buffer,
    start: ArithExpr,
    reach: int,
    offsets: tir.Buffer,
    count: int,
) -> None:
    for first in range(0, count, MAX_UNROLLED_VECTORS * GATHER_LANES):
        elements = min(MAX_UNROLLED_VECTORS * GATHER_LANES, count - first)
        vectors = divide_up(elements, GATHER_LANES)
        y = b.pointer(target, at + first, elements, "w")
        x = b.pointer(source, start, reach)
        places = b.pointer(offsets, first, vectors * GATHER_LANES)
        last = (elements - 1) % GATHER_LANES + 1
        b.evaluate(f"mve_gather_{vectors}", [y, x, places, last])


def _pieces(b: Kernel, count: int) -> Iterator[tuple[ArithExpr | int, int, int]]:
    """Yield each piece as its first element, vectors, elements of the last vector.

    The whole pieces of a long run are one, in a loop.
    """
    max_bytes, done = MAX_UNROLLED_VECTORS * VECTOR_BYTES, 0
    if count > 2 * max_bytes:
        whole = count // max_bytes
        done = whole * max_bytes
        with b.for_("piece", whole) as i:
            yield i * max_bytes, MAX_UNROLLED_VECTORS, VECTOR_BYTES
    for first in range(done, count, max_bytes):
        size = min(max_bytes, count - first)
        last = (size - 1) % VECTOR_BYTES + 1
        yield first, divide_up(size, VECTOR_BYTES), last


def _move(
    name: str,
    move: VectorMove,
    verb: str,
    vectors: int,
    sources: tuple[Operand, ...],
    element: str,
    meaning: Meaning,
    before: str = "",
) -> Intrinsic:
    """Return an intrinsic that moves `vectors`; y[i] becomes the C `element`.

    The last vector has `last` bytes.
    """
    count = move.lanes * (vectors - 1)
    end = f"{count} + last" if count else "last"
    return Intrinsic(
        f"mve_{name}_{vectors}",
        (*pointers(INT8, "w", y=count + 1), *sources, *immediates("last")),
        meaning,
        f"for (int32_t i = 0; i < {end}; ++i) {{\n    y[i] = {element};\n}}",
        f"{verb} {end} bytes; last is 1 to {move.lanes}.",
        requires="mve",
        text={"gnu": before + move.text(vectors)},
        definitions=(KEEP_STORES,),
        instructions=len(move.program(1).body) * vectors + 2 + bool(before),
    )


def _copy(vectors: int) -> Intrinsic:
    count = VECTOR_BYTES * (vectors - 1)
    return _move(
        "copy",
        COPY,
        "Copies",
        vectors,
        pointers(INT8, x=count + 1),
        "x[i]",
        lambda y, x, last: np.asarray(x)[: count + last],
    )


def _fill(vectors: int, kind: OperandKind = "imm") -> Intrinsic:
    count = VECTOR_BYTES * (vectors - 1)

    def meaning(y: Array, value: Array, last: Array) -> Array:
        zeros = np.zeros_like(np.asarray(y)[: count + last])
        return zeros + np.asarray(value).astype(np.int8)

    return _move(
        "fill" if kind == "imm" else "fill_by",
        FILL,
        "Fills",
        vectors,
        (Operand("value", kind, INT32),),
        "(int8_t)value",
        meaning,
        before="const int8x16_t filled = vdupq_n_s8((int8_t)value);\n",
    )


def _gather(vectors: int) -> Intrinsic:
    count = GATHER_LANES * (vectors - 1)

    def meaning(y: Array, x: Array, offsets: Array, last: Array) -> Array:
        index = np.asarray(offsets)[: count + last].astype(np.int64)
        values = np.asarray(x)
        places = np.broadcast_to(index, (len(index), *values.shape[1:]))
        return np.take_along_axis(values, places, 0)

    sources = (*pointers(INT8, x=1), *pointers(UINT16, offsets=count + GATHER_LANES))
    return _move(
        "gather",
        GATHER,
        "Collects",
        vectors,
        sources,
        "x[offsets[i]]",
        meaning,
    )


INTRINSICS = tuple(
    make(vectors)
    for make in (_copy, _fill, partial(_fill, kind="in"), _gather)
    for vectors in range(1, MAX_UNROLLED_VECTORS + 1)
)


# If a window row is shorter than a vector, the window is gathered through a table of
# offsets, eight values at a time; longer rows are copied.

_OFFSETS = 65535


@dataclass(frozen=True, slots=True)
class VectorIm2colPacker:
    """Packs windows from `source`, with rows `pitch` elements apart."""

    window: ConvWindow
    channels: int
    source: tir.Buffer
    pitch: int
    row_step: int
    offsets: tir.Buffer | None

    @property
    def taps(self) -> int:
        """Return the values of a column; gathered ones are padded to whole steps."""
        exact = self.window.size[0] * self.window.size[1] * self.channels
        return exact if self.offsets is None else padded_taps(exact)

    def pack(
        self, b: Kernel, columns: tir.Buffer, place: ArithExpr | int, start: ArithExpr
    ) -> None:
        height, width = self.window.size
        if self.offsets is not None:
            reach = _reach(self.window, self.channels, self.pitch, self.row_step)
            gather_bytes(
                b=b,
                target=columns,
                at=place,
                source=self.source,
                start=start,
                reach=int(reach.max()) + 1,
                offsets=self.offsets,
                count=self.taps,
            )
            return
        whole = self.window.dilation[1] == 1
        run = (width if whole else 1) * self.channels
        down = self.row_step * self.pitch
        right = self.window.dilation[1] * self.channels
        for ky in range(height):
            for kx in range(1 if whole else width):
                at = ky * down + kx * right
                to = (ky * width + kx) * self.channels
                copy_bytes(b, columns, place + to, self.source, start + at, run)


def _reach(window: ConvWindow, channels: int, pitch: int, row_step: int) -> Array:
    """Return the offsets of a window's values from its first one."""
    ky = np.arange(window.size[0])[:, None, None] * row_step * pitch
    kx = np.arange(window.size[1])[:, None] * window.dilation[1] * channels
    offsets: Array = (ky + kx + np.arange(channels)).reshape(-1)
    return offsets


def make_im2col_packer(
    b: Kernel,
    window: ConvWindow,
    channels: int,
    source: tir.Buffer,
    pitch: int,
    row_step: int,
) -> VectorIm2colPacker:
    """Build a packer that gathers short rows, if offsets fit 16 bits, or copies."""
    width = window.size[1] if window.dilation[1] == 1 else 1
    reach = _reach(window, channels, pitch, row_step)
    offsets = None
    if width * channels < VECTOR_BYTES and reach.max() <= _OFFSETS:
        padding = np.zeros(-len(reach) % BYTES_PER_STEP, np.int64)
        padded = np.concatenate([reach, padding])
        offsets = b.constant("offsets", padded, UINT16)
    return VectorIm2colPacker(window, channels, source, pitch, row_step, offsets)


ROW_MOVES = RowMoves(copy_bytes, fill_bytes)
