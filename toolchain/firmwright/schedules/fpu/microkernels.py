"""float32 GEMM micro-kernels: in the registers of an FPU, or for cores without one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Literal

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    Operand,
    immediates,
    inputs,
    pointers,
    read_intrinsics,
)
from firmwright.ops.requantize import apply_activation
from firmwright.schedules.asm_macros import string_lines, wrap_assembly

_C = read_sections(__file__)

# A micro-kernel multiplies `lanes` output channels by the windows of `pixels` adjacent
# pixels: sum[p, l] = x[0, p] * w[0, l] + x[1, p] * w[1, l] + ..., in this order and
# rounded after every product and sum, so the bits equal those of the default loops.
# Multiple loads read the weights of a few elements, and the same elements of each pixel
# in turn. A window is one run of elements, or several rows of them (`tall`).
#
# `separate` multiplies into a temporary and adds it a few instructions later, because a
# result is available one cycle late. `chained` uses VMLA, which also rounds in between;
# on the Cortex-M4 it takes three cycles where VMUL and VADD take two, so it requires
# the feature `vmla`.
#
# The first element initializes the sums. A row is an unrolled rest, then a loop over
# the other elements. Semantics: Armv7-M architecture reference manual.
#
# `soft` needs no FPU: an integer loop rounds as the compiler's float routines do, but
# keeps the sum unpacked between the steps. It begins with 0 and computes one channel of
# one column.

MultiplyAddStyle = Literal["separate", "chained", "soft"]
STYLE_FEATURES: Mapping[MultiplyAddStyle, frozenset[str]] = {
    "separate": frozenset({"fpu"}),
    "chained": frozenset({"fpu", "vmla"}),
    "soft": frozenset({"mla"}),
}
"""Features that micro-kernels of each style require."""
STEPS_PER_ITERATION = 6
_REGISTERS, _SUMS_MIN = 32, 8
"""Registers, and of these at least for sums; the others belong to a micro-kernel."""
_PRODUCTS_MIN, _PRODUCTS_MAX = 4, 8


@dataclass(frozen=True, slots=True)
class FpuTile:
    """Channels and pixels of a micro-kernel; at most sixteen sums."""

    lanes: int
    pixels: int

    @property
    def sums(self) -> int:
        return self.lanes * self.pixels

    @property
    def first_free(self) -> int:
        """The first register that is not one of the sums, allocated by the compiler."""
        return max(self.sums, _SUMS_MIN)

    @property
    def group(self) -> int:
        """The number of elements that are loaded at once."""
        room = _REGISTERS - self.first_free - _PRODUCTS_MIN
        return min(4, room // (self.lanes + 1))


@cache
def element_steps(
    tile: FpuTile, style: MultiplyAddStyle, count: int, *, starts: bool = False
) -> Sequence[str]:
    """Return the text for `count` elements; if it `starts`, the first sets the sums."""
    lines = list[str]()
    for start in range(0, count, tile.group):
        size = min(tile.group, count - start)
        w = _registers(tile.first_free, size * tile.lanes)
        x = _registers(tile.first_free + len(w), size)
        lines.append(_load("w", w))
        for pixel in range(tile.pixels):
            lines.append(_load(f"x{pixel}", x))
            sums = [f"%[c{pixel * tile.lanes + lane}]" for lane in range(tile.lanes)]
            triples: list[tuple[str, str, str]] = []
            for n, weight in enumerate(w):
                element, lane = divmod(n, tile.lanes)
                triples.append((sums[lane], weight, x[element]))
            fresh = tile.lanes if starts and start == 0 else 0
            lines += _instruction_lines("vmul", triples[:fresh])
            if style == "chained":
                lines += _instruction_lines("vmla", triples[fresh:])
            else:
                free = _REGISTERS - tile.first_free - len(w) - len(x)
                lines += _separate(triples[fresh:], min(free, _PRODUCTS_MAX))
    return lines


def _instruction_lines(
    name: str, operands: Iterable[tuple[str, str, str]]
) -> list[str]:
    return [f"{name}.f32 {to}, {a}, {b}" for to, a, b in operands]


def _separate(triples: Sequence[tuple[str, str, str]], room: int) -> list[str]:
    lines = list[str]()
    for start in range(0, len(triples), room):
        batch = triples[start : start + room]
        products = _registers(_REGISTERS - room, room)[::-1]
        additions: list[tuple[str, str, str]] = []
        for (total, a, b), register in zip(batch, products, strict=False):
            lines += _instruction_lines("vmul", [(register, a, b)])
            additions.append((total, total, register))
        lines += _instruction_lines("vadd", additions)
    return lines


def _registers(first: int, count: int) -> list[str]:
    return [f"s{first + place}" for place in range(count)]


SOFT_TILE = FpuTile(1, 1)
_SOFT_DOT = "soft_dot_f32"
_SOFT_STEP = 44
"""Instructions of an element, with its share of a call; 13 of a zero."""
FPU_TILES = tuple(FpuTile(*item) for item in ((4, 4), (4, 3), (4, 2), (8, 1), (4, 1)))
_REST_TILES = tuple(FpuTile(*item) for item in product((1, 2, 3), (1, 2, 3, 4)))


def microkernel_name(
    style: MultiplyAddStyle, tile: FpuTile, steps: int, *, tall: bool = False
) -> str:
    if style == "soft":
        return _SOFT_DOT
    rounds, rest = divmod(steps - 1, STEPS_PER_ITERATION)
    shape = "tall_" if tall else "deep_" if rounds else ""
    return f"{style}_f32_{tile.lanes}x{tile.pixels}_{shape}{rest}"


def schedule_name(style: MultiplyAddStyle, op: str) -> str:
    return f"soft_float.{op}" if style == "soft" else f"fpu.{op}.{style}"


def _load(pointer: str, group: Sequence[str]) -> str:
    ends = dict.fromkeys((group[0], group[-1]))  # one name for a group of one
    return f"vldmia %[{pointer}]!, {{{'-'.join(ends)}}}"


def _text(style: MultiplyAddStyle, tile: FpuTile, steps: int, *, tall: bool) -> str:
    others = range(1, tile.pixels)
    rounds, rest = divmod(steps - 1, STEPS_PER_ITERATION)
    counted = [f"const float *x{n};" for n in others] or ["(void)pitch;"]
    lines = [f"add %[x{n}], %[x{n - 1}], %[pitch]" for n in others]
    lines += element_steps(tile, style, 1 + rest, starts=True)
    outputs = [f'[c{i}] "=t"(c{i})' for i in range(tile.sums)]
    outputs += ['[w] "+r"(w)', '[x0] "+r"(x)']
    outputs += [f'[x{n}] "=&r"(x{n})' for n in others]
    inputs = ['[pitch] "rI"(4 * pitch)'] if others else []
    if tall:
        lines += ["b 3f", "2:"]
        lines += [f"add %[x{n}], %[jump]" for n in range(tile.pixels)]
        lines += [*element_steps(tile, style, 1 + rest), "3:"]
    if rounds:
        lines += ["mov %[rounds], %[turns]", "1:"]
        lines += element_steps(tile, style, STEPS_PER_ITERATION)
        lines += ["subs %[rounds], #1", "bne 1b"]
        outputs.append('[rounds] "=&r"(rounds)')
        inputs.append(f'[turns] "rI"((steps - 1) / {STEPS_PER_ITERATION})')
    if tall:
        lines += ["subs %[rows], #1", "bne 2b"]
        outputs.append('[rows] "+r"(rows)')
        inputs.append('[jump] "rI"(4 * jump)')
    registers = _registers(tile.first_free, _REGISTERS - tile.first_free)
    clobbers = [f'"{register}"' for register in registers]
    clobbers += ['"cc"', '"memory"']
    text = ["int32_t rounds;" if rounds else "(void)steps;", *counted]
    text += ["__asm__ volatile(", *string_lines(lines)]
    text += wrap_assembly("    : ", outputs)
    text += wrap_assembly("    : ", inputs)
    text += wrap_assembly("    : ", clobbers, ");")
    return "\n".join(text)


def _meaning(
    tile: FpuTile,
    w: Array,
    x: Array,
    steps: Array | int,
    pitch: Array | int,
    rows: Array | int = 1,
    jump: Array | int = 0,
) -> tuple[Array, ...]:
    """Return one sum per register.

    Weights w are [rows * steps * lanes, ...], and x is [elements, ...].
    """
    weights = np.asarray(w, np.float32)
    columns = np.asarray(x, np.float32)
    run, distance, count, gap = (int(np.max(n)) for n in (steps, pitch, rows, jump))
    starts = np.arange(count) * (run + gap)
    elements = np.add.outer(starts, np.arange(run)).ravel()
    a = weights.reshape(-1, 1, tile.lanes, *weights.shape[1:])
    places = np.add.outer(elements, np.arange(tile.pixels) * distance)
    b = columns[places][:, :, None]  # a, b: [element, pixel, lane, ...]
    with np.errstate(all="ignore"):
        sums = a[0] * b[0]
        for k in range(1, len(b)):
            sums = sums + a[k] * b[k]
    return tuple(sums[i // tile.lanes, i % tile.lanes] for i in range(tile.sums))


def _instructions(
    style: MultiplyAddStyle, tile: FpuTile, args: Sequence[int], *, tall: bool
) -> int:
    rounds, rest = divmod(args[2] - 1, STEPS_PER_ITERATION)
    first = len(element_steps(tile, style, 1 + rest, starts=True))
    again = len(element_steps(tile, style, 1 + rest)) + tile.pixels
    loop = len(element_steps(tile, style, STEPS_PER_ITERATION)) + 2
    rows = args[4] if tall else 1
    total = tile.pixels - 1 + first + (rows - 1) * again + rows * rounds * loop
    return total + rows * ((rounds > 0) + 2 * tall) + tall


def _block(
    style: MultiplyAddStyle, tile: FpuTile, steps: int, *, tall: bool
) -> Intrinsic:
    count = partial(_instructions, style, tile, tall=tall)
    numbers = ["steps", "pitch"]
    if tall:
        numbers += ["rows", "jump"]
    sums = [f"c{i}" for i in range(tile.sums)]
    results = [f"{name} = sums[{i}];" for i, name in enumerate(sums)]
    portable = fill_text(
        _C["portable"],
        sums=tile.sums,
        lanes=tile.lanes,
        pixels=tile.pixels,
        rows="rows" if tall else 1,
        row="(steps + jump)" if tall else "steps",
        results="\n".join(results),
    )
    return Intrinsic(
        name=microkernel_name(style, tile, steps, tall=tall),
        operands=(
            *pointers(FLOAT32, w=0, x=0),
            *inputs(INT32, *numbers),
            *(Operand(name, "out", FLOAT32) for name in sums),
        ),
        meaning=partial(_meaning, tile),
        portable=portable,
        doc=f"Sums of products of {tile.lanes} channels times {tile.pixels} pixels.",
        requires="fpu",
        text={"gnu": _text(style, tile, steps, tall=tall)},
        instructions=count((0, 0, steps, 0, 1, 0)),
        count=count,
    )


def _vmla(total: Array, a: Array, b: Array) -> Array:
    product = np.asarray(a, np.float32) * np.asarray(b, np.float32)
    return np.asarray(total, np.float32) + product


COPY_F32 = Intrinsic(
    name="copy_f32",
    operands=(
        *pointers(FLOAT32, "w", y=1),
        *pointers(FLOAT32, x=1),
        *immediates("count"),
    ),
    meaning=lambda y, x, count: np.asarray(x)[: int(count)],
    portable="for (int32_t i = 0; i < count; ++i) {\n    y[i] = x[i];\n}",
    doc="Copies `count` words that do not overlap.",
    requires="fpu",
    text={"gnu": _C["copy"]},
    count=lambda args: args[2] // 8 + 2,
)

_SOFT = Intrinsic(
    name=_SOFT_DOT,
    operands=(
        *pointers(FLOAT32, w=0, x=0),
        *inputs(INT32, "steps"),
        Operand("c0", "out", FLOAT32),
    ),
    meaning=lambda w, x, steps, *_: (
        _meaning(SOFT_TILE, w, x, steps, 0)[0] + np.float32(0)
    ),
    portable=_C["soft_dot"],
    doc="The sum of products of one channel and one column.",
    requires="mla",
    text={"gnu": _C["soft_dot_mla"]},
    count=lambda args: _SOFT_STEP * args[2],
)

_RELU = "fpu_relu_f32"
"""A relu in a core register, where the sign is a mask."""


def activated(value: ArithExpr, activation: str) -> ArithExpr:
    if activation == "relu":
        return call_intrinsic(_RELU, [value], FLOAT32)
    return apply_activation(value, activation)


INTRINSICS = (
    COPY_F32,
    _SOFT,
    *read_intrinsics(
        __file__, {_RELU: lambda x: np.maximum(x, np.float32(0)), "vmla_f32": _vmla}
    ).values(),
)


def _makers() -> Iterator[tuple[str, Callable[[], Intrinsic]]]:
    styles: tuple[MultiplyAddStyle, ...] = ("separate", "chained")
    steps_of_kinds = range(1, 2 * STEPS_PER_ITERATION + 1)
    for style, tile, steps in product(styles, FPU_TILES + _REST_TILES, steps_of_kinds):
        is_looped = tile.pixels > 1 and steps > STEPS_PER_ITERATION
        kinds = (False, True) if is_looped else (False,)
        for tall in kinds:
            name = microkernel_name(style, tile, steps, tall=tall)
            yield name, partial(_block, style, tile, steps, tall=tall)


INTRINSIC_MAKERS = dict(_makers())
