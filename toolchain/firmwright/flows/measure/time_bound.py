"""Upper bounds of a run's instructions and modeled cycles, from the linked firmware.

Interrupts, accesses of other devices to memory, and stalls that the cycle model lacks
are not included.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Final

from firmwright.artifacts import Image, StackUsage
from firmwright.base.errors import UsageError
from firmwright.boards import Board, Compiler
from firmwright.build.disassembler import disassemble
from firmwright.build.elf_reader import read_contents
from firmwright.codegen.function_printer import without_calls, without_constant_copies
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.measure.call_attribution import straight_calls
from firmwright.ir.module import IRModule
from firmwright.pipeline import Compilation
from firmwright.targets.block_cycle_bound import CycleBound
from firmwright.targets.core_timing import core_timings
from firmwright.targets.disassembly import syntax_of
from firmwright.targets.machine_code import MachineCode
from firmwright.targets.path_analysis import PathAnalysis, WorstPath

_TIMEOUT_S: Final = 300.0
"""The limit of an analysis by default, that of a run on a board."""


@dataclass(frozen=True, slots=True)
class OperatorBound:
    """The largest cost of one call of the model; `name` is its operator or function.

    `label` is the name for people.
    """

    index: int | None
    name: str
    label: str
    instructions: int
    cycles: int | None


@dataclass(frozen=True, slots=True)
class TimeBound:
    """The largest cost of a run; `cycles` is None for a core without pipeline model.

    `chip` and `clock_hz` are those for which the cycles hold; 0 is an unknown clock.
    """

    model: str
    board: str
    instructions: int
    cycles: int | None
    operators: tuple[OperatorBound, ...]
    stack: StackUsage
    path: WorstPath
    chip: str = ""
    clock_hz: int = 0

    @property
    def most_ms(self) -> float | None:
        """The time of the cycles in milliseconds; None if it is not known."""
        if self.cycles is None or not self.clock_hz:
            return None
        return 1e3 * self.cycles / self.clock_hz

    @property
    def longest(self) -> OperatorBound | None:
        return max(
            self.operators, key=lambda operator: operator.instructions, default=None
        )


def bound_time(
    compiled: Compilation,
    *,
    image: Image | None = None,
    compiler: Compiler | None = None,
    timing_board: Board | None = None,
    timeout_s: float | None = None,
) -> TimeBound:
    """Return bounds for all inputs and all sizes of a bounded axis.

    Raise UnknownPathError if a loop or jump depends on data, or if the analysis takes
    more than `timeout_s` seconds.
    """
    board = compiled.board
    if board.is_host:
        hint = "name a board with a microcontroller."
        raise UsageError(
            "bounds need the code of a microcontroller.", where=board.name, hint=hint
        )
    image = image or build_image(compiled, compiler=compiler)
    texts = [symbol for symbol in image.sizes.symbols if symbol.kind == "text"]
    texts.sort(key=lambda symbol: symbol.address)
    functions: list[tuple[int, int, str]] = []
    starts: dict[str, int] = {}
    for symbol in texts:
        start = symbol.address & ~1
        functions.append((start, symbol.size_bytes, symbol.name))
        starts[symbol.name] = start
    instructions, contents = disassemble(board, image.elf), read_contents(image.elf)
    code = MachineCode(syntax_of(board.core), instructions, contents, tuple(functions))
    cycles = _cycle_bound(code, timing_board or board, board)
    limit_s = timeout_s or _TIMEOUT_S
    analysis = PathAnalysis(cycles, limit_s)
    root = starts[f"{compiled.c_prefix}_run"]
    paths: list[WorstPath] = []
    for memory in _known_words(compiled.module, code, image):
        paths.append(analysis.run(starts["run"], root, memory))
    path = reduce(WorstPath.joined, paths)
    operators = _operator_bounds(compiled, code, path, has_cycles=bool(cycles.timing))
    total = round(path.cycles) if cycles.timing else None
    timed = timing_board or board
    return TimeBound(
        model=compiled.module.name,
        board=board.name,
        instructions=path.instructions,
        cycles=total,
        operators=operators,
        stack=image.stack,
        path=path,
        chip=timed.chip,
        clock_hz=timed.modeled_hz,
    )


def _operator_bounds(
    compiled: Compilation, code: MachineCode, path: WorstPath, *, has_cycles: bool
) -> tuple[OperatorBound, ...]:
    """Return the largest cost of each call of the model."""
    body = without_constant_copies(compiled.module, compiled.module.aot_main.body)
    indices = straight_calls(without_calls(body, lambda call: bool(call.device)))
    operators: list[OperatorBound] = []
    for i, (callee, count, spent) in enumerate(path.calls):
        index = indices[i] if len(indices) == len(path.calls) else None
        name = label = code.function_at(callee)[2]
        operator = compiled.summary.operator(index) if index is not None else None
        if operator is not None:
            name, label = operator.name, operator.label
        cost = round(spent) if has_cycles else None
        operators.append(OperatorBound(index, name, label, count, cost))
    return tuple(operators)


def _known_words(
    module: IRModule, code: MachineCode, image: Image
) -> list[dict[int, int]]:
    """Return what is known in memory before a run: each size of a bounded axis."""
    axis = module.settings.axis
    if axis is None:
        return [{}]
    names = [tensor.name for tensor in module.io.inputs]
    (inputs,) = [s.address for s in image.sizes.symbols if s.name == "inputs"]
    place = code.load({}, inputs + 4 * names.index(axis.name), 4, is_signed=False)
    assert place is not None
    return [{place: size} for size in axis.sizes]


def _cycle_bound(code: MachineCode, timed: Board, board: Board) -> CycleBound:
    timing, flash = core_timings().get(timed.pipeline or timed.core), timed.flash
    if timing is None or timing.latency:
        return CycleBound(code)
    waits = flash.wait_states + flash.prefetch if flash.wait_states else 0
    region = (board.flash.start, board.flash.size_bytes, waits, flash.read_bytes or 4)
    return CycleBound(code, timing, region)
