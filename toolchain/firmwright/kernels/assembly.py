r"""Programs as inline assembly, in C macros that kernels share.

The assembly of one repetition is a macro of its index, so that micro-kernels that
differ only in their number of steps share it:

    #define MAC_2X4_STEP(i) "ldr %[u], [%[w], #4*" #i "]\n\t" ...
    #define MAC_2X4(steps, count) ... __asm__(steps : outputs : inputs : clobbered)

Where gcc has fixed registers for pointers and temporaries, it allocates only the sums,
at most eight. These are forced into registers before the statement, since loading one
of them may not take a second register.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from firmwright.kernels.advancing_pointers import advance_pointers
from firmwright.kernels.assembly_text import (
    GROUP_PARAMETER,
    AssemblyText,
    addresses,
)
from firmwright.kernels.isa.instruction import Memory, RegisterClass
from firmwright.kernels.program import (
    Loop,
    Program,
    Repeat,
    Step,
    VirtualRegister,
    instruction_count,
    steps,
)
from firmwright.kernels.register_files import (
    FPU_THUMB2_FILE,
    THUMB2_FILE,
    RegisterFile,
)

REGISTER_MACROS = """\
/* Registers: an assembly block needs r0 to r12 and lr, also the one of a frame pointer. gcc reloads
 * operands to r0-r7 only, which the eight accumulators take; pointers and temporaries therefore
 * have fixed registers above. clang allocates them itself and reserves one register. */
#if defined(__clang__)
#define FIXED_REGISTER(name)
#else
#define FIXED_REGISTER(name) __asm__(name)
#endif"""  # noqa: E501

CONSTRAINTS = {
    RegisterClass.CORE: "r",
    RegisterClass.LOW: "l",
    RegisterClass.FLOAT: "t",
    RegisterClass.VECTOR: "w",
}
"""The letters of asm operands."""


@dataclass(frozen=True, slots=True)
class ProgramForms:
    """A micro-kernel for the compilers of an instruction set.

    `narrow` is the program for clang, which leaves one register less, if it differs. On
    cores with Helium it is also that of gcc, which has loops of one register more.
    `fpu` is the program for cores with an FPU. All programs have the same operands,
    repeats and loops.
    """

    wide: Program
    narrow: Program | None
    doc: str
    file: RegisterFile = THUMB2_FILE
    is_for_helium: bool = True
    fpu: Program | None = None

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


_LIMIT = "limit"
"""The C variable of a loop's limit in a macro; a function has it as `end`."""

PIN_ACCUMULATORS = f"""\
/* Force all accumulators into registers before the asm block; otherwise gcc can run out
 * of registers. */
{_pin_macro()}"""


def macro_definitions(forms: ProgramForms) -> tuple[str, ...]:
    """Return the macros that the body of a micro-kernel uses."""
    wide = "\n".join(_macros(forms, AssemblyText(forms.wide, forms.file)))
    shape = f"/* {forms.doc} */\n{wide}"
    if forms.narrow:
        text = AssemblyText(forms.narrow, forms.file.without_last())
        test, users = "defined(__clang__)", "for clang."
        if forms.is_for_helium:
            test += " || defined(__ARM_FEATURE_MVE)"
            users = "for clang and for the loops of cores with Helium."
        lines = [
            f"/* {forms.doc} The first form needs one register",
            f" * less, {users} */",
            f"#if {test}",
            *_macros(forms, text),
        ]
        if forms.fpu:
            lines.append("#elif defined(__ARM_FP)")
            lines += _macros(forms, AssemblyText(forms.fpu, FPU_THUMB2_FILE))
        shape = "\n".join([*lines, "#else", wide, "#endif"])
    counts = dict.fromkeys(_count(node) for node in _blocks(forms.wide))
    repeats = [repeat_macro(count) for count in counts if count > 1]
    registers = (REGISTER_MACROS,) * bool(forms.file.variables)
    pin = (PIN_ACCUMULATORS,) * _has_pinned_sums(forms)
    return (*registers, *pin, shape, *repeats)


def body_text(forms: ProgramForms) -> str:
    """Return the C statements of a micro-kernel; its pointers are variables."""
    program, text = forms.wide, AssemblyText(forms.wide, forms.file)
    is_end = text.loop is not None and text.loop.until is not None
    lines = []
    in_memory = text.has_limit_in_memory or _has_limits_in_two_places(forms)
    if is_end and (in_memory or not forms.file.places_inputs):
        lines.append(f"const void *end = {text.limit_text()};")
    elif text.loop and text.has_limit_in_memory:
        lines.append(f"int32_t {text.loop.limit.name} = {text.limit_text()};")
    if _has_pinned_sums(forms):
        lines.append("PIN_ACCUMULATORS();")
    lines += _input_variables(text, has_limit=not _has_limits_in_two_places(forms))
    uses = []
    for index, block in enumerate(_blocks(program)):
        macro, times = _step_macro(forms, index), _count(block)
        start = block.start if isinstance(block, Repeat) else 0
        uses.append(f"{macro}({start})" if times == 1 else f"STEPS_{times}({macro})")
    arguments = [" ".join(uses)]
    if _has_count(text) and text.loop:
        arguments.append(str(text.loop.unroll))
    arguments += _group_texts(forms)
    lines.append(f"{forms.macro}({', '.join(arguments)});")
    return "\n".join(lines)


def executed_instructions(forms: ProgramForms, repetitions: int) -> int:
    """Return the instructions of a micro-kernel whose loop has some repetitions."""
    return instruction_count(forms.wide, repetitions, len(loop_end(forms)))


def loop_end(forms: ProgramForms) -> list[str]:
    """Return the assembly that closes an iteration of the loop."""
    return AssemblyText(forms.wide, forms.file).closing()


def _blocks(program: Program) -> list[Repeat | Loop]:
    return [node for node in program.body if isinstance(node, Repeat | Loop)]


def _count(block: Repeat | Loop) -> int:
    return block.count if isinstance(block, Repeat) else block.unroll


def _has_pinned_sums(forms: ProgramForms) -> bool:
    """Return whether sums have values before, and few registers are left for them."""
    names = {value.name for value in forms.wide.registers}
    return bool(forms.file.variables) and bool(names - forms.wide.written)


def _group_texts(forms: ProgramForms) -> list[str]:
    """Return the group with a register for each repetition, if there is one."""
    if forms.fpu is None:
        return []
    text = AssemblyText(forms.fpu, FPU_THUMB2_FILE)
    return [text.group_text(group) for group in text.repeated_groups]


def _has_limits_in_two_places(forms: ProgramForms) -> bool:
    """Return whether a form has the loop's limit in memory, and another does not.

    The limit, an address, is then a variable of the function, as gcc does not read one
    from memory that has a register. The macro of the form with a register declares
    that. A number of repetitions is a variable of the function in any case.
    """
    wide = AssemblyText(forms.wide, forms.file)
    if forms.narrow is None or wide.loop is None or wide.loop.until is None:
        return False
    narrow = AssemblyText(forms.narrow, forms.file.without_last())
    return wide.has_limit_in_memory != narrow.has_limit_in_memory


def _has_count(text: AssemblyText) -> bool:
    """Return whether the macro depends on the repetitions of an iteration."""
    return text.loop is not None and bool(text.file.loop_end.move)


def _input_variables(text: AssemblyText, *, has_limit: bool) -> Iterator[str]:
    """Yield the declarations of the C variables of pointers and of a limit."""
    if not text.file.places_inputs:
        return
    for holder in text.inputs:
        if isinstance(holder, VirtualRegister) and not has_limit:
            continue
        register = text.assigned.registers[holder]
        fixed = f'__asm__("{register}")'
        if text.has_variables:
            fixed = f'FIXED_REGISTER("{register}")'
        kind, value = "const void *", holder.name
        if isinstance(holder, VirtualRegister):
            value = text.limit_text()
            kind = kind if text.loop and text.loop.until else "int32_t "
        elif holder.access != "r":
            kind = "void *"
        yield f"register {kind}{text.variable(holder)} {fixed} = {value};"


def _step_macro(forms: ProgramForms, index: int) -> str:
    return f"{forms.macro}_{('STEP', 'NEXT')[index]}"


def _macros(forms: ProgramForms, text: AssemblyText) -> Iterator[str]:
    """Yield the macros of the steps, and that of the statement."""
    for index, block in enumerate(_blocks(text.program)):
        body = block.body
        if isinstance(block, Loop) and block.can_advance:
            body = advance_pointers(block)
        lines = string_lines(text.step(step) for step in body)
        yield define(f"{_step_macro(forms, index)}(i)", lines)
    parameters = ["steps", *["count"] * _has_count(text)]
    parameters += [GROUP_PARAMETER] * len(_group_texts(forms))
    is_limit_apart = _has_limits_in_two_places(forms) and not text.has_limit_in_memory
    head = f"{forms.macro}({', '.join(parameters)})"
    yield _statement(head, text, is_limit_apart=is_limit_apart)


def _statement(head: str, text: AssemblyText, *, is_limit_apart: bool) -> str:
    """Return the macro of a statement.

    With `is_limit_apart`, it declares the variable of the loop's limit in a register.
    """
    program, file = text.program, text.file
    before, after = _outer_steps(program)
    lines = []
    if is_limit_apart:
        assert text.loop is not None
        register = text.assigned.registers[text.loop.limit]
        lines.append(
            f'    register const void *{_LIMIT} FIXED_REGISTER("{register}") = end;'
        )
    for register, name in text.temporary_variables.items():
        lines.append(f'    register uint32_t {name} FIXED_REGISTER("{register}");')
    prologue = [file.prologue] * bool(file.prologue)
    begin = [*prologue, *map(text.step, before)]
    end = [*text.closing(), *map(text.step, after)]
    asm = "__asm__ volatile(" if _stores(program) else "__asm__("
    label = ' "1:\\n\\t"' if text.loop else ""
    if begin:
        lines += [f"    {asm}", *string_lines(begin), f"   {label} steps"]
    else:
        lines.append(f"    {asm}{label.lstrip()}{' ' * bool(label)}steps")
    lines += string_lines(end)
    outputs, inputs = _operands(text, is_limit_apart=is_limit_apart)
    lines += _operand_list(outputs)
    lines += _operand_list(inputs)
    clobbered = [f'"{register}"' for register in text.clobbered]
    clobbered += ['"cc"'] * (text.loop is not None and file.changes_flags)
    (*others, last) = _operand_list([*clobbered, '"memory"'], 10)
    return define(head, [*lines, *others, f"{last})"])


def _operand_list(operands: Sequence[str], per_line: int = 4) -> list[str]:
    first, *others = operand_lines(operands, per_line) or [""]
    return [f"        : {first}".rstrip(), *[f"          {line}" for line in others]]


def _outer_steps(program: Program) -> tuple[list[Step], list[Step]]:
    """Return the steps before and after the repeats or the loop."""
    before, after = list[Step](), list[Step]()
    found = False
    for node in program.body:
        if isinstance(node, Step):
            (after if found else before).append(node)
        found |= not isinstance(node, Step)
    return before, after


def _stores(program: Program) -> bool:
    return any(
        isinstance(result.place, Memory)
        for step in steps(program.body)
        for result in step.instr.results
    )


def _operands(
    text: AssemblyText, *, is_limit_apart: bool
) -> tuple[list[str], list[str]]:
    """Return the outputs and the inputs of a statement."""
    program, loop = text.program, text.loop
    outputs, inputs = list[str](), list[str]()
    results = program.results
    for value in program.registers:
        constraint = "=&r" if value.name in program.written else "+r"
        if value in results:
            outputs.append(f'[{value.name}] "{constraint}"({value.name})')
        else:
            inputs.append(f'[{value.name}] "r"({value.name})')
    names = text.temporary_variables.values()
    outputs += [f'[{name}] "=&r"({name})' for name in names]
    moved = {each.pointer for each in addresses(program) if each.advance}
    moved |= {*loop.pointers()} if loop else set()
    for holder in text.inputs:
        place = f"[{text.operand_name(holder)}]"
        is_counter = isinstance(holder, VirtualRegister) and loop and not loop.until
        variable = text.variable(holder)
        if isinstance(holder, VirtualRegister) and is_limit_apart:
            variable = _LIMIT
        if holder in moved or is_counter or text.is_shared(holder):
            outputs.append(f'{place} "+r"({variable})')
        else:
            inputs.append(f'{place} "r"({variable})')
    if loop and text.has_limit_in_memory:
        if loop.until:
            inputs.append('[end] "m"(end)')
        else:
            outputs.append('[left] "+m"(left)')
    for factor, name in text.distances:
        inputs.append(f'[p{factor}] "i"({factor} * {name})')
    return outputs, inputs
