"""float32 GEMM micro-kernels in the registers of a single-precision FPU."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal, TypeAlias

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, inputs, pointers, read_intrinsics
from firmwright.ops.requantize import apply_activation
from firmwright.schedules.asm_macros import string_lines, wrap_assembly

_C = read_sections(__file__)

# A micro-kernel multiplies `lanes` output channels by `pixels` columns: sum[p, l] = x[0, p] * w[0,
# l] + x[1, p] * w[1, l] + ..., in this order and rounded after every product and sum, so the bits
# equal those of the default loops. A multiple load reads the weights of an element, another
# one the columns of up to four elements.
#
# `separate` multiplies into a temporary and adds it a few instructions later, because a result is
# available one cycle late. `chained` uses VMLA, which also rounds in between; on the Cortex-M4 it
# takes three cycles where VMUL and VADD take two, so it requires the feature `vmla`.
#
# The first element initializes the sums, so a micro-kernel processes a whole column: the first
# element, a loop over `STEPS_PER_ITERATION` elements, and the unrolled rest. Semantics: Armv7-M
# architecture reference manual.

MultiplyAddStyle = Literal["separate", "chained"]
STYLE_FEATURES: Mapping[MultiplyAddStyle, frozenset[str]] = {
    "separate": frozenset({"fpu"}),
    "chained": frozenset({"fpu", "vmla"}),
}
"""Features that micro-kernels of each style require."""
_Products: TypeAlias = tuple[list[str], int, int, Sequence[str], Sequence[str]]
STEPS_PER_ITERATION = 4
_REGISTERS = 32
_SUMS_MIN = 8
"""Registers of sums, at least; the others belong to a micro-kernel."""
_PRODUCTS_MIN, _MAX_PRODUCTS = 4, 8


@dataclass(frozen=True, slots=True)
class FpuTile:
    """Channels and pixels of a micro-kernel; at most sixteen sums.

    Columns are packed as [depth, pixels]. With `direct`, they are windows in the input.
    """

    lanes: int
    pixels: int
    direct: bool = False

    @property
    def sums(self) -> int:
        return self.lanes * self.pixels

    @property
    def first_free(self) -> int:
        """The first register that is not one of the sums, allocated by the compiler."""
        return max(self.sums, _SUMS_MIN)

    @property
    def loads(self) -> tuple[int, int]:
        """How many elements a load of weights and one of columns read; products have room."""
        if self.direct:
            return 2, 2
        room = _REGISTERS - self.first_free - _PRODUCTS_MIN
        sizes = [
            (w, x)
            for w, x in product((1, 2, 4), repeat=2)
            if w * self.lanes + x * self.pixels <= room
        ]
        return min(sizes, key=lambda size: 1 / size[0] + 1 / size[1])

    def steps(self, style: MultiplyAddStyle, count: int, *, starts: bool = False) -> list[str]:
        """Return the text for `count` elements; if it `starts`, the first initializes sums."""
        lines, text = list[str](), self._by_pixel if self.direct else self._by_element
        per_w, per_x = self.loads
        loaded = per_w * self.lanes + per_x * (2 if self.direct else self.pixels)
        for loads, step, first, weights, columns in text(count):
            lines += loads
            triples = [
                (f"%[c{(first + pixel) * self.lanes + lane}]", weight, column)
                for pixel, column in enumerate(columns)
                for lane, weight in enumerate(weights)
            ]
            if (starts and step == 0) or style == "chained":
                name = "vmul" if starts and step == 0 else "vmla"
                lines += [f"{name}.f32 {total}, {a}, {b}" for total, a, b in triples]
            else:
                lines += _separate(triples, _REGISTERS - self.first_free - loaded)
        return lines

    def _by_element(self, count: int) -> Iterator[_Products]:
        """Yield the products of each element: loads, the element, first pixel, operands."""
        per_w, per_x = self.loads
        w = _registers(self.first_free, per_w * self.lanes)
        x = _registers(self.first_free + len(w), per_x * self.pixels)
        for step in range(count):
            at_w, at_x, rest, loads = step % per_w, step % per_x, count - step, list[str]()
            if not at_w:
                loads.append(_load("w", w[: rest * self.lanes]))
            if not at_x:
                loads.append(_load("x0", x[: rest * self.pixels]))
            weights, columns = w[at_w * self.lanes :], x[at_x * self.pixels :]
            yield loads, step, 0, weights[: self.lanes], columns[: self.pixels]

    def _by_pixel(self, count: int) -> Iterator[_Products]:
        for start, first in product(range(0, count, 2), range(0, self.pixels, 2)):
            size, pair = min(2, count - start), range(min(2, self.pixels - first))
            w = _registers(self.first_free, self.lanes * size)
            x = _registers(self.first_free + len(w), 2 * size)
            loads = [] if first else [_load("w", w)]
            loads += [_load(f"x{first + n}", x[n * size :][:size]) for n in pair]
            for step in range(size):
                weights = w[step * self.lanes :][: self.lanes]
                columns = x[step::size][: len(pair)]
                yield [] if step else loads, start + step, first, weights, columns


def _separate(triples: Sequence[tuple[str, str, str]], free: int) -> list[str]:
    lines, room = list[str](), min(free, _MAX_PRODUCTS)
    for start in range(0, len(triples), room):
        batch = triples[start : start + room]
        temporaries = [f"s{_REGISTERS - 1 - place}" for place in range(len(batch))]
        pairs = list(zip(batch, temporaries, strict=True))
        lines += [f"vmul.f32 {each}, {a}, {b}" for (_, a, b), each in pairs]
        lines += [f"vadd.f32 {total}, {total}, {each}" for (total, _, _), each in pairs]
    return lines


def _registers(first: int, count: int) -> list[str]:
    return [f"s{first + place}" for place in range(count)]


FPU_TILES = tuple(FpuTile(*item) for item in ((4, 4), (4, 3), (8, 2), (4, 2), (8, 1), (4, 1)))
DIRECT_TILES = tuple(FpuTile(4, pixels, direct=True) for pixels in (4, 3, 2))
DIRECT_MIN = STEPS_PER_ITERATION + 1
"""The least number of elements in a row of a window that is multiplied in place."""
_ALL_TILES = (
    *FPU_TILES,
    *(FpuTile(lanes, pixels) for lanes in (1, 2, 3) for pixels in (1, 2, 3, 4)),
    *(replace(tile, lanes=lanes) for lanes in (1, 2, 3, 4) for tile in DIRECT_TILES),
)


def microkernel_name(style: MultiplyAddStyle, tile: FpuTile, depth: int) -> str:
    rounds, rest = divmod(depth - 1, STEPS_PER_ITERATION)
    layout = "direct_" if tile.direct else "deep_" if rounds else ""
    return f"{style}_f32_{tile.lanes}x{tile.pixels}_{layout}{rest}"


def _load(pointer: str, group: Sequence[str]) -> str:
    return f"vldmia %[{pointer}]!, {{{'-'.join(dict.fromkeys((group[0], group[-1])))}}}"


def _text(style: MultiplyAddStyle, tile: FpuTile, rest: int, *, deep: bool) -> str:
    others = range(1, tile.pixels if tile.direct else 1)
    lines = [f"add %[x{n}], %[x{n - 1}], %[pitch]" for n in others]
    lines += tile.steps(style, 1 + rest, starts=True)
    if tile.direct:
        lines += ["b 3f", "2:", *(f"add %[x{n}], %[jump]" for n in range(tile.pixels))]
        lines += [*tile.steps(style, 1 + rest), "3:"]
    if deep:
        loop = tile.steps(style, STEPS_PER_ITERATION)
        lines += ["mov %[rounds], %[turns]", "1:", *loop, "subs %[rounds], #1", "bne 1b"]
    outputs = [f'[c{i}] "=t"(c{i})' for i in range(tile.sums)]
    outputs += ['[w] "+r"(w)', '[x0] "+r"(x)', *(f'[x{n}] "=&r"(x{n})' for n in others)]
    counted, inputs = ["int32_t rounds;"][: int(deep)] or ["(void)steps;"], list[str]()
    if deep:
        outputs, inputs = [*outputs, '[rounds] "=&r"(rounds)'], ['[turns] "rI"((steps - 1) / 4)']
    if tile.direct:
        lines += ["subs %[rows], #1", "bne 2b"]
        outputs += ['[rows] "+r"(rows)']
        inputs += ['[pitch] "rI"(4 * pitch)', '[jump] "rI"(4 * jump)']
        counted += [f"const float *x{n};" for n in others]
    clobbers = [f'"s{i}"' for i in range(tile.first_free, _REGISTERS)]
    return "\n".join([
        *counted,
        "__asm__ volatile(",
        *string_lines(lines),
        *wrap_assembly("    : ", outputs),
        *(wrap_assembly("    : ", inputs) if inputs else ["    :"]),
        *wrap_assembly("    : ", [*clobbers, '"cc"', '"memory"'], ");"),
    ])  # fmt: skip


def _meaning(
    tile: FpuTile, w: Any, x: Any, steps: Any, pitch: Any = 1, rows: Any = 1, jump: Any = 0
) -> tuple[Any, ...]:
    """Return one sum per register from w [rows * steps * lanes, ...] and x [elements, ...]."""
    weights = np.asarray(w, np.float32)
    columns = np.asarray(x, np.float32)
    a = weights.reshape(-1, 1, tile.lanes, *weights.shape[1:])
    step, distance, count, gap = (int(np.max(n)) for n in (steps, pitch, rows, jump))
    starts = np.add.outer(np.arange(count) * (step + gap), np.arange(step)).ravel()
    pixels = np.arange(tile.pixels)
    where = (
        starts[:, None] + pixels * distance
        if tile.direct
        else np.add.outer(starts * tile.pixels, pixels)
    )
    b = columns[where][:, :, None]
    with np.errstate(all="ignore"):
        sums = a[0] * b[0]
        for k in range(1, len(b)):
            sums = sums + a[k] * b[k]
    return tuple(sums[i // tile.lanes, i % tile.lanes] for i in range(tile.sums))


def _instructions(style: MultiplyAddStyle, tile: FpuTile) -> Callable[[Sequence[int]], int]:
    counts = range(1, 1 + STEPS_PER_ITERATION)
    first = [len(tile.steps(style, count, starts=True)) for count in counts]
    *again, loop = (len(tile.steps(style, count)) + 2 for count in (*counts, STEPS_PER_ITERATION))

    def count(args: Sequence[int]) -> int:
        rounds, rest = divmod(args[2] - 1, STEPS_PER_ITERATION)
        rows = args[4] if tile.direct else 1
        total = first[rest] + (rows - 1) * (again[rest] + tile.pixels) + rows * rounds * loop
        return total + bool(rounds) + tile.direct * (tile.pixels + 1 + rows)

    return count


def _block(style: MultiplyAddStyle, tile: FpuTile, rest: int, *, deep: bool) -> Intrinsic:
    steps = 1 + rest + STEPS_PER_ITERATION * deep
    return Intrinsic(
        name=microkernel_name(style, tile, steps),
        operands=(
            *pointers(FLOAT32, w=0, x=0),
            *inputs(INT32, "steps", *(["pitch", "rows", "jump"] if tile.direct else [])),
            *(Operand(f"c{i}", "out", FLOAT32) for i in range(tile.sums)),
        ),
        meaning=partial(_meaning, tile),
        portable=fill_text(
            _C["direct" if tile.direct else "portable"],
            sums=tile.sums,
            lanes=tile.lanes,
            pixels=tile.pixels,
            results="\n".join(f"c{i} = sums[{i}];" for i in range(tile.sums)),
        ),
        doc=f"Sums of products of {tile.lanes} channels times {tile.pixels} pixels.",
        requires="fpu",
        text={"gnu": _text(style, tile, rest, deep=deep)},
        instructions=_instructions(style, tile)((0, 0, steps, 0, 1, 0)),
        count=_instructions(style, tile),
    )


COPIED_MAX = 16
"""Words that `copy_f32_N` copies at most."""


def _copy(count: int) -> Intrinsic:
    words = "-".join(dict.fromkeys(("s16", f"s{15 + count}")))
    return Intrinsic(
        f"copy_f32_{count}",
        (*pointers(FLOAT32, "w", y=count), *pointers(FLOAT32, x=count)),
        meaning=lambda y, x: x,
        portable=f"for (int32_t i = 0; i < {count}; ++i) {{\n    y[i] = x[i];\n}}",
        doc=f"Copies {count} words that do not overlap.",
        requires="fpu",
        text={"gnu": fill_text(_C["copy"], words=words)},
        instructions=2,
    )


def _vmla(total: Any, a: Any, b: Any) -> Any:
    product = np.asarray(a, np.float32) * np.asarray(b, np.float32)
    return np.asarray(total, np.float32) + product


VMLA_F32 = Intrinsic(
    name="vmla_f32",
    operands=inputs(FLOAT32, "total", "a", "b"),
    result=FLOAT32,
    meaning=_vmla,
    portable="return total + a * b;",
    doc="total + a * b, rounded after the product and after the sum.",
    requires="fpu",
    text={
        "gnu": """\
__asm__("vmla.f32 %0, %1, %2" : "+t"(total) : "t"(a), "t"(b));
return total;"""
    },
)

_RELU = "fpu_relu_f32"
"""A relu in a core register, where the sign is a mask."""


def activated(value: ArithExpr, activation: str) -> ArithExpr:
    if activation == "relu":
        return call_intrinsic(_RELU, [value], FLOAT32)
    return apply_activation(value, activation)


INTRINSICS = (
    VMLA_F32,
    *map(_copy, range(1, COPIED_MAX + 1)),
    *read_intrinsics(__file__, {_RELU: lambda x: np.maximum(x, np.float32(0))}).values(),
    *(
        _block(style, tile, rest, deep=deep)
        for style in STYLE_FEATURES
        for tile in _ALL_TILES
        for rest in range(STEPS_PER_ITERATION)
        for deep in (True, *([] if tile.direct else [False]))
    ),
)
