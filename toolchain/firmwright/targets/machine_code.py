"""Machine code as Python functions: the effects of blocks on registers and stack.

Instructions become statements over known values (machine_code.txt). None is an unknown
value: data from writable memory outside of the stack, and all results that depend on
it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from firmwright.base.errors import UsageError
from firmwright.base.text_sections import read_sections
from firmwright.targets.disassembly import AssemblySyntax, Instruction

Values: TypeAlias = dict[str, Any]
"""Known registers by name, and `flags`."""
_HINT: Final = "its time has no known bound: use another kernel or other options."
Flags: TypeAlias = tuple[bool, int | None, int | None]
"""True and two compared operands, or False, a result and the carry."""
UNKNOWN_FLAGS: Final[Flags] = (False, None, None)
STACK_TOP: Final = 0xF000_0000
"""The stack pointer at the start of an analysis; no object is in the mebibyte below."""
STACK_LIMIT: Final = STACK_TOP - (1 << 20)
TABLES: Final = read_sections(__file__, ".txt")
LIBRARY_LOOPS: Final = {
    name: tuple(map(int, limits))
    for name, *limits in map(str.split, TABLES["library_loops"].splitlines())
}
"""The largest repetitions of the loops of library functions, in order of address.

The last number is that of all further loops.
"""
_TOKENS: Final = {
    "@R": r"([a-z]\w*)",
    "@V": r"(-?\w+(?:\(\w+, \w+\))?)",
    "@T": r"(?:0x)?([0-9a-f]+)(?: .*)?",
    "@A": r"\[(\w+)(?:, (-?\w+(?:\(\w+, \w+\))?))?\]",
    "@C": r"(eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ltu|geu|gtu|leu|lt|ge|gt|le)",
}
_ALIASES: Final = {"sl": "r10", "fp": "r11", "ip": "r12"}
REGISTER: Final = re.compile(
    r"\b(?:r\d+|sp|lr|pc|ip|fp|sl|[ast]\d+|ra|gp|tp|zero|sar)\b"
)
_REGISTERS: Final = {
    AssemblySyntax.ARM: {"r": 13},
    AssemblySyntax.RISCV: {"a": 8, "s": 12, "t": 7},
    AssemblySyntax.XTENSA: {"a": 16},
}
_RETURN_REGISTERS: Final = {
    AssemblySyntax.ARM: "lr",
    AssemblySyntax.RISCV: "ra",
    AssemblySyntax.XTENSA: "a0",
}
_SEVERAL: Final = re.compile(
    r"(v?)(push|pop|ldm|stm)(ia|db)?(?:\S* (\w+)(!?),)? \{(.*)\}"
)
_UPDATE: Final = re.compile(r"\[(\w+), (-?\w+)\]!|\[(\w+)\], (\S+)$")
_SIZES: Final = {"": 4, "b": 1, "h": 2, "w": 4, "s": 4, "d": 8, "q": 16}
_Row: TypeAlias = tuple[re.Pattern[str], str]


def _rows(section: str) -> tuple[_Row, ...]:
    rows = []
    for row in TABLES[section].splitlines():
        pattern, text = row.split(" =>")
        expression = re.sub(r"@\w", lambda token: _TOKENS[token[0]], pattern)
        rows.append((re.compile(expression), text.strip()))
    return tuple(rows)


_ROWS: Final = {
    name: _rows(name)
    for syntax in AssemblySyntax
    for name in (syntax.value, f"{syntax.value}_ends")
}


def _signed(value: int) -> int:
    return (value & 0xFFFF_FFFF ^ 1 << 31) - (1 << 31)


def _functions(section: str, form: str) -> dict[str, Callable[..., Any]]:
    functions = {}
    for row in TABLES[section].splitlines():
        name, text = row.split(maxsplit=1)
        names = [name for name in "xyzw" if re.search(rf"\b{name}\b", text)]
        unknown = " or ".join(f"{name} is None" for name in names)
        body = form.format(unknown=unknown, text=text)
        functions[name] = eval(f"lambda {', '.join(names)}: {body}", {"S": _signed})
    return functions


_RESULTS: Final = _functions("results", "None if {unknown} else ({text}) & 4294967295")
_HOLDS: Final = _functions("conditions", "None if {unknown} else bool({text})")


def holds(flags: Flags, condition: str) -> bool | None:
    """Return whether a condition holds after a comparison; None if that is unknown."""
    is_comparison, x, y = flags
    if not is_comparison and condition in ("cs", "cc", "hs", "lo"):
        return None if y is None else bool(y) == (condition in ("cs", "hs"))
    if not is_comparison:
        y = 0 if condition in ("eq", "ne", "mi", "pl") else None
    return _HOLDS[condition](x, y) if condition in _HOLDS else None


def store(
    stack: dict[int, int], address: int | None, value: int | None, size: int
) -> None:
    """Store to `address`; raise LookupError if it depends on data."""
    if address is None:
        raise LookupError("a store goes to an address that depends on data.")
    for word in range(address & ~3, address + size, 4):
        stack.pop(word, None)
    if address >= STACK_LIMIT and value is not None and size == 4 and not address & 3:
        stack[address] = value


def _store_local(
    stack: dict[int, int],
    frame: int,
    size_bytes: int,
    address: int | None,
    value: int | None,
    *,
    otherwise: Callable[..., None],
) -> None:
    """Store a word, by default in an array of the frame: nothing there is known then.

    Saved registers are above the frame.
    """
    if address is not None:
        otherwise(stack, address, value)
        return
    for word in [word for word in stack if frame <= word < frame + size_bytes]:
        del stack[word]


def statement_names(
    load: Callable[..., Any], store: Callable[..., Any]
) -> dict[str, Any]:
    names: dict[str, Any] = {**_RESULTS, "holds": holds, "UNKNOWN": UNKNOWN_FLAGS}
    for kind, size in _SIZES.items():
        names[f"load{kind}"] = partial(load, size=size, is_signed=False)
        names[f"loads{kind}"] = partial(load, size=size, is_signed=True)
        names[f"store{kind}"] = partial(store, size=size)
    names["store_local"] = partial(_store_local, otherwise=names["store"])
    return names


def read_text(instruction: Instruction, address: int, condition: str = "") -> str:
    """Return an instruction's text as the tables have it."""
    text = re.sub(r"^(\S+?)(?:\.[nw])?(?= |$)", r"\1", instruction.text)
    mnemonic, _, operands = text.partition(" ")
    operands = re.sub(r",\s*", ", ", operands.replace("#", ""))
    operands = re.sub(r"\b(?:sl|fp|ip)\b", lambda name: _ALIASES[name[0]], operands)
    operands = re.sub(r"(\w+), (lsl|lsr|asr) (\d+)", r"\2(\1, \3)", operands)
    operands = re.sub(r"(?<=[\[ ])pc(?=, )", str(address + 4 & ~3), operands)
    if mnemonic == "auipc":
        register, pages = operands.split(", ")
        return f"li {register}, {address + (int(pages, 0) << 12)}"
    return f"{mnemonic.removesuffix(condition)} {operands}".rstrip()


def effects(
    instruction: Instruction, text: str, condition: str, syntax: AssemblySyntax
) -> list[str]:
    """Return the statements of an instruction that is executed if `condition` holds."""
    head, after = list[str](), list[str]()
    if match := _UPDATE.search(text):
        base, step = match[1] or match[3], match[2] or match[4]
        (head if match[1] else after).append(f"{base} = add({base}, {step})")
        text = f"{text[: match.start()]}[{base}]"
    lines = _several(text) or match_row(text, syntax.value)
    lines = _result(instruction, text, syntax) if lines is None else lines
    lines = [*head, *lines, *after]
    return _if_holds(lines, condition) if condition else lines


def match_row(text: str, section: str) -> list[str] | None:
    """Return the statements of the first row that matches, None if there is none."""
    for pattern, row in _ROWS[section]:
        if match := pattern.fullmatch(text):
            row = row.format("", *match.groups("0"))
            return [line for line in row.split("; ") if line]
    return None


def _several(text: str) -> list[str]:
    """Return the statements of an instruction that moves several registers."""
    match = _SEVERAL.fullmatch(text)
    if match is None:
        return []
    vector, name, down, base, updates, listed = match.groups()
    names = [name for name in listed.split(", ") if name]
    width = _SIZES[names[0][0]] if vector else 4
    down, base = name == "push" or down == "db", base or "sp"
    step = width * len(names) * (-1 if down else 1)
    lines = [f"a = add({base}, {step if down else 0})"]
    if updates or name in ("push", "pop"):
        lines.append(f"{base} = add({base}, {step})")
    for i, register in enumerate(names):
        place = f"add(a, {width * i})"
        if name in ("pop", "ldm"):
            lines += [] if vector else [f"{register} = load(stack, {place})"]
        else:
            kind, value = (names[0][0], None) if vector else ("", register)
            lines.append(f"store{kind}(stack, {place}, {value})")
    return lines


def _result(instruction: Instruction, text: str, syntax: AssemblySyntax) -> list[str]:
    is_arm = syntax is AssemblySyntax.ARM
    name, _, rest = text.partition(" ")
    operands = re.split(r", (?![^(]*\))", rest)
    base = name[:-1] if is_arm and name not in _RESULTS and name.endswith("s") else name
    flagged = base != name
    if base == "neg" and is_arm:
        base, operands = "rsb", [operands[0], operands[-1], "0"]
    base = base.replace(".", "_") + ("_" if base in ("and", "or", "not") else "")
    sources = operands[1:] + ["c"] * (base in ("adc", "sbc"))
    function = _RESULTS.get(base)
    count = function.__code__.co_argcount if function else -1
    if len(sources) + 1 == count:
        sources.insert(0, operands[0])
    if len(sources) != count:
        exact = re.match("alu|divide|multiply|.*load", instruction.kind)
        found = instruction.writes if exact else frozenset(REGISTER.findall(text))
        cleared = [_ALIASES.get(register, register) for register in sorted(found)]
        lines = [f"{register} = None" for register in cleared]
        lines += ["flags = UNKNOWN"] * (name.endswith("s") or name == "vmrs")
        return lines + ["store(stack, None, None)"] * ("store" in instruction.kind)
    arguments = f"({', '.join(sources)})"
    lines = [f"{operands[0]} = {base}{arguments}"]
    if flagged and base in ("sub", "rsb"):
        compared = sources[:: -1 if base == "rsb" else 1]
        lines.insert(0, f"flags = True, {', '.join(compared)}")
    elif flagged:
        is_known = f"{base}_carry" in _RESULTS
        if is_known and base not in ("add", "adc"):
            is_known = sources[1].isdigit()
        carry = f"{base}_carry{arguments}" if is_known else None
        lines.insert(0, f"flags = False, {base}{arguments}, {carry}")
    return ["c = holds(flags, 'cs')", *lines] if sources[-1] == "c" else lines


def _if_holds(lines: list[str], condition: str) -> list[str]:
    """Return statements for the case that a condition holds, or is unknown."""
    head = [f"b = holds(flags, {condition!r})"]
    unknown = list[str]()
    for line in lines:
        head.append(line if line.startswith("a = ") else f"if b: {line}")
        if line.startswith("store"):
            unknown.append(re.sub(r"\w+\)$", "None)", line))
        else:
            name = line.partition(" ")[0]
            unknown.append(f"{name} = {'UNKNOWN' if name == 'flags' else None}")
    return head + [f"if b is None: {line}" for line in unknown if line[:2] != "a "]


class UnknownPathError(UsageError):
    """Control flow that cannot be followed."""


@dataclass(frozen=True, slots=True)
class MachineCode:
    """An image's instructions, constant sections, and functions.

    Functions have their start, size and name.
    """

    syntax: AssemblySyntax
    instructions: Mapping[int, Instruction]
    constants: Sequence[tuple[int, bytes]]
    functions: Sequence[tuple[int, int, str]]

    def load(
        self, stack: Mapping[int, int], address: int | None, size: int, is_signed: bool
    ) -> int | None:
        """Return the value in memory, or None if it is unknown."""
        if address is None:
            return None
        if address > STACK_LIMIT or address in stack:
            return stack.get(address) if size == 4 else None
        for start, data in self.constants:
            at = address - start
            if 0 <= at <= len(data) - size:
                value = int.from_bytes(data[at : at + size], "little", signed=is_signed)
                return value & 0xFFFF_FFFF
        return None

    def function_at(self, address: int) -> tuple[int, int, str]:
        for start, size, name in self.functions:
            if start <= address < start + size:
                return start, size, name
        return address, 2, f"0x{address:08x}"

    def describe(self, address: int) -> str:
        start, _, name = self.function_at(address)
        return f"{name}+0x{address - start:x} (0x{address:08x})"

    def unknown(self, what: str, address: int) -> UnknownPathError:
        return UnknownPathError(what, where=self.describe(address), hint=_HINT)

    def initial_values(self) -> Values:
        """Return the registers at the start of a function whose return address is 0."""
        kinds = _REGISTERS[self.syntax]
        values: Values = {}
        for kind, count in kinds.items():
            values |= {f"{kind}{number}": None for number in range(count)}
        # errno is at an offset from tp; its address is not on the stack.
        known = dict.fromkeys((self.return_register, "tp"), 0)
        values["sar"] = None
        return values | known | {self.stack_register: STACK_TOP, "flags": UNKNOWN_FLAGS}

    @property
    def return_register(self) -> str:
        """The register of return addresses."""
        return _RETURN_REGISTERS[self.syntax]

    @property
    def stack_register(self) -> str:
        """The stack pointer."""
        return "a1" if self.syntax is AssemblySyntax.XTENSA else "sp"

    def instruction_address(self, address: int) -> int:
        """Return an address without the mark of Thumb code, which is its lowest bit."""
        return address & ~1 if self.syntax is AssemblySyntax.ARM else address
