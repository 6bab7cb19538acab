"""GEMM micro-kernels of the DSP extension, in inline assembly."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import product

import numpy as np

from firmwright.base.dtypes import INT32, UINT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, inputs, pointers
from firmwright.schedules.asm_macros import (
    REGISTER_MACROS,
    define,
    operand_lines,
    repeat_macro,
    string_lines,
    wrap_assembly,
)
from firmwright.schedules.cortex_m_dsp.microkernel_assembly import (
    BYTES_8X1,
    COLUMN_MICROKERNELS,
    INT4_2X4,
    PAIRED_8X1,
    WIDE_2X4,
    DspMicrokernel,
)

_C = read_sections(__file__)

# A micro-kernel executes N steps. A step multiplies two taps for eight accumulators:
# `2x4` is two output channels times four pixels, and there are `4x2` and `8x1`. It
# reads one word of weights per channel pair and one word of columns (a pair of int16)
# per pixel. It needs all fourteen registers, so it is a single asm statement; compilers
# spill otherwise.
#
# gcc reloads asm operands into r0-r7 only, so more than eight reloaded operands are
# "impossible constraints". Pointers and temporaries therefore have fixed registers
# (r8-r12, lr), and gcc allocates only the eight accumulators. These are forced into
# registers before the statement, since loading one of them may not take a second
# register.
#
# Packings of the weights of a channel pair (a, a' of the even channel, b, b' of the odd
# one):
#
# - `wide`: int16, a word for each channel; 11 instructions for 16 products. `fresh` is
#   the same with accumulators that start at zero.
# - `mac`: bytes a, b, a', b', split by SXTB16 with and without rotation; 13
#   instructions for 16 products, only as 2x4.
# - `paired`: lanes 256 b + a and 256 b' + a', as int16:
#
#       bit  31          16 15           0
#           | 256 b' + a'  |  256 b + a   |    SXTB16 -> a', a;   the raw word serves b', b
#
#   The odd accumulator then holds 256 times the odd sum plus the even sum, and `extract_odd_sum`
#   subtracts the latter. 12 instructions for 16 products (15 as 8x1). It is exact modulo 2^32 if
#   each lane fits int16 (no b of -128 with a negative a) and the odd channel's sum, bias included,
#   fits 24 bits; the caller must prove both.
# - `bytes`: `paired` 8x1 over a column of plain int8. A step widens the word of four
#   taps itself: k0 and k2, then k1 and k3. 31 instructions for 32 products.
# - `int4`: bytes 16 b + a + 8 of four taps, in the order of `bytes`. SXTB16 extracts the operands
#   of the odd channel, and a mask those of the even one, which contain 8. The odd accumulator holds
#   16 times the odd sum plus the even one. `end` separates them, and adds to the even sums the word
#   after each column: -8 times its sum (`int4_shares`). 25 instructions for 32 products if float
#   registers hold the weights, else 26.

MAX_UNROLL = 32
"""Maximum number of steps; the code is then about 1.5 KB."""
INT4_STEPS_MAX = 16
"""Steps of `int4`, of four taps; their weights fill half of the float registers."""
SHORT_UNROLL = 8
"""The steps of loops that fit an instruction cache of 1 KB together with the store."""

_REPEATED_STEPS = 18
"""Maximum number of steps in an iteration of a loop."""
_LOOP_INSTRUCTIONS = 3
"""Instructions per iteration of a loop inside a micro-kernel, besides its steps."""


_ACCUMULATORS = tuple(f"c{i}" for i in range(8))
_RESULTS = "\n".join(f"{name} = sums[{i}];" for i, name in enumerate(_ACCUMULATORS))

_PIN_ACCUMULATORS = define(
    "PIN_ACCUMULATORS()",
    [f'    __asm__("" : "+r"({name}));' for name in _ACCUMULATORS[:-1]]
    + [f'    __asm__("" : "+r"({_ACCUMULATORS[-1]}))'],
)
_PIN_MACRO = f"""\
/* Force all accumulators into registers before the asm block; otherwise gcc can run out of
 * registers. */
{_PIN_ACCUMULATORS}"""

_POINTERS = """\
register const void *r11 FIXED_REGISTER("r11") = w;
register const void *r12 FIXED_REGISTER("r12") = x;"""

_TEMPORARIES = {"u": "r8", "v": "r9", "p": "r10", "q": "lr"}
"""Fixed registers of the temporaries; see the comment at the top."""


_NAMES = re.compile(r"\b(c[0-7]|[tuvpq])\b")
_ADDRESS = re.compile(r"\{([wx])([0-7])\}")


def _advancing(shape: DspMicrokernel, text: str) -> str:
    """Return `text` with addresses that advance to the word that is read next."""
    following = {"w": shape.words, "x": shape.column_words}
    for match in reversed(list(_ADDRESS.finditer(text))):
        array, word = match[1], int(match[2])
        offset = (
            f", #{4 * (following[array] - word)}" if following[array] > word else ""
        )
        text = f"{text[: match.start()]}[%[{array}]]{offset}{text[match.end() :]}"
        following[array] = word
    return text


@cache  # the assembly of a micro-kernel does not depend on its number of steps
def _step(shape: DspMicrokernel, text: str, multiply: str) -> list[str]:
    strides = {"w": 4 * shape.words, "x": 4 * shape.column_words}

    def address(match: re.Match[str]) -> str:
        array, word = match[1], int(match[2])
        offset = f"+{4 * word}" if word else ""
        return f'[%[{array}], #{strides[array]}*" #i "{offset}]'

    operations = []
    for operation in re.split(r"[;\n]", text.strip()):
        named = _NAMES.sub(r"%[\1]", operation.strip().replace("smlad", multiply))
        if multiply in named:
            sums = f", {named.split()[1].rstrip(',')}"
            named += sums if multiply == "smlad" else ""
        operations.append(_ADDRESS.sub(address, named).replace("{s}", 's" #i "'))
    return string_lines(operations)


def _statement(shape: DspMicrokernel, text: str, *, is_loop: bool = False) -> str:
    operands = set(_NAMES.findall(text))
    names = [name for name in _TEMPORARIES if name in operands]
    constraint = "=&r" if shape.is_fresh else "+r"
    outputs = [f'[{name}] "{constraint}"({name})' for name in _ACCUMULATORS]
    outputs += [f'[{name}] "=&r"({name})' for name in names]
    inputs_, clobbered, body = (
        '[w] "r"(r11), [x] "r"(r12)',
        '"memory"',
        ["    __asm__(steps"],
    )
    if is_loop:
        outputs += ['[w] "+r"(r11)', '[x] "+r"(r12)']
        inputs_, clobbered = '[end] "m"(end)', '"cc", "memory"'
        closing = ("ldr %[p], %[end]", "cmp %[x], %[p]", "bne 1b")
        body = ['    __asm__("1:\\n\\t" steps', *string_lines(closing)]
    if text == shape.fpu:
        outputs.append('[t] "+&r"(r11)')
        inputs_ = '[x] "r"(r12)'
        clobbered = ", ".join(f'"s{i}"' for i in range(INT4_STEPS_MAX)) + ', "memory"'
    first, *others = operand_lines(outputs)
    return define(
        f"{shape.macro}{'_LOOP' * is_loop}(steps)",
        [
            *(
                f'    register uint32_t {v} FIXED_REGISTER("{_TEMPORARIES[v]}");'
                for v in names
            ),
            *body,
            f"        : {first}",
            *(f"          {line}" for line in others),
            f"        : {inputs_}",
            *(
                f"        {line}"
                for line in wrap_assembly(": ", clobbered.split(", "), ")")
            ),
        ],
    )


def _int4_end(pair: str) -> str:
    """Return the macro that separates odd from even sums, and adds the shares after the
    columns.
    """
    odd = [f"sub %[c{i + 4}], %[c{i + 4}], %[c{i}]" for i in range(4)]
    first, second = (f"%[{name}]" for name in pair.split(", "))
    even = [
        line
        for half in (0, 2)
        for line in (
            f'ldrd {first}, {second}, [%[x], #" #at "+{4 * half}]',
            f"add %[c{half}], %[c{half}], {first}",
            f"add %[c{half + 1}], %[c{half + 1}], {second}",
        )
    ]
    return define("INT4_2X4_END(at)", string_lines(odd + even))


def _macros(shape: DspMicrokernel, *, is_loop: bool = False) -> str:
    """Return the step and statement macros of all forms; `fresh` shares the steps of
    `wide`.
    """
    forms = []
    for text in filter(None, (shape.narrow, shape.wide, "" if is_loop else shape.fpu)):
        addressed = _advancing(shape, text) if is_loop else text
        step = _step(shape, addressed, "smuad" if shape.is_fresh else "smlad")
        name = "START" if shape.is_fresh else "NEXT" if is_loop else "STEP"
        form = define(f"{shape.macro}_{name}(i)", step)
        form += "\n" + _statement(shape, text, is_loop=is_loop)
        if shape.fpu:
            form += "\n" + _int4_end("p, q" if "q" in _NAMES.findall(text) else "u, v")
            load = '"vldmia %[t], {s0-s" #last "}\\n\\t"' if text == shape.fpu else ""
            form = f"#define {shape.macro}_LOAD(last) {load}".rstrip() + f"\n{form}"
        forms.append(form)
    tile = f"{shape.channels} channels x {shape.pixels} pixels{', in a loop' * is_loop}"
    with_fpu = f"#elif defined(__ARM_FP)\n{forms[2]}\n" if shape.fpu else ""
    return f"""\
/* Micro-kernel of {tile}. The first form needs one register
 * less, for clang and for the loops of cores with Helium. */
#if defined(__clang__) || defined(__ARM_FEATURE_MVE)
{forms[0]}
{with_fpu}#else
{forms[1]}
#endif"""


def _definitions(
    shape: DspMicrokernel, steps: int, *, is_loop: bool = False
) -> tuple[str, ...]:
    shared = (_macros(WIDE_2X4),) if shape.is_fresh else (_PIN_MACRO,)
    return (
        REGISTER_MACROS,
        *shared,
        _macros(shape, is_loop=is_loop),
        repeat_macro(steps),
    )


def _body(shape: DspMicrokernel, steps: int) -> str:
    macro = shape.macro
    first = f"{macro}_START" if shape.is_fresh else f"{macro}_STEP"
    step = f"{WIDE_2X4.macro}_STEP" if shape.is_fresh else first
    pin = "" if shape.is_fresh else "PIN_ACCUMULATORS();\n"
    load = f"{macro}_LOAD({steps - 1}) " if shape.fpu else ""
    return f"{pin}{_POINTERS}\n{macro}({load}STEPS_{steps}({first}, {step}));"


def _loop(shape: DspMicrokernel, steps: int) -> Intrinsic:
    """Return a micro-kernel that repeats `steps` steps, for a number of steps given."""
    plain = _unrolled(shape, steps)
    w, x, *sums = plain.operands

    def run(w: Array, x: Array, count: Array, *sums: Array) -> tuple[Array, ...]:
        end = int(np.max(count))
        return tuple(
            plain.meaning(w[: end * shape.words], x[: end * shape.column_words], *sums)
        )

    next_, each = f"{shape.macro}_NEXT", shape.instructions * steps
    body = (
        "const void *end = x + "
        f"{_times(shape.column_words, 'steps')};\nPIN_ACCUMULATORS();\n{_POINTERS}\n{shape.macro}_LOOP(STEPS_{steps}({next_},"
        f" {next_}));"
    )
    return replace(
        plain,
        name=f"{shape.name}_loop_{steps}",
        operands=(
            *(
                replace(one, extent=one.extent // steps, times="steps")
                for one in (w, x)
            ),
            *inputs(INT32, "steps"),
            *sums,
        ),
        meaning=run,
        portable=plain.portable.replace(f"i < {steps};", "i < steps;"),
        doc=f"Repeats {plain.doc}",
        text={"gnu": body},
        definitions=_definitions(shape, steps, is_loop=True),
        count=lambda args: (
            (each + _LOOP_INSTRUCTIONS) * (args[2] // steps) + plain.instructions - each
        ),
    )


def signed_part(bits: Array, size: int) -> Array:
    shifted = np.asarray(bits, np.uint32) << np.uint32(32 - size)
    return (shifted.astype(np.int32) >> np.int32(32 - size)).astype(np.int64)


def _meaning(shape: DspMicrokernel) -> Callable[..., tuple[Array, ...]]:
    """Return the numpy meaning for w [words N, lanes], x [pixels N, lanes] and
    accumulators.
    """

    def run(w: Array, x: Array, *sums: Array) -> tuple[Array, ...]:
        words, columns = np.asarray(w, np.uint32), np.asarray(x, np.uint32)
        results = []
        for pair in range(shape.pairs):
            if shape.has_wide_weights:
                a, b = (
                    words[2 * pair :: shape.words],
                    words[2 * pair + 1 :: shape.words],
                )
                a0, a1 = signed_part(a, 16), signed_part(a >> np.uint32(16), 16)
                b0, b1 = signed_part(b, 16), signed_part(b >> np.uint32(16), 16)
            else:
                both = words[pair :: shape.words]
                a0, a1 = signed_part(both, 8), signed_part(both >> np.uint32(16), 8)
                size = 16 if shape.kind == "paired" else 8
                odd = both >> np.uint32(16 - size)
                b0, b1 = signed_part(odd, size), signed_part(odd >> np.uint32(16), size)
            for low_weight, high_weight in ((a0, a1), (b0, b1)):
                for pixel in range(shape.pixels):
                    column = columns[pixel :: shape.pixels]
                    low, high = (
                        signed_part(column, 16),
                        signed_part(column >> np.uint32(16), 16),
                    )
                    results.append((low_weight * low + high_weight * high).sum(axis=0))
        return tuple(
            (np.asarray(start, np.int64) + total).astype(np.uint32).astype(np.int32)
            for start, total in zip(sums or (0,) * len(results), results, strict=True)
        )

    return run


def _times(factor: int, name: str) -> str:
    return name if factor == 1 else f"{factor} * {name}"


def _portable(shape: DspMicrokernel, steps: int) -> str:
    lanes = ("(int16_t)({} & 0xffffu)", "(int16_t)({} >> 16)")
    low_bytes = ("(int8_t)({} & 0xffu)", "(int8_t)(({} >> 16) & 0xffu)")
    high_bytes = ("(int8_t)(({} >> 8) & 0xffu)", "(int8_t)({} >> 24)")
    words = shape.words // shape.pairs
    first = f"{_times(shape.words, 'i')} + {_times(words, 'pair')}"
    names = ("even_word", "odd_word")[:words] if words > 1 else ("word",)
    declared = [f"const uint32_t {names[0]} = w[{first}];"]
    declared += [f"const uint32_t {name} = w[{first} + 1];" for name in names[1:]]
    even = lanes if shape.has_wide_weights else low_bytes
    odd = high_bytes if shape.kind == "mac" else lanes
    return fill_text(
        _C["portable"],
        start="0" if shape.is_fresh else ", ".join(_ACCUMULATORS),
        steps=steps,
        pairs=shape.pairs,
        pixels=shape.pixels,
        words="\n".join(" " * 8 + x for x in declared),
        pair_sums=_times(2 * shape.pixels, "pair"),
        column=_times(shape.pixels, "i"),
        a0=even[0].format(names[0]),
        a1=even[1].format(names[0]),
        b0=odd[0].format(names[-1]),
        b1=odd[1].format(names[-1]),
        results=_RESULTS,
    )


def _intrinsic(shape: DspMicrokernel, steps: int) -> Intrinsic:
    packing = {"paired": ", paired channels", "fresh": ", starting at zero"}.get(
        shape.kind, ""
    )
    return Intrinsic(
        name=f"{shape.name}_{steps}",
        operands=(
            *pointers(UINT32, w=shape.words * steps, x=shape.column_words * steps),
            *(
                Operand(c, "out" if shape.is_fresh else "inout", INT32)
                for c in _ACCUMULATORS
            ),
        ),
        meaning=_meaning(shape),
        portable=_portable(shape, steps),
        doc=(
            f"{steps} steps of {shape.channels} channels x {shape.pixels} "
            f"pixels{packing}."
        ),
        requires="dsp",
        text={"gnu": _body(shape, steps)},
        definitions=_definitions(shape, steps),
        instructions=shape.instructions * steps,
    )


_BYTES_PORTABLE = "\n".join([_C["bytes_portable"], _RESULTS])


def _bytes_meaning(w: Array, x: Array, *sums: Array) -> tuple[Array, ...]:
    """Widen the bytes to columns and evaluate the paired micro-kernel."""
    words = np.asarray(x, np.uint32)
    halves = [
        (signed_part(words >> np.uint32(8 * half), 8) & 0xFFFF)
        | (signed_part(words >> np.uint32(8 * half + 16), 8) & 0xFFFF) << 16
        for half in (0, 1)
    ]
    columns = np.stack(halves, axis=1).reshape(-1, *words.shape[1:]).astype(np.uint32)
    return _meaning(PAIRED_8X1)(w, columns, *sums)


_SPILLED = 6
"""Spill instructions around `bytes`, which takes every register, including the
loop's.
"""


def _bytes_intrinsic(groups: int) -> Intrinsic:
    return replace(
        _intrinsic(BYTES_8X1, groups),
        operands=(
            *pointers(UINT32, w=BYTES_8X1.words * groups, x=groups),
            *(Operand(name, "inout", INT32) for name in _ACCUMULATORS),
        ),
        meaning=_bytes_meaning,
        portable=fill_text(_BYTES_PORTABLE, groups=groups),
        doc=(
            f"{4 * groups} taps of 8 channels x 1 pixel, paired channels, int8 columns."
        ),
        instructions=BYTES_8X1.instructions * groups + _SPILLED,
    )


def _int4_meaning(steps: int, w: Array, x: Array, *sums: Array) -> tuple[Array, ...]:
    """Unpack the weights to int16 and evaluate the wide micro-kernel."""
    words, columns = np.asarray(w, np.uint32), np.asarray(x, np.uint32)
    rows = []
    for half in (0, 1):
        low, high = (
            signed_part(words >> np.uint32(8 * half + 16 * lane), 8) for lane in (0, 1)
        )
        rows += [(low & 15) | (high & 15) << 16, (low & 0xFFFF) | (high & 0xFFFF) << 16]
    wide = np.stack(rows, axis=1).reshape(-1, *words.shape[1:]).astype(np.uint32)
    totals = _meaning(WIDE_2X4)(wide, columns[: 8 * steps], *sums)
    shares = columns[8 * steps :].astype(np.int64)
    if not len(shares):
        return totals
    even, odd = (np.stack(part).astype(np.int64) for part in (totals[:4], totals[4:]))
    return tuple(
        (np.concatenate([even + shares, odd - even])).astype(np.uint32).astype(np.int32)
    )


def _int4_intrinsic(steps: int, *, is_end: bool) -> Intrinsic:
    plain, shape = _intrinsic(INT4_2X4, steps), INT4_2X4
    portable, body = [_C["int4_portable"], _RESULTS], _body(shape, steps)
    if is_end:
        portable.insert(1, _C["int4_end_portable"])
        body = body.replace("));", f") INT4_2X4_END({32 * steps}));")
    return replace(
        plain,
        name=plain.name + "_end" * is_end,
        operands=(
            *pointers(UINT32, w=steps, x=8 * steps + 4 * is_end),
            *plain.operands[2:],
        ),
        meaning=partial(_int4_meaning, steps),
        portable=fill_text("\n".join(portable), steps=steps),
        doc=(
            f"{4 * steps} taps of 2 channels x 4 pixels, int4 "
            f"weights{', separated' * is_end}."
        ),
        text={"gnu": body},
        instructions=shape.instructions * steps + 1 + 10 * is_end,
    )


EXTRACT_ODD_SUM = Intrinsic(
    "extract_odd_sum",
    inputs(INT32, "odd", "even"),
    lambda odd, even: (
        (np.asarray(odd, np.int64) - np.asarray(even, np.int64))
        .astype(np.uint32)
        .astype(np.int32)
    ),
    portable="return (int32_t)((uint32_t)odd - (uint32_t)even);",
    doc=_C["extract_odd_sum_doc"],
    result=INT32,
)


def default_unroll(words: int, limit: int = MAX_UNROLL) -> int:
    """Return the steps per micro-kernel call: `words`, or a divisor if there are too
    many.
    """
    if words <= limit:
        return words
    return max(n for n in range(1, min(limit, _REPEATED_STEPS) + 1) if words % n == 0)


def alternative_unrolls(words: int) -> list[int]:
    default = default_unroll(words)
    candidates = {default_unroll(words, limit) for limit in (4, 8, 16, 24, MAX_UNROLL)}
    return sorted(candidates - {default}, reverse=True)


def _unrolled(shape: DspMicrokernel, steps: int) -> Intrinsic:
    return _bytes_intrinsic(steps) if shape == BYTES_8X1 else _intrinsic(shape, steps)


def _makers() -> Iterator[tuple[str, Callable[[], Intrinsic]]]:
    unrolled = [*product(COLUMN_MICROKERNELS, range(1, MAX_UNROLL + 1))]
    unrolled += product([BYTES_8X1], range(1, MAX_UNROLL // 2 + 1))
    for shape, steps in unrolled:
        yield f"{shape.name}_{steps}", partial(_unrolled, shape, steps)
        if steps <= _REPEATED_STEPS and not shape.has_wide_weights:
            yield f"{shape.name}_loop_{steps}", partial(_loop, shape, steps)
    for steps in range(1, INT4_STEPS_MAX + 1):
        name = f"{INT4_2X4.name}_{steps}"
        yield name, partial(_int4_intrinsic, steps, is_end=False)
        yield f"{name}_end", partial(_int4_intrinsic, steps, is_end=True)


INTRINSICS = (EXTRACT_ODD_SUM,)
INTRINSIC_MAKERS = dict(_makers())
