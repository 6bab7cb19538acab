"""float32 GEMM micro-kernels in the registers of a single-precision FPU, or for cores without."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, inputs, pointers, read_intrinsics
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.kernel import Kernel
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
#
# `soft` needs no FPU: an integer loop rounds as the compiler's float routines do, but keeps the sum
# unpacked between the steps. It begins with 0 and computes one channel of one column.

MultiplyAddStyle = Literal["separate", "chained", "soft"]
STYLE_FEATURES: Mapping[MultiplyAddStyle, frozenset[str]] = {
    "separate": frozenset({"fpu"}),
    "chained": frozenset({"fpu", "vmla"}),
    "soft": frozenset({"mla"}),
}
"""Features that micro-kernels of each style require."""
STEPS_PER_ITERATION = 4
_REGISTERS = 32
_FIRST_FREE = 16
"""Sums occupy at most s0 to s15, allocated by the compiler."""
_MAX_PRODUCTS = 8
_LOADED_MAX = 12
"""Weights and columns in registers; at least four remain for products."""


@dataclass(frozen=True, slots=True)
class FpuTile:
    """Channels and pixels of a micro-kernel; at most sixteen sums."""

    lanes: int
    pixels: int

    @property
    def sums(self) -> int:
        return self.lanes * self.pixels

    @property
    def group(self) -> int:
        """The number of elements whose columns are loaded at once; room for products remains."""
        return next(n for n in (4, 2, 1) if self.lanes + self.pixels * n <= _LOADED_MAX)

    def steps(self, style: MultiplyAddStyle, count: int, *, starts: bool = False) -> list[str]:
        """Return the text for `count` elements; if it `starts`, for one that initializes sums."""
        lines, name = list[str](), "vmul" if starts else "vmla"
        w = _registers(_FIRST_FREE, self.lanes)
        for start in range(0, count, self.group):
            size = min(self.group, count - start)
            x = _registers(_FIRST_FREE + self.lanes, size * self.pixels)
            for step in range(size):
                lines += [_load("w", w), *([] if step else [_load("x", x)])]
                triples = [
                    (f"%[c{pixel * self.lanes + lane}]", w[lane], x[step * self.pixels + pixel])
                    for pixel in range(self.pixels)
                    for lane in range(self.lanes)
                ]
                if starts or style == "chained":
                    lines += [f"{name}.f32 {total}, {a}, {b}" for total, a, b in triples]
                else:
                    lines += _separate(triples, _REGISTERS - _FIRST_FREE - len(w) - len(x))
        return lines


def _separate(triples: Sequence[tuple[str, str, str]], free: int) -> list[str]:
    lines, room = list[str](), min(free, _MAX_PRODUCTS)
    for start in range(0, len(triples), room):
        batch = triples[start : start + room]
        temporaries = [f"s{_REGISTERS - 1 - place}" for place in range(len(batch))]
        for (_, a, b), product in zip(batch, temporaries, strict=True):
            lines.append(f"vmul.f32 {product}, {a}, {b}")
        for (total, _, _), product in zip(batch, temporaries, strict=True):
            lines.append(f"vadd.f32 {total}, {total}, {product}")
    return lines


def _registers(first: int, count: int) -> list[str]:
    return [f"s{first + place}" for place in range(count)]


SOFT_TILE = FpuTile(1, 1)
_SOFT_DOT = "soft_dot_f32"
_SOFT_STEP = 22
"""Instructions of an element: 39, or 13 of a zero; half are often zeros. They take 1.4 cycles, less
than the cost model assumes."""
FPU_TILES = tuple(FpuTile(*item) for item in ((4, 4), (4, 3), (8, 2), (4, 2), (8, 1), (4, 1)))
_REST_TILES = tuple(FpuTile(lanes, pixels) for lanes in (1, 2, 3) for pixels in (1, 2, 3, 4))


def microkernel_name(style: MultiplyAddStyle, tile: FpuTile, depth: int) -> str:
    rounds, rest = divmod(depth - 1, STEPS_PER_ITERATION)
    if style == "soft":
        return _SOFT_DOT
    return f"{style}_f32_{tile.lanes}x{tile.pixels}_{'deep_' if rounds else ''}{rest}"


def make_schedules(
    configs: Callable[[MultiplyAddStyle, OpCall], Sequence[Config]],
    build: Callable[[MultiplyAddStyle, OpCall, Config, Kernel], None],
    *ops: str,
) -> tuple[Schedule, ...]:
    """Return the schedules of every style for `ops`."""
    return tuple(
        Schedule(
            f"soft_float.{op}" if style == "soft" else f"fpu.{op}.{style}", op, requires,
            partial(configs, style), partial(build, style), disable_scheduling=True,
        )
        for style, requires in STYLE_FEATURES.items()
        for op in ops
    )  # fmt: skip


def _load(pointer: str, group: Sequence[str]) -> str:
    return f"vldmia %[{pointer}]!, {{{'-'.join(dict.fromkeys((group[0], group[-1])))}}}"


def _text(style: MultiplyAddStyle, tile: FpuTile, rest: int, *, deep: bool) -> str:
    lines = tile.steps(style, 1, starts=True)
    if deep:
        loop = tile.steps(style, STEPS_PER_ITERATION)
        lines += ["1:", *loop, "subs %[rounds], #1", "bne 1b"]
    lines += tile.steps(style, rest)
    outputs = [f'[c{i}] "=t"(c{i})' for i in range(tile.sums)]
    outputs += ['[w] "+r"(w)', '[x] "+r"(x)']
    counted = (
        [f"int32_t rounds = (steps - 1) / {STEPS_PER_ITERATION};"] if deep else ["(void)steps;"]
    )
    outputs += ['[rounds] "+r"(rounds)'] if deep else []
    clobbers = [f'"s{i}"' for i in range(_FIRST_FREE, _REGISTERS)]
    return "\n".join([
        *counted,
        "__asm__ volatile(",
        *string_lines(lines),
        *wrap_assembly("    : ", outputs),
        "    :",
        *wrap_assembly("    : ", [*clobbers, '"cc"', '"memory"'], ");"),
    ])  # fmt: skip


def _meaning(tile: FpuTile, w: Any, x: Any, steps: Any) -> tuple[Any, ...]:
    """Return one sum per register from w [steps * lanes, ...] and x [steps * pixels, ...]."""
    weights = np.asarray(w, np.float32)
    columns = np.asarray(x, np.float32)
    a = weights.reshape(-1, 1, tile.lanes, *weights.shape[1:])
    b = columns.reshape(-1, tile.pixels, 1, *columns.shape[1:])
    count = int(np.max(steps))
    with np.errstate(all="ignore"):
        sums = a[0] * b[0]
        for step in range(1, count):
            sums = sums + a[step] * b[step]
    return tuple(sums[i // tile.lanes, i % tile.lanes] for i in range(tile.sums))


def _instructions(style: MultiplyAddStyle, tile: FpuTile) -> Callable[[Sequence[int]], int]:
    start = len(tile.steps(style, 1, starts=True))
    loop, *rest = (len(tile.steps(style, count)) for count in (STEPS_PER_ITERATION, 0, 1, 2, 3))
    return lambda args: (
        start + (args[2] - 1) // STEPS_PER_ITERATION * (loop + 2)
        + rest[(args[2] - 1) % STEPS_PER_ITERATION]
    )  # fmt: skip


def _block(style: MultiplyAddStyle, tile: FpuTile, rest: int, *, deep: bool) -> Intrinsic:
    return Intrinsic(
        name=microkernel_name(style, tile, 1 + rest + STEPS_PER_ITERATION * deep),
        operands=(
            *pointers(FLOAT32, w=0, x=0),
            *inputs(INT32, "steps"),
            *(Operand(f"c{i}", "out", FLOAT32) for i in range(tile.sums)),
        ),
        meaning=partial(_meaning, tile),
        portable=fill_text(
            _C["portable"],
            sums=tile.sums,
            lanes=tile.lanes,
            pixels=tile.pixels,
            results="\n".join(f"c{i} = sums[{i}];" for i in range(tile.sums)),
        ),
        doc=f"Sums of products of {tile.lanes} channels times {tile.pixels} pixels.",
        requires="fpu",
        text={"gnu": _text(style, tile, rest, deep=deep)},
        instructions=_instructions(style, tile)((0, 0, 1 + rest + STEPS_PER_ITERATION * deep)),
        count=_instructions(style, tile),
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

_SOFT = Intrinsic(
    name=_SOFT_DOT,
    operands=(
        *pointers(FLOAT32, w=0, x=0), *inputs(INT32, "steps"), Operand("c0", "out", FLOAT32),
    ),
    meaning=lambda w, x, steps, *_: _meaning(SOFT_TILE, w, x, steps)[0] + np.float32(0),
    portable=_C["soft_dot"],
    doc="The sum of products of one channel and one column.",
    requires="mla",
    text={"gnu": _C["soft_dot_mla"]},
    count=lambda args: _SOFT_STEP * args[2],
)  # fmt: skip

_RELU = "fpu_relu_f32"
"""A relu in a core register, where the sign is a mask."""


def activated(value: ArithExpr, activation: str) -> ArithExpr:
    if activation == "relu":
        return call_intrinsic(_RELU, [value], FLOAT32)
    return apply_activation(value, activation)


INTRINSICS = (
    VMLA_F32,
    _SOFT,
    *read_intrinsics(__file__, {_RELU: lambda x: np.maximum(x, np.float32(0))}).values(),
    *(
        _block(style, tile, rest, deep=deep)
        for style in ("separate", "chained")
        for tile in FPU_TILES + _REST_TILES
        for rest in range(STEPS_PER_ITERATION)
        for deep in (False, True)
    ),
)
