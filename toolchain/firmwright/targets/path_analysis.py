"""Worst-case paths through machine code, by execution with known values.

Counters, addresses and constants are known, so loops run as they do on the core. Where
a branch depends on data, both sides are followed. Where they meet, values that differ
become unknown, and the larger cost counts. Of several states, the one at the earliest
place in the code is advanced: in an earlier iteration of the innermost common loop, or
else first in reverse postorder.
"""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from firmwright.targets import machine_code
from firmwright.targets.block_compiler import Block, BlockCompiler
from firmwright.targets.block_cycle_bound import CycleBound
from firmwright.targets.machine_code import (
    LIBRARY_LOOPS,
    MachineCode,
    UnknownPathError,
    Values,
)

_CHECKED_BLOCKS: Final = 4096
"""Executed blocks from one look at the clock to the next."""
_MEETINGS_MAX: Final = 20_000
_UNBOUNDED: Final = (
    "the number of iterations of the loop before this place depends on data."
)
_Place: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WorstPath:
    """The largest cost of a function, and that of each of its calls.

    `calls` are callee, instructions and cycles; `executions` has a bound for each
    instruction, whatever side of a branch it is on. `counts` has the executions on the
    path of the most instructions, which add up to `instructions`.
    """

    instructions: int
    cycles: float
    calls: tuple[tuple[int, int, float], ...]
    executions: Mapping[int, int]
    counts: Mapping[int, int]

    def joined(self, other: "WorstPath") -> "WorstPath":
        """Return the largest costs of two runs with the same calls."""
        calls: list[tuple[int, int, float]] = []
        for (callee, *mine), (_, *others) in zip(self.calls, other.calls, strict=True):
            instructions, cycles = map(max, mine, others)
            calls.append((callee, int(instructions), cycles))
        longest = max(self, other, key=lambda path: path.instructions)
        return WorstPath(
            longest.instructions,
            max(self.cycles, other.cycles),
            tuple(calls),
            executions=Counter(self.executions) | Counter(other.executions),
            counts=longest.counts,
        )


@dataclass(slots=True)
class _State:
    """A point of execution.

    `frames` has the function, return address and place of each open call. `begin` is
    the cost before the open call of the analyzed function. `iterations` of loops are
    counted by header, and executions of `blocks` by address, since there has been more
    than one state.
    """

    address: int
    entry: int
    values: Values
    stack: dict[int, int]
    frames: tuple[tuple[int, int, _Place], ...] = ()
    instructions: int = 0
    begin: tuple[int, float] = (0, 0.0)
    iterations: dict[int, int] = field(default_factory=dict)
    blocks: Counter[int] = field(default_factory=Counter)
    meetings: int = 0

    def copy(self, address: int) -> "_State":
        return _State(
            address=address,
            entry=self.entry,
            values=dict(self.values),
            stack=dict(self.stack),
            frames=self.frames,
            instructions=self.instructions,
            begin=self.begin,
            iterations=dict(self.iterations),
            blocks=self.blocks.copy(),
        )

    def meet(self, other: "_State") -> None:
        mine, others = self.values, other.values
        for name in [name for name, value in mine.items() if value != others[name]]:
            mine[name] = machine_code.UNKNOWN_FLAGS if name == "flags" else None
        if self.stack != other.stack:
            self.stack = dict(self.stack.items() & other.stack.items())
        if other.instructions > self.instructions:
            self.instructions, self.blocks = other.instructions, other.blocks
        self.meetings += 1


class _Function:
    """The order of the blocks of a function, and its loops: their blocks by header."""

    def __init__(self, compiler: BlockCompiler, entry: int, code: MachineCode) -> None:
        before: dict[int, list[int]] = {entry: []}
        finished: list[int] = []
        open_blocks = [(entry, iter(compiler.block(entry).successors))]
        while open_blocks:
            address, successors = open_blocks[-1]
            successor = next(successors, None)
            if successor is None:
                finished.insert(0, address)
                open_blocks.pop()
                continue
            if successor not in before:
                following = iter(compiler.block(successor).successors)
                open_blocks.append((successor, following))
            before.setdefault(successor, []).append(address)
        self.order = {address: i for i, address in enumerate(finished)}
        self.loops: dict[int, set[int]] = {}
        for header in finished:
            inside = [a for a in before[header] if self.order[a] >= self.order[header]]
            loop = {header}
            if inside:
                self.loops[header] = loop
            while inside:
                address = inside.pop()
                inside += () if address in loop else before[address]
                loop.add(address)
        self.repetitions = _repetitions(code, self.loops)
        self.headers: dict[int, list[int]] = {address: [] for address in finished}
        for header, loop in self.loops.items():
            for address in finished:
                if address in loop:
                    self.headers[address].append(header)


def _repetitions(code: MachineCode, headers: Iterable[int]) -> dict[int, int]:
    """Return the largest repetitions of the loops with these headers.

    Those of a function that jumps into another are found in both.
    """
    repetitions: dict[int, int] = {}
    seen: Counter[str] = Counter()
    for header in sorted(headers):
        start, size_bytes, name = code.function_at(header)
        addresses = range(start, start + size_bytes, 2)
        found = [code.instructions[a] for a in addresses if a in code.instructions]
        # libgcc's float routines for Armv6-M are other ones, with known counters.
        is_wide = any(i.size_bytes == 4 and i.kind != "call" for i in found)
        names = [f"{name}@thumb2", name] if is_wide else [name]
        limits = next(
            (LIBRARY_LOOPS[name] for name in names if name in LIBRARY_LOOPS),
            (1 << 32,),
        )
        repetitions[header] = limits[min(seen[name], len(limits) - 1)]
        seen[name] += 1
    return repetitions


class PathAnalysis:
    """Finds the worst path of functions of an image, priced by `cycles`.

    Raise UnknownPathError after `timeout_s` seconds.
    """

    def __init__(self, cycles: CycleBound, timeout_s: float = math.inf) -> None:
        self._timeout_s, self._end = timeout_s, time.monotonic() + timeout_s
        self._blocks = 0
        self._code = cycles.code
        self._cycles = cycles
        self._compiler = BlockCompiler(cycles.code, cycles.load, cycles.store)
        self._functions: dict[int, _Function] = {}
        self._pending: dict[tuple[object, ...], _State] = {}
        self._calls: list[tuple[int, int, float]] = []
        self._shared: Counter[int] = Counter()
        """Executions of blocks while there was one state, which all paths share."""

    def run(
        self, caller: int, root: int, memory: Mapping[int, int] = MappingProxyType({})
    ) -> WorstPath:
        """Return the worst path of the function at `root`, which `caller` calls.

        `memory` has the words that are known at the start, by address.
        """
        executions: Counter[int] = Counter()
        self._calls, self._shared, self._cycles.total = [], Counter(), 0.0
        most, longest = 0, executions
        state: _State | None = self._start(caller, root, memory)
        while state is not None:
            source = state.address
            block = self._compiler.block(source)
            state.instructions += len(block.addresses)
            executions[source] += 1
            (state.blocks if self._pending else self._shared)[source] += 1
            self._cycles.add(block)
            self._check_time(source)
            following = self._step(block, state)
            if following is None:
                self._fork(block, state)
            elif block.kind == "jump":
                state.address = following
            elif block.kind == "call":
                if not state.frames:
                    state.begin = state.instructions, self._cycles.total
                state.frames += ((state.entry, block.end, self._place(state)),)
                following = self._code.instruction_address(following)
                state.address = state.entry = following
            elif state.frames or following:
                self._leave(state, self._code.instruction_address(following))
            else:
                if state.instructions > most:
                    most, longest = state.instructions, self._shared + state.blocks
                state = self._next()
                continue
            if self._pending:
                self._suspend(source, state)
                state = self._next()
        return WorstPath(
            most,
            self._cycles.total,
            tuple(self._calls),
            executions=self._by_instruction(executions),
            counts=self._by_instruction(longest),
        )

    def _by_instruction(self, blocks: Mapping[int, int]) -> Counter[int]:
        found: Counter[int] = Counter()
        for start, count in blocks.items():
            addresses = self._compiler.block(start).addresses
            found.update(dict.fromkeys(addresses, count))
        return found

    def _check_time(self, address: int) -> None:
        self._blocks += 1
        if self._blocks % _CHECKED_BLOCKS == 0 and time.monotonic() > self._end:
            what = f"the analysis did not end within {self._timeout_s:g} seconds."
            hint = "give it more by --timeout, or take a smaller model."
            where = self._code.describe(address)
            raise UnknownPathError(what, where=where, hint=hint)

    def _start(self, caller: int, root: int, memory: Mapping[int, int]) -> _State:
        state = _State(caller, root, self._code.initial_values(), dict(memory))
        while state.address != root:
            following = self._step(self._compiler.block(state.address), state)
            if not following:
                what = "the call of the model is not found."
                raise self._code.unknown(what, state.address)
            state.address = self._code.instruction_address(following)
        state.values[self._code.return_register] = 0
        return state

    def _step(self, block: Block, state: _State) -> int | None:
        try:
            following = block.step(state.values, state.stack)
        except LookupError as error:
            raise self._code.unknown(str(error), state.address) from error
        if following is None and block.kind != "jump":
            what = "the target of a jump depends on data."
            raise self._code.unknown(what, state.address)
        return following

    def _fork(self, block: Block, state: _State) -> None:
        if not self._pending:
            state.iterations = {}
        source = state.address
        state.address, *others = dict.fromkeys(block.successors)
        for address in others:
            self._suspend(source, state.copy(address))

    def _leave(self, state: _State, following: int) -> None:
        """Return from a function, or continue in one that returns to the same place."""
        state.address = following
        callee, frames = state.entry, state.frames
        # A product or quotient of doubles calls a part of itself that may return to the
        # caller of the whole.
        while frames and following != frames[-1][1]:
            callee, frames = frames[-1][0], frames[:-1]
        if not frames:
            state.entry = following
            return
        state.entry, state.frames = frames[-1][0], frames[:-1]
        if not state.frames:
            instructions, cycles = state.begin
            cost = state.instructions - instructions, self._cycles.total - cycles
            self._calls.append((callee, *cost))
            live = state.values[self._code.stack_register]
            state.stack = {a: value for a, value in state.stack.items() if a >= live}

    def _suspend(self, source: int, state: _State) -> None:
        function = self._function(state.entry)
        loop = function.loops.get(state.address)
        if loop is not None:
            count = state.iterations.get(state.address, 0) + 1 if source in loop else 0
            state.iterations[state.address] = count
            if count > function.repetitions[state.address] and self._pending:
                return
        key = (self._place(state), state.address, state.frames)
        other = self._pending.setdefault(key, state)
        if other is not state:
            other.meet(state)
            if other.meetings > _MEETINGS_MAX:
                raise self._code.unknown(_UNBOUNDED, state.address)

    def _next(self) -> _State | None:
        if not self._pending:
            return None
        state = self._pending.pop(min(self._pending))
        state.meetings = 0
        if not self._pending:
            self._shared += state.blocks
            state.blocks.clear()
        return state

    def _place(self, state: _State) -> _Place:
        function = self._function(state.entry)
        place = state.frames[-1][2] if state.frames else ()
        for header in function.headers[state.address]:
            place += (function.order[header], state.iterations.get(header, 0))
        return (*place, function.order[state.address])

    def _function(self, entry: int) -> _Function:
        if entry not in self._functions:
            self._functions[entry] = _Function(self._compiler, entry, self._code)
        return self._functions[entry]
