"""Instructions from objdump's disassembly: size, kind, and registers, for timing.

Thumb (Armv6-M to Armv8.1-M with Helium) and RV32IMAC, in the syntax of GNU and LLVM
objdump, and Xtensa in that of GNU objdump.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Final, Literal, TypeAlias, cast, get_args

from firmwright.base.text_sections import read_sections

InstructionKind: TypeAlias = Literal[
    "alu",
    "if_then",
    "load",
    "store",
    "load_multiple",
    "store_multiple",
    "multiply",
    "multiply_add",
    "multiply_long",
    "divide",
    "branch",
    "call",
    "loop",
    "float",
    "float_multiply_add",
    "float_divide",
    "vector",
    "vector_load",
    "vector_store",
]
INSTRUCTION_KINDS: Final[tuple[InstructionKind, ...]] = get_args(InstructionKind)
Registers: TypeAlias = frozenset[str]


class AssemblySyntax(Enum):
    """How instructions are written; the values name tables of the text files."""

    ARM = "arm"
    RISCV = "riscv"
    XTENSA = "xtensa"


def syntax_of(core: str) -> AssemblySyntax:
    """Return the syntax of a core's instructions, by the core's name in board files."""
    if core.startswith("cortex-"):
        return AssemblySyntax.ARM
    return AssemblySyntax.XTENSA if core.startswith("lx") else AssemblySyntax.RISCV


_NONE: Final[Registers] = frozenset()


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `words` is the number of words of a multiple load or store.

    `address` holds the registers that form a memory address, `base` those of them that
    it updates. Pipelines read `early` registers (shifted operands) before the others,
    and `late` ones (accumulators, stored values) after them. `variant` refines the kind
    for timing; `target` is the address to which a branch jumps, 0 if unknown. `text` is
    the instruction without comment.
    """

    size_bytes: int
    kind: InstructionKind
    words: int = 1
    writes: Registers = _NONE
    reads: Registers = _NONE
    address: Registers = _NONE
    base: Registers = _NONE
    early: Registers = _NONE
    late: Registers = _NONE
    variant: str = ""
    target: int = 0
    text: str = ""


_LINE: Final = re.compile(
    r"^\s*([0-9a-f]+):\s+((?:[0-9a-f]{2,8} ?)+)\s*\t(\S+)(?:\s+(.*))?$"
)
_CONDITION: Final = r"(?:eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)?"
_Kinds: TypeAlias = tuple[tuple[InstructionKind, re.Pattern[str]], ...]
_TABLES: Final = read_sections(__file__, ".txt")


@cache
def _kinds(syntax: AssemblySyntax) -> _Kinds:
    condition = _CONDITION if syntax is AssemblySyntax.ARM else ""
    kinds = []
    for line in _TABLES[syntax.value].splitlines():
        kind, row = line.split(maxsplit=1)
        pattern = re.compile(f"(?:{row}){condition}")
        kinds.append((cast(InstructionKind, kind), pattern))
    return tuple(kinds)


_VARIANTS: Final = tuple(
    row.split(maxsplit=2) for row in _TABLES["variants"].splitlines()
)
_LATE: Final = {
    "store": slice(None),
    "vector_store": slice(None),
    "multiply_add": slice(3, None),
    "float_multiply_add": slice(1),
}
_EARLY: Final = re.compile(r"[us]bfx|rev|rbit|[us]xta|pkh|bfi")
_TARGET: Final = re.compile(r"(?:^|[ ,])(?:0x)?([0-9a-f]+)$")
_REGISTER: Final = re.compile(
    r"\b(?:[rsdq]\d+|sp|lr|pc|ip|fp|sl|[ast]\d+|ra|gp|tp|zero)\b"
)
_SPAN: Final = re.compile(r"\b([rsdq])(\d+)-[rsdq](\d+)")
_MEMORY: Final = re.compile(r"(?<!\w)\[[^]]*\]|\([a-z0-9]+\)|^\w+!?, \{")
_LANE: Final = re.compile(r"[qd]\d+\[")
_NO_RESULT: Final = re.compile(
    r"cmp|cmn|tst|teq|vcmp|vctp|vmsr|nop|dmb|dsb|isb|b[lx]|bkpt|j"
)
_ACCUMULATES: Final = re.compile(
    r"v(?:fn?m|n?ml)[as](?!(?:l?da)?v)|vml[as]l?(?:da)?va|umaal|[us]ml[as]l|movt|bf[ic]"
)
_ONE_SOURCE: Final = re.compile(
    r"mov|mvn?|[us]xt[bh]|[sz]ext|rev|c[lt]z|cpop|rbit|neg|not|l[iu]|s(?:eq|ne)z"
    r"|vmov|vmrs|vneg|vabs|vcvt|vdup|vsqrt"
)
_XTENSA_NO_RESULT: Final = re.compile(
    r"ss[lra]|wsr|memw|nop|waiti|[ri]sync|ill|simcall"
)
_COUNTS: Final = re.compile(r"v[id]w?dup")
"""Instructions that update the register from which lanes are counted."""


def read_disassembly(
    text: str, syntax: AssemblySyntax
) -> Iterator[tuple[int, Instruction]]:
    """Yield the address of each instruction in objdump's output with its properties."""
    found = _read_lines(text, syntax)
    return _mark_loop_ends(found) if syntax is AssemblySyntax.XTENSA else found


def _read_lines(text: str, syntax: AssemblySyntax) -> Iterator[tuple[int, Instruction]]:
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or match[3].startswith("."):
            continue
        operands = re.split(r"\s*[@;<#]\s*(?![-\d])", match[4] or "")[0]
        size_bytes = len(match[2].replace(" ", "")) // 2
        yield int(match[1], 16), _decode(size_bytes, match[3], operands, syntax)


def _mark_loop_ends(
    found: Iterable[tuple[int, Instruction]],
) -> Iterator[tuple[int, Instruction]]:
    """Turn the last instruction of each zero-overhead loop into a branch to the first.

    Xtensa has no instruction there: LOOP names the address behind the loop.
    """
    begins: dict[int, int] = {}
    for address, instruction in found:
        behind = address + instruction.size_bytes
        if instruction.kind == "loop":
            begins[instruction.target] = behind
            yield address, instruction
        elif behind in begins:
            target = begins[behind]
            yield address, replace(instruction, variant="loop_end", target=target)
        else:
            yield address, instruction


def decode_instruction(text: str, syntax: AssemblySyntax) -> Instruction:
    """Return the properties of one instruction in assembly, taken as four bytes."""
    mnemonic, _, operands = text.partition(" ")
    return _decode(4, mnemonic, operands.strip(), syntax)


@cache
def _kind(name: str, syntax: AssemblySyntax) -> InstructionKind:
    patterns = _kinds(syntax)
    return next(kind for kind, pattern in patterns if pattern.fullmatch(name))


def _decode(
    size_bytes: int, mnemonic: str, operands: str, syntax: AssemblySyntax
) -> Instruction:
    name = re.sub(r"\.[nw]$", "", mnemonic)
    kind = _kind(name, syntax)
    if syntax is AssemblySyntax.XTENSA:
        return _decode_xtensa(size_bytes, mnemonic, operands, kind)
    operands = _SPAN.sub(_expand, operands)
    if kind in ("float", "float_multiply_add", "float_divide") and "q" in operands:
        kind = "vector"
    if (
        syntax is AssemblySyntax.RISCV
        and name == "jalr"
        and operands.startswith("zero")
    ):
        kind = "branch"
    if kind == "alu" and operands.startswith("pc,"):
        kind = "branch"
    memory = _MEMORY.search(operands)
    address = frozenset(_REGISTER.findall(memory[0])) if memory else _NONE
    names = _REGISTER.findall(operands[: memory.start()] if memory else operands)
    words = 1
    if kind in ("load_multiple", "store_multiple"):
        listed = operands[operands.find("{") :] if "{" in operands else ", ".join(names)
        names = _REGISTER.findall(listed)
        words = sum(2 if register[0] == "d" else 1 for register in names)
        address = address or frozenset(("sp",))
    elif memory and any(register[0] == "d" for register in names):
        kind, words = ("load_multiple" if kind == "load" else "store_multiple"), 2
    writes, reads = _split(kind, name, names, operands)
    updates = memory and ("!" in operands or operands.rstrip()[-1:] not in "])}")
    base = address if updates else _NONE
    text = f"{mnemonic} {operands}"
    variant = _variant(kind, text)
    is_early = variant == "shifted" or _EARLY.match(name)
    target = _TARGET.search(operands) if kind in ("branch", "loop") else None
    return Instruction(
        size_bytes,
        kind,
        words,
        writes | base,
        reads,
        address,
        base,
        early=frozenset(names[-1:] if is_early else ()),
        late=frozenset(names[_late_names(kind, name)]),
        variant=variant,
        target=int(target[1], 16) if target else 0,
        text=text,
    )


def _decode_xtensa(
    size_bytes: int, mnemonic: str, operands: str, kind: InstructionKind
) -> Instruction:
    """Return an instruction of Xtensa: its result is first, an address has no mark."""
    names = _REGISTER.findall(operands)
    address = _NONE
    if kind in ("load", "store"):
        address, names = frozenset(names[1:2]), names[:1]
    has_result = kind not in ("store", "branch", "call", "loop")
    has_result = has_result and not _XTENSA_NO_RESULT.match(mnemonic)
    keeps = not has_result or (mnemonic.startswith("mov") and names[2:])
    reads = _NONE if kind == "load" else frozenset(names if keeps else names[1:])
    jumps = kind in ("branch", "loop")
    target = _TARGET.search(operands) if jumps and "," in operands else None
    if mnemonic == "j":
        target = _TARGET.search(operands)
    return Instruction(
        size_bytes,
        kind,
        writes=frozenset(names[:1] if has_result else ()),
        reads=reads,
        address=address,
        target=int(target[1], 16) if target else 0,
        text=f"{mnemonic} {operands}",
    )


def _late_names(kind: InstructionKind, name: str) -> slice:
    """Return which registers are read late; SMULL has sums that it does not read."""
    if kind == "multiply_long":
        return slice(2 if _ACCUMULATES.match(name) else 0)
    return _LATE.get(kind, slice(0))


def _variant(kind: InstructionKind, text: str) -> str:
    for of, name, pattern in _VARIANTS:
        if of == kind and re.match(pattern, text):
            return name
    return ""


def _split(
    kind: InstructionKind, name: str, names: list[str], operands: str
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers that an instruction writes and those that it reads."""
    if kind in ("load", "load_multiple", "vector_load"):
        return frozenset(names), _NONE
    is_store = kind in ("store", "store_multiple", "vector_store")
    if is_store or kind == "branch" or _NO_RESULT.match(name):
        return _NONE, frozenset(names)
    if _COUNTS.match(name):
        return frozenset(names[:2]), frozenset(names[1:])
    results = 2 if kind == "multiply_long" and not name.startswith("mulh") else 1
    has_two_operands = operands.count(",") == results
    updates = (
        (has_two_operands and not _ONE_SOURCE.match(name))
        or _ACCUMULATES.match(name)
        or _LANE.match(operands)
    )
    return frozenset(names[:results]), frozenset(names if updates else names[results:])


def _expand(span: re.Match[str]) -> str:
    numbers = range(int(span[2]), int(span[3]) + 1)
    return ", ".join([f"{span[1]}{number}" for number in numbers])
