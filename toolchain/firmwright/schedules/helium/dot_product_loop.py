"""Dot products of int8 columns on Helium: loops, assembly and GEMM micro-kernels."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from textwrap import indent
from typing import Literal

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.base.rounding import round_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    IntrinsicMakers,
    Meaning,
    Operand,
    immediates,
    inputs,
    pointers,
)
from firmwright.ops.conv2d import weights_of
from firmwright.ops.requantize import has_weight_zero_point
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES, string_lines
from firmwright.schedules.helium import vector_requantize

_C = read_sections(__file__)

# VMLADAV adds the products of a vector into an even core register; there are eight of
# those. `head` steps are unrolled, a `deep` loop iterates over eight further steps, and
# `tail` is a predicated last step that reads no value after the column:
#
#     | head steps | deep: 8 steps per iteration ... | tail |

BYTES_PER_STEP = 16
STEPS_PER_ITERATION = 8
PAIR = ("x0", "x1")
"""The columns of two pixels."""
MAX_STEPS = 12

REGISTERS = ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr")
CLOBBERS = (
    '"r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr", "q0", "q1", "q2", "q3", "cc",'
    ' "memory"'
)

_ADVANCING = "], #16"


@dataclass(frozen=True, slots=True)
class WeightConfig(ScheduleConfig):
    """The configuration of a layer: how its weights are stored."""

    weights: Literal["int8", "int4"] = "int8"


@dataclass(frozen=True, slots=True)
class LaneFormat:
    """The element format of a column in a vector.

    `load` and `kind` are the suffixes of the column's loads and of the products, and
    `weights` is the whole mnemonic of the weights' loads. With `is_int4`, a byte holds
    the weights of two rows.
    """

    size_bytes: int
    load: str
    kind: str
    weights: str
    is_int4: bool = False

    @property
    def base(self) -> str:
        """Return the asm constraint of the weight pointer.

        Widening loads require one of r0 to r7.
        """
        return "r" if self.size_bytes == 1 else "l"

    def loading(self, *, cut: bool = False) -> str:
        return f"vldr{self.load[0]}{'t' if cut else ''}{self.load[1:]}"

    @property
    def predicate(self) -> str:
        return f"vctp.{8 * self.size_bytes} %[rest]"


INT8_LANES = LaneFormat(1, "b.8", "s8", "vldrb.8")
INT16_LANES = LaneFormat(2, "h.16", "s16", "vldrb.s16")
INT4_LANES = replace(INT8_LANES, is_int4=True)


def _step(
    columns: tuple[str, ...], lanes: LaneFormat, multiply: str, load: str, place: str
) -> list[str]:
    """Return a step: a vector of each column, times those of all weight rows."""
    count = len(columns)
    rows = len(REGISTERS) // count
    width = BYTES_PER_STEP // lanes.size_bytes
    lines = [f"{load} q{p}, [%[{name}]{place}" for p, name in enumerate(columns)]
    for row in range(rows):
        vector = count + (1 - row % 2 if lanes.is_int4 else row % (4 - count))
        if not lanes.is_int4:
            lines.append(f"{lanes.weights} q{vector}, [%[w]], #{width}")
        elif row % 2 == 0:
            lines.append(f"{lanes.weights} q{count}, [%[w]], #{width}")
            lines.append(f"vshl.i8 q{vector}, q{count}, #4")
        for p in range(count):
            total = REGISTERS[rows * p + row]
            lines.append(f"{multiply} {total}, q{p}, q{vector}")
    return lines


@dataclass(frozen=True, slots=True)
class DotProductLoop:
    """`head` unrolled steps, optionally a `deep` loop and a predicated `tail` step."""

    head: int
    deep: bool
    tail: bool

    @property
    def suffix(self) -> str:
        deep = "_deep" if self.deep else ""
        tail = "_tail" if self.tail else ""
        return f"{self.head}{deep}{tail}"

    @property
    def least_taps(self) -> int:
        return BYTES_PER_STEP * self.head + self.tail

    def lines(
        self, columns: tuple[str, ...], lanes: LaneFormat = INT8_LANES
    ) -> list[str]:
        """Return the assembly of the sums.

        Operand `rest` is the length of the tail, `count` the number of iterations.
        """
        plain = f"vmladav.{lanes.kind}"
        adding = f"vmladava.{lanes.kind}"
        load, cut = lanes.loading(), lanes.loading(cut=True)
        step = partial(_step, columns, lanes)
        lines: list[str] = []
        for index in range(self.head):
            lines += step(adding if index else plain, load, self._place(index))
        if self.deep:
            loop = step(adding, load, _ADVANCING) * STEPS_PER_ITERATION
            lines += ["1:", *loop, "subs %[count], #1", "bne 1b"]
        if self.tail:
            last = step(adding if self.head else plain, cut, self._place(self.head))
            loads = sum(cut in line for line in last)
            # Compilers have no common clobber name for the predicate register, so it is
            # restored.
            predicate = ["vmrs %[kept], p0", lanes.predicate, "vps" + "t" * loads]
            lines += [*predicate, *last, "vmsr p0, %[kept]"]
        if lanes.is_int4:
            sums = zip(REGISTERS[1::2], REGISTERS[::2], strict=True)
            lines += [f"sub {odd}, {odd}, {even}, asr #4" for odd, even in sums]
        for vector, first in (("first", 0), ("second", 4)):
            for lane in (0, 1):
                low = REGISTERS[first + lane]
                high = REGISTERS[first + lane + 2]
                target = f"%q[{vector}][{lane + 2}], %q[{vector}][{lane}]"
                lines.append(f"vmov {target}, {low}, {high}")
        if lanes.is_int4:
            for vector in ("first", "second"):
                lines.append(f"vshr.s32 %q[{vector}], %q[{vector}], #4")
        return lines

    @property
    def _advances(self) -> bool:
        """Return whether column pointers advance.

        They do in a loop, and if an offset exceeds 127 bytes.
        """
        return self.deep or self.head + self.tail > STEPS_PER_ITERATION

    def _place(self, index: int) -> str:
        """Return how the address in the load of unrolled step `index` ends."""
        return _ADVANCING if self._advances else f", #{BYTES_PER_STEP * index}]"

    def frame(self, columns: tuple[str, ...], lanes: LaneFormat = INT8_LANES) -> str:
        """Return C that leaves the sums in the vectors `first` and `second`."""
        body = "\n".join(string_lines(self.lines(columns, lanes)))
        moving = ("w", *columns) if self._advances else ("w",)
        declared = [f"const int8_t *at_{name} = {name};" for name in moving]
        outputs = []
        for name in moving:
            base = lanes.base if name == "w" else "r"
            outputs.append(f'[{name}] "+{base}"(at_{name})')
        inputs = []
        if self.deep:
            declared.append("int32_t count = (taps / 16 - 1) / 8;")
            outputs.append('[count] "+&r"(count)')
        if not self._advances:
            inputs += [f'[{name}] "r"({name})' for name in columns]
        if self.tail:
            declared.append("uint32_t kept;")
            outputs.append('[kept] "=&r"(kept)')
            values = "taps % 16"
            if lanes.size_bytes > 1:
                values += f" / {lanes.size_bytes}"
            inputs.append(f'[rest] "r"({values})')
        elif not self.deep:
            declared.append("(void)taps;")
        sums = '[first] "=w"(first), [second] "=w"(second)'
        text = [
            "int32x4_t first, second;",
            *declared,
            "__asm__ volatile(",
            body,
            f"    : {', '.join([sums, *outputs])}",
            f"    : {', '.join(inputs)}".rstrip(),
            f"    : {CLOBBERS});",
        ]
        return "\n".join(text)

    def instructions(
        self, columns: tuple[str, ...], taps: int, lanes: LaneFormat = INT8_LANES
    ) -> int:
        round_size = len(_step(columns, lanes, "", "", "")) * STEPS_PER_ITERATION + 2
        rounds = (taps // BYTES_PER_STEP - 1) // STEPS_PER_ITERATION if self.deep else 1
        return len(self.lines(columns, lanes)) + (rounds - 1) * round_size


def _all_loops() -> Iterator[DotProductLoop]:
    for head in range(MAX_STEPS + 1):
        if head:
            yield DotProductLoop(head, deep=False, tail=False)
        yield DotProductLoop(head, deep=False, tail=True)
    for head in range(1, STEPS_PER_ITERATION + 1):
        yield DotProductLoop(head, deep=True, tail=False)
        yield DotProductLoop(head, deep=True, tail=True)


DOT_PRODUCT_LOOPS = tuple(_all_loops())


def make_for_loops(
    names: str, make: Callable[[DotProductLoop, str], Intrinsic]
) -> IntrinsicMakers:
    """Return makers of the micro-kernels with every loop.

    `names` has {} in place of the loop's suffix.
    """
    makers = {}
    for loop in DOT_PRODUCT_LOOPS:
        name = names.format(loop.suffix)
        makers[name] = partial(make, loop, name)
    return makers


def choose_loop(taps: int) -> DotProductLoop:
    steps, tail = divmod(taps, BYTES_PER_STEP)
    deep = steps > MAX_STEPS
    head = (steps - 1) % STEPS_PER_ITERATION + 1 if deep else steps
    return DotProductLoop(head, deep, tail > 0)


def pad_tap_count(taps: int) -> int:
    return round_up(taps, BYTES_PER_STEP)


def pack_weight_rows(
    matrix: Array, starts: Sequence[int], rows: int, width: int = BYTES_PER_STEP
) -> Array:
    """Pack [row, tap] int8 as [block, step, row of block, `width` taps], zero-padded.

    Each block has `rows` rows, beginning at its entry in `starts`.
    """
    count, taps = matrix.shape
    padded = np.zeros((max(count, rows), round_up(taps, width)), np.int8)
    padded[:count, :taps] = matrix
    blocks = np.stack([padded[start : start + rows] for start in starts])
    steps = blocks.reshape(len(starts), rows, -1, width)
    return np.ascontiguousarray(steps.transpose(0, 2, 1, 3))


def pack_int4_rows(matrix: Array, starts: Sequence[int], rows: int) -> Array:
    """Pack [row, tap] as `pack_weight_rows` does, but two rows in each value.

    The values are 16 odd + even, in int16, so that the caller can see whether they fit
    a byte.
    """
    steps = pack_weight_rows(matrix, starts, rows).astype(np.int16)
    packed: Array = 16 * steps[:, :, 1::2] + steps[:, :, ::2]
    return packed


def int4_configs(
    op: OpCall, starts: Sequence[int], rows: int
) -> Sequence[WeightConfig]:
    """Return the configurations of a layer: weights of int8 and, if they fit, of int4.

    They do not fit if an odd weight is -8 next to a negative even one.
    """
    matrix = weights_of(op).reshape(op.input(1).shape[0], -1)
    if has_weight_zero_point(op) or matrix.min() < -8 or matrix.max() > 7:
        return (WeightConfig(),)
    if pack_int4_rows(matrix, starts, rows).min() < INT8.min:
        return (WeightConfig(),)
    return (WeightConfig(), WeightConfig("int4"))


# `mve_gemm_int8_LOOP` (dot_product_loop.py): a step reads sixteen values of two columns
# and sixteen weights of four channels, 14 instructions for 128 products. The sums are
# collected in two vectors of four channels, requantized (vector_requantize.py) and
# stored. `mve_gemm_shares_int8_LOOP` first adds a number to the sums of each column:
# the share of the weights' zero point.
#
# `mve_gemm_int4_LOOP` loads two vectors of bytes 16 odd + even, as bytes. Shifted left
# by four, a byte is 16 even; as it is, its sum is 16 times the odd sum plus the even
# one. Loads that are saved make up for the shifts.


_ADDED_SHARES = """\
first = vaddq_n_s32(first, share0);
second = vaddq_n_s32(second, share1);"""


def _text(loop: DotProductLoop, lanes: LaneFormat, *, has_shares: bool) -> str:
    parts = [loop.frame(PAIR, lanes)]
    if has_shares:
        parts.append(_ADDED_SHARES)
    parts.append(vector_requantize.PARAMETER_LOADS)
    parts.append(vector_requantize.requantize_assembly("first", "y0"))
    parts.append(vector_requantize.requantize_assembly("second", "y1"))
    return "\n".join(parts)


def unpack_weights(w: Array, rows: int, taps: int) -> Array:
    """Convert weights to int64 [row, tap, lanes].

    They are [step, row, sixteen] as one flat axis, and the lanes last.
    """
    weights = np.asarray(w, np.int64)
    tail = weights.shape[1:]
    steps = weights.reshape(-1, rows, BYTES_PER_STEP, *tail)
    return steps.swapaxes(0, 1).reshape(rows, -1, *tail)[:, :taps]


def unpack_int4_weights(w: Array, rows: int, taps: int) -> Array:
    """Convert int4 weights to int64 [row, tap, lanes]."""
    both = unpack_weights(w, rows // 2, taps)
    even = (both + 8) % 16 - 8
    return np.stack([even, (both - even) >> 4], axis=1).reshape(rows, *both.shape[1:])


def _meaning(
    unpack: Meaning,
    w: Array,
    x0: Array,
    x1: Array,
    q: Array,
    y0: Array,
    y1: Array,
    *rest: Array,
) -> tuple[Array, ...]:
    settings = rest[:_SETTINGS]
    shares = rest[_SETTINGS:-1] or (0, 0)
    taps = rest[-1]
    weights = unpack(w, vector_requantize.CHANNELS, taps)
    results = []
    for x, share in zip((x0, x1), shares, strict=True):
        products = weights * np.asarray(x, np.int64)[None, :taps]
        sums = products.sum(axis=1) + share
        results.append(vector_requantize.requantize_lanes(sums, q, settings))
    return tuple(results)


_SETTINGS = len(vector_requantize.EPILOGUE_OPERANDS)


def _product(
    loop: DotProductLoop, name: str, lanes: LaneFormat, *, has_shares: bool = False
) -> Intrinsic:
    shares = inputs(INT32, "share0", "share1") if has_shares else ()
    unpack = unpack_int4_weights if lanes.is_int4 else unpack_weights
    product = _C["int4_product" if lanes.is_int4 else "product"].rstrip()
    size = (loop.head + loop.tail) * BYTES_PER_STEP * (2 if lanes.is_int4 else 4)
    return Intrinsic(
        name=name,
        operands=(
            *pointers(INT8, w=size, x0=loop.least_taps, x1=loop.least_taps),
            *pointers(INT32, q=vector_requantize.PARAMETERS),
            *pointers(INT8, "w", y0=1, y1=1),
            *vector_requantize.EPILOGUE_OPERANDS,
            *shares,
            *immediates("taps"),
        ),
        meaning=partial(_meaning, unpack),
        portable=fill_text(
            _C["portable"],
            step=indent(vector_requantize.PORTABLE, " " * 8),
            product=product,
            share=" + (p == 0 ? share0 : share1)" if has_shares else "",
        ),
        doc="Four channels of two pixels: products over a column, requantised.",
        requires="mve",
        text={"gnu": _text(loop, lanes, has_shares=has_shares)},
        definitions=(KEEP_STORES,),
        count=lambda args: (
            loop.instructions(PAIR, args[-1], lanes)
            + 2 * (8 + (0, 2, 3, 1)[args[9]])
            + 8
            + len(shares)
        ),
    )


SUM = Intrinsic(
    name="mve_sum_int8",
    operands=(
        *pointers(INT8, x=1),
        *immediates("count"),
        Operand("total", "out", INT32),
    ),
    meaning=lambda x, count, *_: np.asarray(x, np.int64)[:count].sum(axis=0),
    portable="total = 0;\nfor (int32_t i = 0; i < count; ++i) {\n    total += x[i];\n}",
    doc="The sum of `count` values.",
    requires="mve",
    text={"gnu": _C["sum_text"]},
    count=lambda args: 6 + args[1] // 16 * 4,
)

INTRINSICS = (SUM,)
_SHARES = partial(_product, lanes=INT8_LANES, has_shares=True)
INTRINSIC_MAKERS = {
    **make_for_loops("mve_gemm_int8_{}", partial(_product, lanes=INT8_LANES)),
    **make_for_loops("mve_gemm_shares_int8_{}", _SHARES),
    **make_for_loops("mve_gemm_int4_{}", partial(_product, lanes=INT4_LANES)),
}
