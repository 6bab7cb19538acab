"""Multiply-accumulate blocks of the DSP extension: statements with pointers, in inline assembly.

A block is N steps, and a step is two taps of eight accumulators: `2x4` two output channels times
four pixels, `4x2` four times two, `8x1` eight times one. It reads one word of weights for each
pair of channels and one word of columns (a pair of int16) for each pixel. A block needs all
fourteen registers, which is why it is one statement: a compiler left alone spills.

Registers are given out so that gcc always finds some. What it has to bring from memory for an
operand it puts into r0 to r7 alone, whatever the constraint allows: more than eight such operands
are "impossible constraints". So the pointers and temporaries have fixed registers, r8 to r12 and
lr, and only the eight accumulators are left to gcc. Each accumulator is a plain value when the
statement begins: loading one must not take a second register beside the other seven.

`wide` blocks have int16 weights, a word for the even channel and one for the odd: 11 instructions
for 16 products; `fresh` ones too, and their accumulators start at zero. There are two more
packings of the weights of a pair of channels (a, a' of the even one, b, b' of the odd one), both
int8-sized:

- `mac`: bytes a, b, a', b'; SXTB16 with and without rotation splits them. 13 instructions for 16
  products, in the form 2x4.
- `borrow`: lanes 256 b + a and 256 b' + a', as int16. SXTB16 gives a and a' exactly, and the raw
  word serves the odd channel, whose accumulator then holds 256 times the odd sum plus the even sum;
  `borrow_odd` takes their difference. 12 instructions for 16 products (15 in the form 8x1). All of
  it is exact modulo 2^32, so the caller must prove that each lane fits int16 (no b of -128 beside
  a negative a) and that the odd channel's sum, bias included, lies within 24 bits.

`bytes` is the form 8x1 of `borrow` over a column of plain int8: a step is four taps, whose word it
widens itself, first k0 and k2, then k1 and k3. 31 instructions for 32 products.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT32, UINT32
from firmwright.ir.tir.intrinsic import Intrinsic, Operand

MAX_UNROLL = 32
"""The longest block; its code is about 1.5 KB."""

_REPEATED_STEPS = 18
"""The longest block in a loop: what the loop costs is then below 3 %."""

_PORTABLE = """\
int32_t sums[8] = {{{start}}};
for (int32_t i = 0; i < {steps}; ++i) {{
    for (int32_t pair = 0; pair < {pairs}; ++pair) {{
        const uint32_t even_word = w[{first}];
        const uint32_t odd_word = w[{last}];
        const int32_t a0 = {a0};
        const int32_t a1 = {a1};
        const int32_t b0 = {b0};
        const int32_t b1 = {b1};
        int32_t *even = &sums[{pair_sums}];
        for (int32_t p = 0; p < {pixels}; ++p) {{
            const int32_t low = (int16_t)(x[{column} + p] & 0xffffu);
            const int32_t high = (int16_t)(x[{column} + p] >> 16);
            const uint32_t odd = (uint32_t)(b0 * low) + (uint32_t)(b1 * high);
            const uint32_t sum = (uint32_t)(a0 * low) + (uint32_t)(a1 * high);
            even[p] = (int32_t)((uint32_t)even[p] + sum);
            even[p + {pixels}] = (int32_t)((uint32_t)even[p + {pixels}] + odd);
        }}
    }}
}}
c0 = sums[0];
c1 = sums[1];
c2 = sums[2];
c3 = sums[3];
c4 = sums[4];
c5 = sums[5];
c6 = sums[6];
c7 = sums[7];"""

_STATEMENT = """\
{macro}
__asm__(
{uses}
    : [c0] "{sum}"(c0), [c1] "{sum}"(c1), [c2] "{sum}"(c2), [c3] "{sum}"(c3),
      [c4] "{sum}"(c4), [c5] "{sum}"(c5), [c6] "{sum}"(c6), [c7] "{sum}"(c7),
      {temporaries}
    : [w] "r"(r11), [x] "r"(r12)
    : "memory");
{undefined}"""

_SETTLED = "/* Sums first: gcc may have no register left to compute one with. */"

_FRAME = """\
#if defined(__clang__) /* finds registers, and keeps one for itself */
#define FIXED(name)
#else
#define FIXED(name) __asm__(name)
#endif
{settled}register const void *r11 FIXED("r11") = w;
register const void *r12 FIXED("r12") = x;
/* Loops on cores with Helium need a register too. */
#if defined(__clang__) || defined(__ARM_FEATURE_MVE)
{narrow}
#else
{wide}
#endif
#undef FIXED"""

_TEMPORARIES = {"u": "r8", "v": "r9", "p": "r10", "q": "lr"}
"""Where the temporaries live; see the module docstring."""


@dataclass(frozen=True, slots=True)
class _DspMicrokernel:
    """A block's form: its assembly, and a form that needs a register less.

    `{wN}` and `{xN}` stand for the address of the step's word N of weights and of columns. With
    `is_fresh` the accumulators start at zero, so that the first step multiplies with SMUAD.
    """

    kind: str
    pairs: int
    pixels: int
    wide: str
    narrow: str
    instructions: int
    is_fresh: bool = False

    @property
    def words(self) -> int:
        """Words of weights in a step."""
        return self.pairs * (2 if self.has_wide_weights or self.kind == "bytes" else 1)

    @property
    def has_wide_weights(self) -> bool:
        return self.kind in ("wide", "fresh")

    @property
    def name(self) -> str:
        return f"{self.kind}_{2 * self.pairs}x{self.pixels}"


_WIDE_2X4 = _DspMicrokernel("wide", 1, 4, """
ldrd u, v, {w0}; ldrd p, q, {x0}
smlad c0, u, p; smlad c4, v, p; smlad c1, u, q; smlad c5, v, q
ldrd p, q, {x2}
smlad c2, u, p; smlad c6, v, p; smlad c3, u, q; smlad c7, v, q""", """
ldrd u, v, {w0}; ldr p, {x0}; smlad c0, u, p; smlad c4, v, p
ldr p, {x1}; smlad c1, u, p; smlad c5, v, p
ldr p, {x2}; smlad c2, u, p; smlad c6, v, p
ldr p, {x3}; smlad c3, u, p; smlad c7, v, p""", 11)  # fmt: skip

_FRESH_2X4 = replace(_WIDE_2X4, kind="fresh", is_fresh=True)

_MAC_2X4 = _DspMicrokernel("mac", 1, 4, """
ldr v, {w0}; ldrd p, q, {x0}; sxtb16 u, v; sxtb16 v, v, ror #8
smlad c0, u, p; smlad c4, v, p; smlad c1, u, q; smlad c5, v, q
ldrd p, q, {x2}
smlad c2, u, p; smlad c6, v, p; smlad c3, u, q; smlad c7, v, q""", """
ldr v, {w0}; ldr p, {x0}; sxtb16 u, v; sxtb16 v, v, ror #8
smlad c0, u, p; smlad c4, v, p
ldr p, {x1}; smlad c1, u, p; smlad c5, v, p
ldr p, {x2}; smlad c2, u, p; smlad c6, v, p
ldr p, {x3}; smlad c3, u, p; smlad c7, v, p""", 13)  # fmt: skip

_BORROW_2X4 = _DspMicrokernel("borrow", 1, 4, """
ldr v, {w0}; ldrd p, q, {x0}; sxtb16 u, v
smlad c0, u, p; smlad c4, v, p; smlad c1, u, q; smlad c5, v, q
ldrd p, q, {x2}
smlad c2, u, p; smlad c6, v, p; smlad c3, u, q; smlad c7, v, q""", """
ldr v, {w0}; ldr p, {x0}; sxtb16 u, v
smlad c0, u, p; smlad c4, v, p
ldr p, {x1}; smlad c1, u, p; smlad c5, v, p
ldr p, {x2}; smlad c2, u, p; smlad c6, v, p
ldr p, {x3}; smlad c3, u, p; smlad c7, v, p""", 12)  # fmt: skip

_BORROW_4X2 = _DspMicrokernel("borrow", 2, 2, """
ldrd u, v, {w0}; ldrd p, q, {x0}
smlad c2, u, p; smlad c3, u, q; sxtb16 u, u; smlad c0, u, p; smlad c1, u, q
smlad c6, v, p; smlad c7, v, q; sxtb16 v, v; smlad c4, v, p; smlad c5, v, q""", """
ldrd u, v, {w0}; ldr p, {x0}; smlad c2, u, p; smlad c6, v, p
sxtb16 u, u; sxtb16 v, v; smlad c0, u, p; smlad c4, v, p
ldr p, {x1}; smlad c1, u, p; smlad c5, v, p
ldrd u, v, {w0}; smlad c3, u, p; smlad c7, v, p""", 12)  # fmt: skip

_BORROW_8X1 = _DspMicrokernel("borrow", 4, 1, """
ldr p, {x0}; ldrd u, v, {w0}
smlad c1, u, p; sxtb16 u, u; smlad c3, v, p; sxtb16 v, v; smlad c0, u, p; smlad c2, v, p
ldrd u, v, {w2}
smlad c5, u, p; sxtb16 u, u; smlad c7, v, p; sxtb16 v, v; smlad c4, u, p; smlad c6, v, p""", """
ldr p, {x0}
ldr u, {w0}; smlad c1, u, p; sxtb16 u, u; smlad c0, u, p
ldr u, {w1}; smlad c3, u, p; sxtb16 u, u; smlad c2, u, p
ldr u, {w2}; smlad c5, u, p; sxtb16 u, u; smlad c4, u, p
ldr u, {w3}; smlad c7, u, p; sxtb16 u, u; smlad c6, u, p""", 15)  # fmt: skip


_BYTES_8X1 = _DspMicrokernel("bytes", 4, 1, """
ldr p, {x0}; ldrd u, v, {w0}; sxtb16 q, p
smlad c1, u, q; sxtb16 u, u; smlad c3, v, q; sxtb16 v, v; smlad c0, u, q; smlad c2, v, q
ldrd u, v, {w2}; sxtb16 p, p, ror #8
smlad c5, u, q; sxtb16 u, u; smlad c7, v, q; sxtb16 v, v; smlad c4, u, q; smlad c6, v, q
ldrd u, v, {w4}
smlad c1, u, p; sxtb16 u, u; smlad c3, v, p; sxtb16 v, v; smlad c0, u, p; smlad c2, v, p
ldrd u, v, {w6}
smlad c5, u, p; sxtb16 u, u; smlad c7, v, p; sxtb16 v, v; smlad c4, u, p; smlad c6, v, p""", """
ldr p, {x0}; sxtb16 p, p
ldr u, {w0}; smlad c1, u, p; sxtb16 u, u; smlad c0, u, p
ldr u, {w1}; smlad c3, u, p; sxtb16 u, u; smlad c2, u, p
ldr u, {w2}; smlad c5, u, p; sxtb16 u, u; smlad c4, u, p
ldr u, {w3}; smlad c7, u, p; sxtb16 u, u; smlad c6, u, p
ldr p, {x0}; sxtb16 p, p, ror #8
ldr u, {w4}; smlad c1, u, p; sxtb16 u, u; smlad c0, u, p
ldr u, {w5}; smlad c3, u, p; sxtb16 u, u; smlad c2, u, p
ldr u, {w6}; smlad c5, u, p; sxtb16 u, u; smlad c4, u, p
ldr u, {w7}; smlad c7, u, p; sxtb16 u, u; smlad c6, u, p""", 31)  # fmt: skip


_NAMES = re.compile(r"\b(c[0-7]|[uvpq])\b")
_ADDRESS = re.compile(r"\{([wx])([0-7])\}")


@cache  # steps of one kind have the same operations, whatever their number
def _operation(text: str) -> str:
    """`smlad c0, u, p` or `ldr p, {x0}` as the text between two quotes of a macro's body."""
    named = _NAMES.sub(r"%[\1]", text)
    if text.startswith("smlad"):
        named += f", {named.split()[1].rstrip(',')}"
    return _ADDRESS.sub(r'[%[\1], #" #\1\2 "]', named)


def _macro(name: str, parameters: Sequence[str], operations: Sequence[str]) -> str:
    body = [f'    "{_operation(item)}\\n\\t"' for item in operations]
    return " \\\n".join([f"#define {name}({', '.join(parameters)})", *body])


def _assembly(shape: _DspMicrokernel, text: str, steps: int) -> str:
    """One step as a macro over its addresses, then its uses, four a line."""
    used = [f"{array}{i}" for array in "wx" for i in range(8) if f"{{{array}{i}}}" in text]
    operations = [part.strip() for line in text.split("\n") for part in line.split(";")]
    operations = [item for item in operations if item]
    strides = {"w": 4 * shape.words, "x": 4 * shape.pixels}
    uses = []
    for step in range(steps):
        places = [str(strides[name[0]] * step + 4 * int(name[1])) for name in used]
        uses.append(f"STEP({', '.join(places)})")
    macros = [_macro("STEP", used, operations)] if steps > 1 or not shape.is_fresh else []
    undefined = ["#undef STEP"] * len(macros)
    if shape.is_fresh:
        uses[0] = uses[0].replace("STEP", "START")
        starting = [item.replace("smlad", "smuad") for item in operations]
        macros.insert(0, _macro("START", used, starting))
        undefined.insert(0, "#undef START")
    used_names = set(_NAMES.findall(text))
    names = [name for name in _TEMPORARIES if name in used_names]
    declared = [f'register uint32_t {name} FIXED("{_TEMPORARIES[name]}");' for name in names]
    return _STATEMENT.format(
        macro="\n".join([*declared, *macros]),
        undefined="\n".join(undefined),
        uses="\n".join("    " + " ".join(uses[i : i + 4]) for i in range(0, steps, 4)),
        temporaries=", ".join(f'[{name}] "=&r"({name})' for name in names),
        sum="=&r" if shape.is_fresh else "+r",
    )


def _text(shape: _DspMicrokernel, steps: int) -> str:
    """Both forms; see `_FRAME`."""
    sums = [] if shape.is_fresh else [f"c{i}" for i in range(8)]
    settled = "\n".join(f'__asm__("" : "+r"({name}));' for name in sums)
    return _FRAME.format(
        settled=f"{_SETTLED}\n{settled}\n" if sums else "",
        narrow=_assembly(shape, shape.narrow, steps),
        wide=_assembly(shape, shape.wide, steps),
    )


def _signed(bits: Any, size: int) -> Any:
    """The low `size` bits of each uint32 as int64."""
    shifted = np.asarray(bits, np.uint32) << np.uint32(32 - size)
    return (shifted.astype(np.int32) >> np.int32(32 - size)).astype(np.int64)


def _meaning(shape: _DspMicrokernel) -> Callable[..., tuple[Any, ...]]:
    """w [words N, lanes], x [pixels N, lanes], accumulators if not fresh: the new ones."""

    def run(w: Any, x: Any, *sums: Any) -> tuple[Any, ...]:
        words, columns = np.asarray(w, np.uint32), np.asarray(x, np.uint32)
        results = []
        for pair in range(shape.pairs):
            if shape.has_wide_weights:
                a, b = words[2 * pair :: shape.words], words[2 * pair + 1 :: shape.words]
                a0, a1 = _signed(a, 16), _signed(a >> np.uint32(16), 16)
                b0, b1 = _signed(b, 16), _signed(b >> np.uint32(16), 16)
            else:
                both = words[pair :: shape.words]
                a0, a1 = _signed(both, 8), _signed(both >> np.uint32(16), 8)
                size = 16 if shape.kind == "borrow" else 8
                odd = both >> np.uint32(16 - size)
                b0, b1 = _signed(odd, size), _signed(odd >> np.uint32(16), size)
            for low_weight, high_weight in ((a0, a1), (b0, b1)):
                for pixel in range(shape.pixels):
                    column = columns[pixel :: shape.pixels]
                    low, high = _signed(column, 16), _signed(column >> np.uint32(16), 16)
                    results.append((low_weight * low + high_weight * high).sum(axis=0))
        return tuple(
            (np.asarray(start, np.int64) + total).astype(np.uint32).astype(np.int32)
            for start, total in zip(sums or (0,) * len(results), results, strict=True)
        )

    return run


def _times(factor: int, name: str) -> str:
    """A product as a person writes it."""
    return name if factor == 1 else f"{factor} * {name}"


def _block(shape: _DspMicrokernel, steps: int) -> Intrinsic:
    lanes = ("(int16_t)({} & 0xffffu)", "(int16_t)({} >> 16)")
    low_bytes = ("(int8_t)({} & 0xffu)", "(int8_t)(({} >> 16) & 0xffu)")
    high_bytes = ("(int8_t)(({} >> 8) & 0xffu)", "(int8_t)({} >> 24)")
    step = shape.words // shape.pairs
    first = f"{_times(shape.words, 'i')} + {_times(step, 'pair')}"
    a0, a1 = (text.format("even_word") for text in (lanes if shape.has_wide_weights else low_bytes))
    b0, b1 = (text.format("odd_word") for text in (high_bytes if shape.kind == "mac" else lanes))
    return Intrinsic(
        name=f"{shape.name}_{steps}",
        operands=(
            Operand("w", "ptr", UINT32, "r", shape.words * steps),
            Operand("x", "ptr", UINT32, "r", shape.pixels * steps),
            *(Operand(f"c{i}", "out" if shape.is_fresh else "inout", INT32) for i in range(8)),
        ),
        result=None,
        meaning=_meaning(shape),
        portable=_PORTABLE.format(
            start="0" if shape.is_fresh else "c0, c1, c2, c3, c4, c5, c6, c7",
            steps=steps,
            pairs=shape.pairs,
            pixels=shape.pixels,
            first=first,
            last=f"{first} + {step - 1}" if step > 1 else first,
            pair_sums=_times(2 * shape.pixels, "pair"),
            column=_times(shape.pixels, "i"),
            a0=a0,
            a1=a1,
            b0=b0,
            b1=b1,
        ),
        doc=f"{steps} steps of {2 * shape.pairs} channels times {shape.pixels} pixels"
        + {"borrow": ", odd channels borrowing.", "fresh": ", from zero."}.get(shape.kind, "."),
        requires="dsp",
        text={"gnu": _text(shape, steps)},
        clobbers=("memory",),
        instructions=shape.instructions * steps,
    )


_BYTES_PORTABLE = """\
int32_t sums[8] = {{c0, c1, c2, c3, c4, c5, c6, c7}};
for (int32_t i = 0; i < {groups}; ++i) {{
    for (int32_t half = 0; half < 2; ++half) {{
        const int32_t low = (int8_t)((x[i] >> (8 * half)) & 0xffu);
        const int32_t high = (int8_t)((x[i] >> (8 * half + 16)) & 0xffu);
        for (int32_t pair = 0; pair < 4; ++pair) {{
            const uint32_t word = w[8 * i + 4 * half + pair];
            const int32_t a0 = (int8_t)(word & 0xffu);
            const int32_t a1 = (int8_t)((word >> 16) & 0xffu);
            const int32_t b0 = (int16_t)(word & 0xffffu);
            const int32_t b1 = (int16_t)(word >> 16);
            const uint32_t even = (uint32_t)(a0 * low) + (uint32_t)(a1 * high);
            const uint32_t odd = (uint32_t)(b0 * low) + (uint32_t)(b1 * high);
            sums[2 * pair] = (int32_t)((uint32_t)sums[2 * pair] + even);
            sums[2 * pair + 1] = (int32_t)((uint32_t)sums[2 * pair + 1] + odd);
        }}
    }}
}}
""" + "\n".join(f"c{i} = sums[{i}];" for i in range(8))


def _bytes_meaning(w: Any, x: Any, *sums: Any) -> tuple[Any, ...]:
    """As of the columns that the bytes would be widened to."""
    words = np.asarray(x, np.uint32)
    halves = [
        (_signed(words >> np.uint32(8 * half), 8) & 0xFFFF)
        | (_signed(words >> np.uint32(8 * half + 16), 8) & 0xFFFF) << 16
        for half in (0, 1)
    ]
    columns = np.stack(halves, axis=1).reshape(-1, *words.shape[1:]).astype(np.uint32)
    return _meaning(_BORROW_8X1)(w, columns, *sums)


_SPILLED = 6
"""Instructions around a block of bytes: it takes every register, so the loop's own go to memory."""


def _bytes_block(groups: int) -> Intrinsic:
    return replace(
        _block(_BYTES_8X1, groups),
        operands=(
            Operand("w", "ptr", UINT32, "r", _BYTES_8X1.words * groups),
            Operand("x", "ptr", UINT32, "r", groups),
            *(Operand(f"c{i}", "inout", INT32) for i in range(8)),
        ),
        meaning=_bytes_meaning,
        portable=_BYTES_PORTABLE.format(groups=groups),
        doc=f"{4 * groups} taps of eight channels, odd ones borrowing, over plain bytes.",
        instructions=_BYTES_8X1.instructions * groups + _SPILLED,
    )


EXTRACT_ODD_SUM = Intrinsic(
    "borrow_odd",
    (Operand("odd", "in", INT32), Operand("even", "in", INT32)),
    INT32,
    lambda odd, even: (
        (np.asarray(odd, np.int64) - np.asarray(even, np.int64)).astype(np.uint32).astype(np.int32)
    ),
    portable="return (int32_t)((uint32_t)odd - (uint32_t)even);",
    doc="256 times the odd channel's sum: what a borrowing block left there, less the even sum.",
)


def default_unroll(words: int, most: int = MAX_UNROLL, repeated: int = _REPEATED_STEPS) -> int:
    """How many steps a block has for columns of `words`: all where they are few."""
    if words <= most:
        return words
    repeated = min(most, repeated)
    return max(steps for steps in range(1, repeated + 1) if words % steps == 0)


def alternative_unrolls(words: int) -> list[int]:
    """Lengths of block that a search may try: they give another block than the usual one."""
    usual = default_unroll(words)
    found = {default_unroll(words, most, most) for most in (4, 8, 16, 24, MAX_UNROLL)}
    return sorted(found - {usual}, reverse=True)


MICROKERNEL_INTRINSICS: Mapping[str, Intrinsic] = {
    item.name: item
    for item in (
        EXTRACT_ODD_SUM,
        *(
            _block(shape, steps)
            for shape in (_WIDE_2X4, _FRESH_2X4, _MAC_2X4, _BORROW_2X4, _BORROW_4X2, _BORROW_8X1)
            for steps in range(1, MAX_UNROLL + 1)
        ),
        *(_bytes_block(groups) for groups in range(1, MAX_UNROLL // 2 + 1)),
    )
}
