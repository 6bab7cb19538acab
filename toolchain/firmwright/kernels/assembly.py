r"""Programs as inline assembly of Arm cores, in C macros that kernels share.

The assembly of one repetition is a macro of its index, so that micro-kernels that
differ only in their number of steps share it:

    #define MAC_2X4_STEP(i) "ldr %[u], [%[w], #4*" #i "]\n\t" ...

gcc reloads asm operands into r0 to r7 only, so more than eight reloaded operands are
"impossible constraints". Pointers and temporaries therefore have fixed registers (r8
to r12, lr), and gcc allocates only the sums, at most eight. These are forced into
registers before the statement, since loading one of them may not take a second
register.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from firmwright.base.errors import InternalError
from firmwright.kernels.program import (
    Address,
    Argument,
    LoopUntil,
    Program,
    Repeat,
    Step,
    Value,
)
from firmwright.kernels.registers import assign_registers

REGISTER_MACROS = """\
/* Registers: an assembly block needs r0 to r12 and lr, also the one of a frame pointer. gcc reloads
 * operands to r0-r7 only, which the eight accumulators take; pointers and temporaries therefore
 * have fixed registers above. clang allocates them itself and reserves one register. */
#if defined(__clang__)
#define FIXED_REGISTER(name)
#else
#define FIXED_REGISTER(name) __asm__(name)
#endif"""  # noqa: E501
POINTER_REGISTERS = ("r11", "r12")
TEMPORARIES: Mapping[str, str] = {"u": "r8", "v": "r9", "p": "r10", "q": "lr"}
"""The C variables of temporaries, and their registers where these are fixed."""
NARROW = 3
"""The temporaries that are left by clang, and by gcc in the loops of Helium cores."""


@dataclass(frozen=True, slots=True)
class ProgramForms:
    """A micro-kernel for compilers that leave all temporaries, and for others.

    Both programs have the same operands, repeats and loops.
    """

    wide: Program
    narrow: Program
    doc: str

    @property
    def macro(self) -> str:
        return self.wide.name.upper()


def string_lines(operations: Iterable[str]) -> list[str]:
    return [f'    "{operation}\\n\\t"' for operation in operations]


def define(head: str, lines: Iterable[str]) -> str:
    return " \\\n".join([f"#define {head}", *lines])


def repeat_macro(count: int) -> str:
    """Return `STEPS_<count>(STEP)`: STEP(0) STEP(1) ... STEP(count - 1)."""
    steps = " ".join(f"STEP({index})" for index in range(count))
    lines = [f"    {line}" for line in wrap(steps, 92)]
    return define(f"STEPS_{count}(STEP)", lines)


def operand_lines(operands: Sequence[str], per_line: int = 4) -> list[str]:
    """Return asm operands separated by commas, a few per line."""
    starts = range(0, len(operands), per_line)
    lines = [", ".join(operands[start : start + per_line]) for start in starts]
    return [line + "," for line in lines[:-1]] + lines[-1:]


def _pin_macro() -> str:
    lines = [f'    __asm__("" : "+r"(c{i}));' for i in range(8)]
    lines[-1] = lines[-1].removesuffix(";")
    return define("PIN_ACCUMULATORS()", lines)


PIN_ACCUMULATORS = f"""\
/* Force all accumulators into registers before the asm block; otherwise gcc can run out
 * of registers. */
{_pin_macro()}"""


def macro_definitions(forms: ProgramForms) -> tuple[str, ...]:
    """Return the macros that the body of a micro-kernel uses."""
    narrow = "\n".join(_form_macros(forms, forms.narrow))
    wide = "\n".join(_form_macros(forms, forms.wide))
    shape = f"""\
/* {forms.doc} The first form needs one register
 * less, for clang and for the loops of cores with Helium. */
#if defined(__clang__) || defined(__ARM_FEATURE_MVE)
{narrow}
#else
{wide}
#endif"""
    counts = dict.fromkeys(node.count for node in _repeats(forms.wide))
    repeats = [repeat_macro(count) for count in counts if count > 1]
    pin = (PIN_ACCUMULATORS,) if _has_inputs(forms.wide) else ()
    return (REGISTER_MACROS, *pin, shape, *repeats)


def body_text(forms: ProgramForms) -> str:
    """Return the C statements of a micro-kernel; its pointers are variables."""
    program, lines = forms.wide, list[str]()
    for node in program.body:
        if isinstance(node, LoopUntil):
            pointer, length = node.pointer.name, node.end
            lines.append(f"const void *end = {pointer} + {length};")
    if _has_inputs(program):
        lines.append("PIN_ACCUMULATORS();")
    for operand, register in zip(program.pointers, POINTER_REGISTERS, strict=False):
        fixed = f'{register} FIXED_REGISTER("{register}")'
        lines.append(f"register const void *{fixed} = {operand.name};")
    uses = []
    for index, repeat in enumerate(_repeats(program)):
        macro = _step_macro(forms, index)
        many = f"STEPS_{repeat.count}({macro})"
        uses.append(f"{macro}(0)" if repeat.count == 1 else many)
    lines.append(f"{forms.macro}({' '.join(uses)});")
    return "\n".join(lines)


def _repeats(program: Program) -> list[Repeat]:
    """Return the repeats of a program, which consists of them, in a loop or not."""
    nodes: list[Repeat] = []
    for node in program.body:
        inner = node.body if isinstance(node, LoopUntil) else (node,)
        for part in inner:
            if not isinstance(part, Repeat):
                raise InternalError(f"{program.name} has a step outside of a repeat")
            nodes.append(part)
    return nodes


def _loop(program: Program) -> LoopUntil | None:
    first = program.body[0]
    return first if isinstance(first, LoopUntil) else None


def _sums(program: Program) -> list[str]:
    return [value.name for value in program.registers]


def _has_inputs(program: Program) -> bool:
    """Return whether sums have values when the program begins."""
    return bool(set(_sums(program)) - program.written)


def _step_macro(forms: ProgramForms, index: int) -> str:
    return f"{forms.macro}_{('STEP', 'NEXT')[index]}"


def _form_macros(forms: ProgramForms, program: Program) -> list[str]:
    names = tuple(TEMPORARIES)
    if program is forms.narrow:
        names = names[:NARROW]
    assigned = assign_registers(program, names)
    macros = []
    for index, repeat in enumerate(_repeats(program)):
        lines = [format_step(step, assigned) for step in repeat.body]
        macros.append(define(f"{_step_macro(forms, index)}(i)", string_lines(lines)))
    used = [name for name in names if name in set(assigned.values())]
    macros.append(_statement(forms.macro, program, used))
    return macros


def _statement(macro: str, program: Program, temporaries: Sequence[str]) -> str:
    loop = _loop(program)
    written = program.written
    outputs = []
    for name in _sums(program):
        constraint = "=&r" if name in written else "+r"
        outputs.append(f'[{name}] "{constraint}"({name})')
    outputs += [f'[{name}] "=&r"({name})' for name in temporaries]
    lines = []
    for name in temporaries:
        register = TEMPORARIES[name]
        lines.append(f'    register uint32_t {name} FIXED_REGISTER("{register}");')
    pointers = list(zip(program.pointers, POINTER_REGISTERS, strict=False))
    if loop is None:
        lines.append("    __asm__(steps")
        inputs = [f'[{pointer.name}] "r"({name})' for pointer, name in pointers]
        clobbered = '"memory"'
    else:
        last = temporaries[-1]
        lines.append('    __asm__("1:\\n\\t" steps')
        closing = [f"ldr %[{last}], %[end]", f"cmp %[{loop.pointer.name}], %[{last}]"]
        lines += string_lines([*closing, "bne 1b"])
        outputs += [f'[{pointer.name}] "+r"({name})' for pointer, name in pointers]
        inputs = ['[end] "m"(end)']
        clobbered = '"cc", "memory"'
    first, *others = operand_lines(outputs)
    lines += [f"        : {first}", *[f"          {line}" for line in others]]
    lines.append(f"        : {', '.join(inputs)}")
    lines.append(f"        : {clobbered})")
    return define(f"{macro}(steps)", lines)


def format_step(step: Step, assigned: Mapping[Value, str]) -> str:
    """Return the assembly of one step, a string in C if an address repeats."""
    words: dict[str, str] = {}
    names = [operand.name for operand in (*step.instr.operands, *step.instr.results)]
    for name, given in zip(names, (*step.operands, *step.results), strict=True):
        words[name] = _format_argument(given, assigned)
    return step.instr.asm.format(**words)


def _format_argument(given: Argument, assigned: Mapping[Value, str]) -> str:
    match given:
        case Value():
            return f"%[{given.name or assigned[given]}]"
        case Address():
            return _format_address(given)
        case int():
            return str(given)


def _format_address(address: Address) -> str:
    base = f"%[{address.pointer.name}]"
    if address.advance_bytes:
        return f"[{base}], #{address.advance_bytes}"
    offset = str(address.offset_bytes) if address.offset_bytes else ""
    if address.stride_bytes:
        more = f"+{offset}" if offset else ""
        return f'[{base}, #{address.stride_bytes}*" #i "{more}]'
    return f"[{base}, #{offset}]" if offset else f"[{base}]"
