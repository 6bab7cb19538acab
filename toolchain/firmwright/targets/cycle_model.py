"""Modeled cycles of executed instructions: straight sequences through a pipeline.

A sequence begins where a branch arrives, and is priced once from there on with the
number of executions that continue through it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from firmwright.targets.core_timing import CoreTiming
from firmwright.targets.disassembly import Instruction
from firmwright.targets.scoreboard import Scoreboard

_WORD_BYTES = 4
_SINGLE_ACCESSES = ("load", "store")
_REPETITIONS = 8


@dataclass(frozen=True, slots=True)
class Executed:
    """An instruction, its executions, and those that branched."""

    address: int
    instruction: Instruction
    count: int
    branched: int


def modeled_cycles(timing: CoreTiming, executed: Iterable[Executed]) -> float:
    """Return the cycles of all executions; `executed` is in order of address."""
    return sum(_run_cycles(timing, run) for run in _straight_runs(executed))


def path_cycles(timing: CoreTiming, path: Sequence[tuple[int, Instruction]]) -> float:
    """Return the cycles of instructions since a branch arrived at the first."""
    pipeline = _Pipeline(timing, path[0][0])
    for address, instruction in path:
        pipeline.execute(address, instruction)
    return pipeline.now


def repeated_cycles(timing: CoreTiming, body: Sequence[Instruction]) -> float:
    """Return the cycles of one of many repetitions of `body`, one after the other."""
    pipeline = _pipeline_after(timing, body, 0)
    address, ends = 0, list[float]()
    for _ in range(_REPETITIONS):
        for instruction in body:
            pipeline.execute(address, instruction)
            address += instruction.size_bytes
        ends.append(pipeline.now)
    return (ends[-1] - ends[1]) / (_REPETITIONS - 2)


def _straight_runs(executed: Iterable[Executed]) -> Iterator[list[Executed]]:
    run: list[Executed] = []
    for step in executed:
        if run and run[-1].address + run[-1].instruction.size_bytes != step.address:
            yield run
            run = []
        run.append(step)
    if run:
        yield run


def _run_cycles(timing: CoreTiming, run: Sequence[Executed]) -> float:
    total, passed = 0.0, 0
    # Of several branches to one target, the one that is taken most is kept.
    ends: dict[int, int] = {}
    for i, step in sorted(enumerate(run), key=lambda item: item[1].branched):
        ends[step.instruction.target] = i
    for start, step in enumerate(run):
        arrivals = step.count - passed
        passed = step.count - step.branched
        total += timing.mispredicted * min(step.branched, passed)
        if arrivals > 0:
            loop = run[start : ends.get(step.address, -1) + 1]
            total += _path_cycles(timing, run[start:], arrivals, loop)
    return total


def _path_cycles(
    timing: CoreTiming,
    path: Sequence[Executed],
    arrivals: float,
    loop: Sequence[Executed],
) -> float:
    """Return the cycles of `arrivals` executions that follow `path` until they branch.

    `loop` is the part of the path that most of them have executed just before.
    """
    before_it = [step.instruction for step in loop]
    pipeline = _pipeline_after(timing, before_it, path[0].address)
    total, before = 0.0, 0.0
    for step in path:
        pipeline.execute(step.address, step.instruction)
        total += arrivals * (pipeline.now - before)
        before = pipeline.now
        arrivals *= 1 - step.branched / step.count
        if arrivals < 0.5:
            break
    return total


def _pipeline_after(
    timing: CoreTiming, loop: Sequence[Instruction], target: int
) -> "_Pipeline | Scoreboard":
    """Return a core that has executed `loop` and just branched to `target`."""
    if timing.latency:
        return Scoreboard(timing, loop)
    return _Pipeline(timing, target)


@dataclass(slots=True)
class _Pipeline:
    """A core that issues in order and has just branched to `target`.

    `now` counts cycles.
    """

    timing: CoreTiming
    target: int
    now: float = 0.0
    _before: Instruction | None = None
    _word: int = 0
    _fetched: float = 0.0
    _released: dict[int, float] = field(default_factory=dict)
    _ready: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._word = self.target // _WORD_BYTES
        self._fetched = self.timing.refill - 2

    def execute(self, address: int, instruction: Instruction) -> None:
        timing = self.timing
        start = self.now + (0.0 if self._before else timing.refill)
        if timing.fetch_words:
            start = max(start, self._fetch(address, instruction.size_bytes))
            self._release(address, instruction.size_bytes, start)
        if self._before:
            start += self._stall(self._before, instruction)
        cycles = timing.cycles.get(instruction.kind, timing.other)
        if instruction.kind in ("load_multiple", "store_multiple"):
            cycles += timing.per_register * instruction.words
        self.now = start + cycles
        self._before = instruction

    def _fetch(self, address: int, size_bytes: int) -> float:
        """Return when the instruction can execute: two cycles after its last fetch."""
        last = (address + size_bytes - 1) // _WORD_BYTES
        while self._word <= last:
            oldest = self._word - self.timing.fetch_words
            begin = max(self._fetched, self._released.get(oldest, 0.0))
            self._ready[self._word] = begin
            self._fetched = begin + 1
            self._word += 1
        return self._ready[last] + 2

    def _release(self, address: int, size_bytes: int, start: float) -> None:
        """Free the words that are consumed when the instruction leaves the decoder."""
        first = address // _WORD_BYTES
        end = (address + size_bytes) // _WORD_BYTES
        for word in range(first, end):
            self._released[word] = start - 1

    def _stall(self, before: Instruction, now: Instruction) -> float:
        timing = self.timing
        if before.kind == "load" and timing.load_tail:
            is_access = now.kind in _SINGLE_ACCESSES
            if is_access and not now.address & before.writes:
                return 0.0
            return timing.load_tail
        if now.address & before.writes and before.kind in ("alu", "multiply"):
            return timing.address_stall
        if before.writes & (now.reads | now.address):
            return timing.result_stall.get(before.kind, 0.0)
        return 0.0
