"""Instructions from objdump's disassembly: size, kind, and the registers that timing depends on.

Thumb (Armv6-M to Armv8.1-M with Helium) and RV32IMAC, in the syntax of GNU and LLVM objdump.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

InstructionKind: TypeAlias = Literal[
    "alu", "if_then", "load", "store", "load_multiple", "store_multiple", "multiply",
    "multiply_add", "multiply_long", "divide", "branch", "call", "loop", "float",
    "float_multiply_add", "float_divide", "vector", "vector_load", "vector_store",
]  # fmt: skip
INSTRUCTION_KINDS: Final[tuple[InstructionKind, ...]] = get_args(InstructionKind)
Registers: TypeAlias = frozenset[str]
_NONE: Final[Registers] = frozenset()


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `words` is the number of words of a multiple load or store.

    `address` holds the registers that form a memory address, `base` those of them that it updates.
    Pipelines read `early` registers (shifted operands) before the others, and `late` ones
    (accumulators, stored values) after them. `variant` refines the kind for timing; `target` is the
    address to which a branch jumps, 0 if unknown.
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


_LINE: Final = re.compile(r"^\s*([0-9a-f]+):\s+((?:[0-9a-f]{2,8} ?)+)\s*\t(\S+)(?:\s+(.*))?$")
_CONDITION: Final = r"(?:eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)?"
_Kinds: TypeAlias = tuple[tuple[re.Pattern[str], InstructionKind], ...]


def _kinds(condition: str, rows: Mapping[str, InstructionKind]) -> _Kinds:
    return tuple((re.compile(f"(?:{row}){condition}"), kind) for row, kind in rows.items())


# The first pattern that matches the whole mnemonic, without its width, states the kind.
_ARM: Final = _kinds(
    _CONDITION,
    {
        r"it[te]*": "if_then",
        r"vldm.*|vpop|vlldm": "load_multiple",
        r"vstm.*|vpush|vlstm": "store_multiple",
        r"vldr": "load",
        r"vstr": "store",
        r"vld[r24].*|ldc2?l?": "vector_load",
        r"vst[r24].*|stc2?l?": "vector_store",
        r"v(?:fn?m|n?ml)[as]\.f(?:16|32|64)": "float_multiply_add",
        r"v(?:div|sqrt)\.f\d\d": "float_divide",
        r"v.*|cdp2?|mcrr?2?|mrrc?2?": "float",
        r"ldr(?:s?[bh])?t?|lda?(?:ex)?[bh]?|ldrex[bh]?": "load",
        r"str[bh]?t?|stl(?:ex)?[bh]?|strex[bh]?": "store",
        r"ldrd|ldm.*|pop": "load_multiple",
        r"strd|stm.*|push": "store_multiple",
        r"[su]div": "divide",
        r"[us]ml[as]l.*|[us]mull|umaal|sml[as]ld.*": "multiply_long",
        r"ml[as]|sml.*|smml.*|usada8": "multiply_add",
        r"muls?|smm.*|smu.*|usad8": "multiply",
        r"blx?|blxns": "call",
        r"b|bx|bxns|cbn?z|tb[bh]": "branch",
        r"le(?:tp)?|wls.*|dls.*|lctp|bf.?csel": "loop",
        r".*": "alu",
    },
)
_RISCV: Final = _kinds(
    "",
    {
        r"(?:c\.)?l[bhw]u?(?:sp)?|lr\.w.*|amo.*|sc\.w.*": "load",
        r"(?:c\.)?s[bhw](?:sp)?": "store",
        r"mul": "multiply",
        r"mulh.*": "multiply_long",
        r"div.*|rem.*": "divide",
        r"jal|jalr": "call",
        r"b(?:eq|ne|lt|ge|gt|le)u?z?|j|jr|ret|tail": "branch",
        r".*": "alu",
    },
)
# Likewise with the operands; the pattern matches the start.
_VARIANTS: Final = (
    ("load", "narrow", r"(?:ldr|lda)(?:ex)?s?[bh]|l[bh]u? "),
    ("load", "float_access", r"v"),
    ("store", "float_access", r"v"),
    ("alu", "shifted", r"(?!mov|mvn|[us]xt|pkh|[us]sat).*, ?(?:lsl|lsr|asr|ror|rrx)\b"),
    ("alu", "bits", r"[us]xt|[us]bfx|bf[ic]|rev|rbit|clz|pkh|sel|[us]sat"),
    ("alu", "bits", r"u?q|[us]h?(?:add|sub)(?:8|16)"),
    ("alu", "simple", r"(?:add|sub|mov|adr)[swt]?(?:\.[nw])? "),
    ("vector", "vector_multiply", r"\S*\.f\d\d|v(?:q?r?d?mul(?!l[bt]\.p)|r?ml|q?r?dml)"),
    ("vector", "vector_round", r"v(?:q?r|q)shl|vrshr|vadc|vsbc"),
    ("vector", "vector_narrow", r"vq?movu?n|vq?r?shru?n"),
    ("vector", "vector_multiply", r"v(?:c(?:mp|mul|mla)|pte?|addl?v)"),
    ("float_multiply_add", "chained", r"vn?ml"),  # rounds twice
    ("float", "predicate", r"vpst|vpnot|vctp"),
    ("loop", "loop_start", r"[wd]ls"),
)
_EARLY: Final = re.compile(r"[us]bfx|rev|rbit|[us]xta|pkh|bfi")
_TARGET: Final = re.compile(r"(?:^|[ ,])(?:0x)?([0-9a-f]+)$")
_REGISTER: Final = re.compile(r"\b(?:[rsdq]\d+|sp|lr|pc|ip|fp|sl|[ast]\d+|ra|gp|tp|zero)\b")
_SPAN: Final = re.compile(r"\b([rsdq])(\d+)-[rsdq](\d+)")
_MEMORY: Final = re.compile(r"\[([^]]*)\]|\(([a-z0-9]+)\)|^(\w+)!?, \{")
_NO_RESULT: Final = re.compile(r"cmp|cmn|tst|teq|vcmp|vmsr|nop|dmb|dsb|isb|b|cb|j|ret")
_ACCUMULATES: Final = re.compile(
    r"v(?:fn?m|n?ml)[as]|vml[as](?:da)?va|umaal|[us]ml[as]l|movt|bf[ic]"
)
_ONE_SOURCE: Final = re.compile(r"mov|mvn|[us]xt[bh]|rev|clz|rbit|negs?|vmov|vneg|vabs|vcvt|vdup")


def read_disassembly(text: str, *, is_arm: bool) -> Iterator[tuple[int, Instruction]]:
    """Yield the address of each instruction in objdump's output with its properties."""
    table = _ARM if is_arm else _RISCV
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or match[3].startswith("."):
            continue
        operands = re.split(r"\s*[@;<#]\s*(?![-\d])", match[4] or "")[0]
        size_bytes = len(match[2].replace(" ", "")) // 2
        yield int(match[1], 16), _decode(size_bytes, match[3], operands, table)


def _decode(size_bytes: int, mnemonic: str, operands: str, table: _Kinds) -> Instruction:
    name = re.sub(r"\.[nw]$", "", mnemonic)
    kind = next(kind for pattern, kind in table if pattern.fullmatch(name))
    operands = _SPAN.sub(_expand, operands)
    if kind in ("float", "float_multiply_add", "float_divide") and "q" in operands:
        kind = "vector"
    if table is _RISCV and name == "jalr" and operands.startswith("zero"):
        kind = "branch"
    if "pc" in operands and (kind == "alu" and operands.startswith("pc,")):
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
    writes, reads = _split(kind, name, names, operands.count(",") + 1)
    updates = memory and ("!" in operands or operands.rstrip()[-1:] not in "])")
    base = address if updates else _NONE
    text = f"{mnemonic} {operands}"
    rows = (name for of, name, pattern in _VARIANTS if of == kind and re.match(pattern, text))
    variant = next(rows, "")
    target = _TARGET.search(operands) if kind in ("branch", "loop") else None
    return Instruction(
        size_bytes, kind, words, writes | base, reads, address, base,
        early=frozenset(names[-1:] if variant == "shifted" or _EARLY.match(name) else ()),
        late=frozenset(_read_late(kind, names)),
        variant=variant,
        target=int(target[1], 16) if target else 0,
    )  # fmt: skip


def _read_late(kind: InstructionKind, names: list[str]) -> list[str]:
    """Return the stored values and the accumulators."""
    if kind == "multiply_add":
        return names[3:]
    if kind in ("store", "vector_store"):
        return names
    return names[: {"multiply_long": 2, "float_multiply_add": 1}.get(kind, 0)]


def _split(
    kind: InstructionKind, name: str, names: list[str], operands: int
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the registers that an instruction writes and those that it reads."""
    if kind in ("load", "load_multiple", "vector_load"):
        return frozenset(names), _NONE
    if kind in ("store", "store_multiple", "vector_store", "branch") or _NO_RESULT.match(name):
        return _NONE, frozenset(names)
    results = 2 if kind == "multiply_long" else 1
    updates = operands == results + 1 and not _ONE_SOURCE.match(name)
    sources = names if updates or _ACCUMULATES.match(name) else names[results:]
    return frozenset(names[:results]), frozenset(sources)


def _expand(span: re.Match[str]) -> str:
    return ", ".join(f"{span[1]}{index}" for index in range(int(span[2]), int(span[3]) + 1))
