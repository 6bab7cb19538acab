"""C macros around the assembly of the GEMM micro-kernels of the DSP extension."""

import re
from functools import cache

from firmwright.schedules.asm_macros import (
    REGISTER_MACROS,
    define,
    operand_lines,
    repeat_macro,
    string_lines,
    wrap_assembly,
)
from firmwright.schedules.cortex_m_dsp.microkernel_assembly import (
    WIDE_2X4,
    DspMicrokernel,
)

# gcc reloads asm operands into r0-r7 only, so more than eight reloaded operands are
# "impossible constraints". Pointers and temporaries therefore have fixed registers
# (r8-r12, lr), and gcc allocates only the eight accumulators. These are forced into
# registers before the statement, since loading one of them may not take a second
# register.

INT4_STEPS_MAX = 16
"""Steps of `int4`, of four taps; their weights fill half of the float registers."""

ACCUMULATORS = tuple(f"c{i}" for i in range(8))

_PINS = [f'    __asm__("" : "+r"({name}));' for name in ACCUMULATORS]
_PINS[-1] = _PINS[-1].removesuffix(";")
_PIN_ACCUMULATORS = define("PIN_ACCUMULATORS()", _PINS)
_PIN_MACRO = f"""\
/* Force all accumulators into registers before the asm block; otherwise gcc can run out of
 * registers. */
{_PIN_ACCUMULATORS}"""  # noqa: E501

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
        advance = following[array] - word
        address = f"[%[{array}]]"
        if advance > 0:
            address += f", #{4 * advance}"
        text = text[: match.start()] + address + text[match.end() :]
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
        if multiply == "smlad" and multiply in named:
            named += f", {named.split()[1].rstrip(',')}"  # the sum is also an operand
        operations.append(_ADDRESS.sub(address, named).replace("{s}", 's" #i "'))
    return string_lines(operations)


def _statement(shape: DspMicrokernel, text: str, *, is_loop: bool = False) -> str:
    operands = set(_NAMES.findall(text))
    names = [name for name in _TEMPORARIES if name in operands]
    constraint = "=&r" if shape.is_fresh else "+r"
    outputs = [f'[{name}] "{constraint}"({name})' for name in ACCUMULATORS]
    outputs += [f'[{name}] "=&r"({name})' for name in names]
    inputs = '[w] "r"(r11), [x] "r"(r12)'
    clobbered = ['"memory"']
    body = ["    __asm__(steps"]
    if is_loop:
        outputs += ['[w] "+r"(r11)', '[x] "+r"(r12)']
        inputs = '[end] "m"(end)'
        clobbered = ['"cc"', '"memory"']
        closing = ("ldr %[p], %[end]", "cmp %[x], %[p]", "bne 1b")
        body = ['    __asm__("1:\\n\\t" steps', *string_lines(closing)]
    if text == shape.fpu:
        outputs.append('[t] "+&r"(r11)')
        inputs = '[x] "r"(r12)'
        clobbered = [f'"s{i}"' for i in range(INT4_STEPS_MAX)]
        clobbered.append('"memory"')
    lines: list[str] = []
    for name in names:
        register = _TEMPORARIES[name]
        lines.append(f'    register uint32_t {name} FIXED_REGISTER("{register}");')
    first, *others = operand_lines(outputs)
    lines += [*body, f"        : {first}"]
    lines += [f"          {line}" for line in others]
    lines.append(f"        : {inputs}")
    lines += [f"        {line}" for line in wrap_assembly(": ", clobbered, ")")]
    head = f"{shape.macro}_LOOP(steps)" if is_loop else f"{shape.macro}(steps)"
    return define(head, lines)


def _int4_end(pair: str) -> str:
    """Return the macro that separates odd from even sums, and then adds the shares.

    These follow the columns. `pair` names the temporaries for them.
    """
    operations = [f"sub %[c{i + 4}], %[c{i + 4}], %[c{i}]" for i in range(4)]
    first, second = (f"%[{name}]" for name in pair.split(", "))
    for half in (0, 2):
        operations += [
            f'ldrd {first}, {second}, [%[x], #" #at "+{4 * half}]',
            f"add %[c{half}], %[c{half}], {first}",
            f"add %[c{half + 1}], %[c{half + 1}], {second}",
        ]
    return define("INT4_2X4_END(at)", string_lines(operations))


def _macros(shape: DspMicrokernel, *, is_loop: bool = False) -> str:
    """Return the macros of steps and statements; `fresh` shares the steps of `wide`."""
    forms = []
    texts = [shape.narrow, shape.wide]
    if shape.fpu and not is_loop:
        texts.append(shape.fpu)
    for text in texts:
        addressed = _advancing(shape, text) if is_loop else text
        step = _step(shape, addressed, "smuad" if shape.is_fresh else "smlad")
        name = "NEXT" if is_loop else "STEP"
        if shape.is_fresh:
            name = "START"
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


def macro_definitions(
    shape: DspMicrokernel, steps: int, *, is_loop: bool = False
) -> tuple[str, ...]:
    shared = (_macros(WIDE_2X4),) if shape.is_fresh else (_PIN_MACRO,)
    return (
        REGISTER_MACROS,
        *shared,
        _macros(shape, is_loop=is_loop),
        repeat_macro(steps),
    )


def assembly_body(shape: DspMicrokernel, steps: int) -> str:
    macro = shape.macro
    first = f"{macro}_START" if shape.is_fresh else f"{macro}_STEP"
    step = f"{WIDE_2X4.macro}_STEP" if shape.is_fresh else first
    pin = "" if shape.is_fresh else "PIN_ACCUMULATORS();\n"
    load = f"{macro}_LOAD({steps - 1}) " if shape.fpu else ""
    return f"{pin}{_POINTERS}\n{macro}({load}STEPS_{steps}({first}, {step}));"


def loop_body(shape: DspMicrokernel, steps: int) -> str:
    macro, size = shape.macro, shape.column_words
    extent = "steps" if size == 1 else f"{size} * steps"
    each = f"{macro}_NEXT"
    return f"""\
const void *end = x + {extent};
PIN_ACCUMULATORS();
{_POINTERS}
{macro}_LOOP(STEPS_{steps}({each}, {each}));"""
