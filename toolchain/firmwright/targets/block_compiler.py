"""Blocks of machine code as Python functions, and the blocks that can follow them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from firmwright.targets.disassembly import Instruction
from firmwright.targets.machine_code import (
    REGISTER,
    TABLES,
    MachineCode,
    Values,
    effects,
    match_row,
    read_text,
    statement_names,
)

_TAKEN: Final = 1
"""Added to the address of a conditional instruction: the block if it does leave."""
_PAIRS: Final = ("eq ne", "cs cc", "hs lo", "mi pl", "hi ls", "ge lt", "gt le", "vs vc")
_OPPOSITE: Final = dict(p.split()[::way] for p in _PAIRS for way in (1, -1))
_OWN_ARRAYS: Final = frozenset(TABLES["own_arrays"].split())
"""Library functions that store to unknown places of arrays in their frames."""
_FRAME: Final = re.compile(r"(?:sub(?:\.w)? sp,(?: sp,)? ?#|addi? sp, ?sp, ?-)(\w+)")
_ERRNO: Final = "__errno"
"""A function of newlib that returns an address, which is not on the stack."""


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions with one entry; `step` executes them.

    It returns the next address, or None. A call returns to `end`. `successors` are the
    possible next blocks of the function.
    """

    kind: Literal["jump", "call", "exit"]
    step: Callable[[Values, dict[int, int]], int | None]
    addresses: tuple[int, ...]
    end: int
    successors: tuple[int, ...]


_End: TypeAlias = tuple[Literal["jump", "call", "exit"], str, tuple[int, ...]]
"""The kind, the expression of the next address (None: unknown), and the next blocks."""


class BlockCompiler:
    """Compiles the blocks of an image on demand; branches jump to `targets`."""

    def __init__(
        self, code: MachineCode, load: Callable[..., Any], store: Callable[..., Any]
    ) -> None:
        instructions = code.instructions.values()
        self.targets = {instruction.target for instruction in instructions}
        self._code = code
        self._names = statement_names(load, store)
        self._blocks: dict[int, Block] = {}

    def block(self, address: int) -> Block:
        if address not in self._blocks:
            self._blocks[address] = self._compile(address)
        return self._blocks[address]

    def _compile(self, start: int) -> Block:
        lines = list[str]()
        addresses = list[int]()
        conditions = list[str]()
        address = self._code.instruction_address(start)
        end = None
        is_taken = start != address
        while end is None:
            instruction = self._code.instructions.get(address)
            if instruction is None:
                raise self._code.unknown("execution leaves the code.", address)
            condition = conditions.pop(0) if conditions else ""
            if is_taken:
                condition = instruction.text.split()[0].partition(".")[0][-2:]
            addresses += [] if is_taken else [address]
            if instruction.kind == "if_then":
                name, first = instruction.text.split()
                conditions = [first if c == "t" else _OPPOSITE[first] for c in name[1:]]
            following = address + instruction.size_bytes
            end = self._end(lines, instruction, address, condition, is_taken=is_taken)
            address = following
            if end is None and address in self.targets and not conditions:
                end = "jump", str(address), (address,)
        names = dict(self._names)
        lines = self._library_effects(lines, start)
        exec(self._source(lines, end[1]), names)
        return Block(end[0], names["step"], tuple(addresses), address, end[2])

    def _library_effects(self, lines: list[str], start: int) -> list[str]:
        """Return the statements of a block, with the effects of library functions."""
        entry, size_bytes, name = self._code.function_at(start)
        if name == _ERRNO:
            return [*lines, "r0 = 0"]
        if name not in _OWN_ARRAYS:
            return lines
        frame = 0
        for address in range(entry, entry + size_bytes):
            instruction = self._code.instructions.get(address)
            found = _FRAME.match(instruction.text) if instruction else None
            if found:
                frame = int(found[1], 0)
                break
        local = f"store_local(stack, sp, {frame}, "
        return [line.replace("store(stack, ", local) for line in lines]

    def _end(
        self,
        lines: list[str],
        instruction: Instruction,
        address: int,
        condition: str,
        *,
        is_taken: bool,
    ) -> _End | None:
        """Add an instruction; return how it ends a block, or None if it does not."""
        syntax, kind = self._code.syntax, instruction.kind
        text = read_text(instruction, address, condition)
        loads_pc = "load" in kind and re.search(r"pc\}$|^ldr pc", text)
        if kind not in ("branch", "call", "loop") and not loads_pc:
            lines += effects(instruction, text, condition, syntax)
            return None
        following = address + instruction.size_bytes
        if condition and not is_taken:
            known = f"holds(flags, {condition!r})"
            return _fork(lines, known, address | _TAKEN, following)
        if loads_pc:
            lines += effects(instruction, text, "", syntax)
            return "exit", "pc", ()
        if text.startswith(("tbb", "tbh")):
            return self._table_end(lines, text, following)
        row = match_row(text, f"{syntax.value}_ends")
        if row is None:
            raise self._code.unknown(f"{instruction.text} cannot be followed.", address)
        lines += row[:-1]
        how, _, rest = row[-1].partition(" ")
        if how == "fork":
            target, _, known = rest.partition(" ")
            return _fork(lines, known, int(target, 16), following)
        if how == "call":
            goal, link, thumb = rest.rsplit(" ", 2)
            lines += [f"c = {goal}", f"{link} = {following | int(thumb)}"]
            return "call", "c", (following,)
        if how == "exit":
            return "exit", rest, ()
        if how == "switch":
            return self._switch_end(address, rest)
        reached = following if how == "next" else instruction.target
        return "jump", str(reached), (reached,)

    def _switch_end(self, address: int, register: str) -> _End:
        """Return the end of a block that jumps to an address from a table.

        The targets are all words among the constants that are in the function; without
        any, it is a return or a call at the end.
        """
        words = self._offsets(register, address) or self._addresses(address)
        if register in ("lr", "ra", "a0") or not words:
            return "exit", register, ()
        targets = {word: self._code.instruction_address(word) for word in words}
        reached = tuple(dict.fromkeys(targets.values()))
        self.targets.update(reached)
        known = f"None if {register} is None else {targets}[{register}]"
        return "jump", known, reached

    def _addresses(self, address: int) -> list[int]:
        """Return all words among the constants that are inside the function."""
        start, size_bytes, _ = self._code.function_at(address)
        words = set()
        for _, data in self._code.constants:
            for at in range(0, len(data) - 3, 4):
                words.add(int.from_bytes(data[at : at + 4], "little"))
        return sorted(words & {*range(start + 1, start + size_bytes)})

    def _offsets(self, register: str, address: int) -> list[int]:
        """Return the targets in a table of offsets to its own address (RISC-V).

        The last instructions before the jump form the address and add it.
        """
        instructions = self._code.instructions
        before = [a for a in range(address - 32, address) if a in instructions]
        texts = [read_text(instructions[a], a) for a in before]
        added = re.fullmatch(rf"add {register}, {register}, (\w+)", (texts or [""])[-1])
        found = re.search(
            rf"li {added[1]}, (\d+)\naddi? {added[1]}, {added[1]}, (-?\d+)\n"
            if added
            else r"(?!)",
            "\n".join(texts),
        )
        if found is None:
            return []
        table, targets = int(found[1]) + int(found[2]), list[int]()
        start, size_bytes, _ = self._code.function_at(address)
        while True:
            offset = self._code.load({}, table + 4 * len(targets), 4, False)
            target = (table + (offset or 0)) & 0xFFFF_FFFF
            if not start < target < start + size_bytes or target not in instructions:
                return targets
            targets.append(target)

    def _table_end(self, lines: list[str], text: str, start: int) -> _End:
        """Return the end of a block that jumps by the table of offsets after it."""
        match = re.fullmatch(r"tb([bh]) \[\w+, (?:lsl\()?(\w+).*", text)
        if match is None:
            raise self._code.unknown("a jump table has an unknown form.", start - 4)
        size, index = 1 + (match[1] == "h"), match[2]
        limit = self._compared_with(index, start - 4)
        reached = list[int]()
        place = start
        # Without a comparison, the code after the table is the nearest target.
        while place < min(reached, default=place + 1):
            if limit is not None and len(reached) > limit:
                break
            offset = self._code.load({}, place, size, False)
            if not offset:
                break
            reached.append(start + 2 * offset)
            place += size
        targets = tuple(reached)
        self.targets.update(targets)
        return "jump", f"None if {index} is None else {targets}[{index}]", targets

    def _compared_with(self, register: str, address: int) -> int | None:
        """Return the number to which code before `address` compares a register."""
        for back in range(2, 24, 2):
            instruction = self._code.instructions.get(address - back)
            if instruction is None:
                continue
            limit = re.fullmatch(rf"cmp\S* {register}, #(\d+)", instruction.text)
            if limit is not None:
                return int(limit[1])
        return None

    def _source(self, lines: list[str], expression: str) -> str:
        values = self._code.initial_values()
        found = frozenset(REGISTER.findall(f"{lines} {expression}"))
        registers = sorted(found - {"pc", "zero"})
        body = [f"{name} = values.get({name!r})" for name in registers]
        body.append("zero, flags = 0, values['flags']")
        body += [line for line in lines if not line.startswith("zero = ")]
        saved = [name for name in registers if name in values]
        body += [f"values[{name!r}] = {name}" for name in saved]
        body += ["values['flags'] = flags", f"return {expression}"]
        return "\n ".join(["def step(values, stack):", *body]) + "\n"


def _fork(lines: list[str], condition: str, taken: int, following: int) -> _End:
    lines.append(f"c = {condition}")
    expression = f"None if c is None else {taken} if c else {following}"
    return "jump", expression, (taken, following)
