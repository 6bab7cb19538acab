"""Exact instruction counts of a run, by operator, kind and function, with cycles.

A plugin counts every instruction of the release image in QEMU (decision 0013). Cycles
are modeled by the core's pipeline (targets/cycle_model.py) and the flash of a board.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from firmwright.artifacts import Image, SymbolSize
from firmwright.base.cache_folder import cache_root
from firmwright.base.errors import DeviceError, ToolMissingError, UsageError
from firmwright.base.rounding import divide_up
from firmwright.boards import Board, Compiler
from firmwright.build.disassembler import disassemble
from firmwright.device.emulator_plugins import check_plugin_support
from firmwright.device.instruction_counter import (
    InstructionCount,
    InstructionCounter,
    build_counter_plugin,
)
from firmwright.flows.board.emulated_board import emulate
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import (
    ModelSession,
    SessionOpener,
    open_session,
)
from firmwright.flows.measure.call_attribution import (
    NO_OPERATOR,
    CodeIndex,
    commented_operators,
    group_by_operator,
)
from firmwright.flows.measure.core_timeline import (
    CoreCounts,
    CoreTimeline,
    CountedTime,
    build_timeline,
    has_declared_times,
    has_timeline,
    software_models,
    traced_functions,
)
from firmwright.flows.samples.sample_batches import Tensors, measured_sample
from firmwright.pipeline import Compilation
from firmwright.report.model import ParallelRun
from firmwright.targets.core_timing import CoreTiming
from firmwright.targets.cycle_model import Executed, modeled_cycles
from firmwright.targets.disassembly import (
    INSTRUCTION_KINDS,
    Instruction,
    InstructionKind,
)
from firmwright.targets.run_time import (
    RangeOrigin,
    RunTime,
    core_timing_of,
    run_time,
)


@dataclass(frozen=True, slots=True)
class InstructionShare:
    """Part of a run's counts; `cycles` is None for a core without a timing table."""

    instructions: int
    kinds: Mapping[InstructionKind, int]
    branches_taken: int
    cycles: int | None

    @property
    def duration(self) -> int:
        """Return the cycles, or the instructions of a core without a timing table."""
        return self.instructions if self.cycles is None else self.cycles


@dataclass(frozen=True, slots=True)
class InstructionCounts:
    """The counts of one run: total, by operator index, between operators, by function.

    `functions` is sorted, largest first. `timer` is the board counter's value for the
    same run, rounded to `resolution`. `timeline` is set if other devices take part or
    backends declare times. No other count includes the software models of devices.
    `machine` is the emulated one, `executed` all instructions.
    """

    total: InstructionShare
    operators: Mapping[int, InstructionShare]
    between: InstructionShare
    functions: tuple[tuple[str, int], ...]
    timing: CoreTiming | None
    timing_board: Board
    timer: int
    resolution: int
    timeline: CoreTimeline | None = None
    machine: str = ""
    executed: tuple[tuple[InstructionCount, Instruction], ...] = ()

    @property
    def time(self) -> RunTime | None:
        """The modeled time of the run; None without a timing table or a clock."""
        cycles = self.total.cycles
        return None if cycles is None else run_time(cycles, self.timing_board)

    @property
    def silicon_range(self) -> tuple[int, int] | None:
        """Return the cycles that measurements on chips support; None without any."""
        time = self.time
        if time is None or time.origin is RangeOrigin.ASSUMED:
            return None
        if time.most_cycles is None:
            return None
        return time.least_cycles, time.most_cycles

    def describe_cycles(self) -> str:
        """Describe the modeled cycles of the run, and the time."""
        cycles = self.total.cycles
        if cycles is None:
            return f"no timing of a {self.timing_board.core} is known"
        return f"{cycles:,}" if self.time is None else f"{cycles:,}; {self.time}"

    @property
    def parallel(self) -> ParallelRun | None:
        return None if self.timeline is None else self.timeline.parallel

    def until_over(self, *, in_cycles: bool) -> int:
        """Return the length of the run, modeled if there are several devices."""
        if self.timeline is not None:
            return self.timeline.makespan
        return self.total.duration if in_cycles else self.total.instructions


def _check_emulator(board: Board) -> None:
    """Raise UsageError without QEMU, ToolMissingError if it lacks plugins."""
    if board.run.kind != "qemu":
        hint = (
            "use --board mps2-an386, or another board that firmwright boards lists as "
            "emulated."
        )
        raise UsageError(
            "exact instruction counts need QEMU.", where=board.name, hint=hint
        )
    check_plugin_support(board.run.program)


def _check_timing_board(timed: Board, board: Board) -> None:
    """Raise UsageError if the board whose flash is modeled has another core."""
    if timed.core != board.core:
        what = f"{timed.name} has a {timed.core}, but the model runs on a {board.core}."
        raise UsageError(
            what, where="--timing-board", hint="name a board with the same core."
        )


def measure_instructions(
    compiled: Compilation,
    *,
    image: Image | None = None,
    compiler: Compiler | None = None,
    open_with: SessionOpener = open_session,
    sample: Tensors | None = None,
    timing_board: Board | None = None,
    in_cycles: bool | None = None,
    after_run: Callable[[ModelSession], None] = lambda session: None,
) -> InstructionCounts:
    """Count the instructions of the second run on the measured sample, like `profile`.

    `sample` replaces it; `after_run` is called with the session after the runs. Cycles
    are modeled for the flash of `timing_board`, by default of the model's board. The
    timeline of several devices is `in_cycles` or in instructions; by default in cycles
    if those of all other devices are declared. Raise ToolMissingError if QEMU lacks
    plugins or a compiler to build one is missing.
    """
    timed, compiled = timing_board or compiled.board, emulate(compiled)
    board = compiled.board
    _check_emulator(board)
    image = image or build_image(compiled, compiler=compiler)
    _check_timing_board(timed, board)
    code = CodeIndex(image, disassemble(board, image.elf))
    root = code.function(f"{compiled.c_prefix}_run")
    plugin = build_counter_plugin(cache_root() / "plugins")
    if sample is None:
        sample = measured_sample(compiled.module)
    traced = traced_functions(compiled, image) if has_timeline(compiled) else ()
    places = [(code.start(function), function.size_bytes) for function in traced]
    start, size_bytes = code.start(root), root.size_bytes
    region = (board.flash.start, board.flash.size_bytes, *timed.flash.read_model)
    flash = region if timed.flash.wait_states else ()
    settings = (places, flash, _addresses(image, software_models(compiled)))
    with InstructionCounter(plugin, start, size_bytes, *settings) as counter:
        try:
            with open_with(compiled, image=image, plugin=counter.argument) as session:
                timer = session.device.measure(sample)
                resolution = session.device.info.counter_scale
                after_run(session)
        except DeviceError as error:
            if counter.started:
                raise
            raise _plugin_error(board, error) from error
        cells, steps = counter.read(), counter.steps()
    counts = _counts(
        compiled=compiled,
        image=image,
        code=code,
        root=root,
        cells=cells,
        timed=timed,
        timer=timer,
        resolution=divide_up(resolution.numerator, resolution.denominator),
    )
    if not traced:
        return counts
    own = _core_counts(compiled, counts, in_cycles=in_cycles)
    return with_other_devices(counts, build_timeline(compiled, traced, steps, own))


def _plugin_error(board: Board, error: DeviceError) -> ToolMissingError:
    what = f"{board.run.program} does not load the counting plugin. {error}"
    hint = "install a QEMU with plugin interface 1 to 5, such as 7.2 or 10.0 (Debian)."
    return ToolMissingError(what, where=board.name, hint=hint)


def _addresses(image: Image, names: Collection[str]) -> tuple[int, ...]:
    """Return the addresses of C functions."""
    addresses: list[int] = []
    for symbol in image.sizes.symbols:
        if symbol.kind == "text" and symbol.name in names:
            addresses.append(CodeIndex.start(symbol))
    return tuple(addresses)


def _core_counts(
    compiled: Compilation, counts: InstructionCounts, *, in_cycles: bool | None
) -> CoreCounts:
    """Return the counts of the main core, in cycles if a timing table is known."""
    if in_cycles is None:
        in_cycles = has_declared_times(compiled)

    def time_of(share: InstructionShare) -> CountedTime:
        duration = share.duration if in_cycles else share.instructions
        return CountedTime(share.instructions, duration)

    unit = "cycles" if in_cycles and counts.timing is not None else "instructions"
    operators = {op: time_of(share) for op, share in counts.operators.items()}
    return CoreCounts(operators, time_of(counts.between), unit)


def with_other_devices(
    counts: InstructionCounts, line: CoreTimeline
) -> InstructionCounts:
    """Replace the counts of operators that other devices execute by theirs."""
    others = {op: InstructionShare(n, {}, 0, None) for op, n in line.elsewhere.items()}
    return replace(counts, operators={**counts.operators, **others}, timeline=line)


def _counts(
    compiled: Compilation,
    image: Image,
    code: CodeIndex,
    root: SymbolSize,
    cells: tuple[InstructionCount, ...],
    timed: Board,
    timer: int,
    resolution: int,
) -> InstructionCounts:
    """Return a run's counts, from those of each instruction and call site in the main.

    The instructions of the main itself are between the operators.
    """
    start = code.start(root)
    end = start + root.size_bytes
    own: list[InstructionCount] = []
    sites: dict[int, list[InstructionCount]] = {}
    for cell in cells:
        if start <= cell.address < end:
            own.append(cell)
        elif code.at(cell.site).kind == "call":
            sites.setdefault(cell.site, []).append(cell)
    times = {cell.address: cell.count for cell in own}
    commented = commented_operators(compiled, image, list(sites))
    operators = group_by_operator(compiled, code, times, sites, commented)
    own += operators.pop(NO_OPERATOR, [])
    timing = _timing(timed)
    scale = timed.calibration.scale if timed.calibration else 1.0

    def share(cells: Iterable[InstructionCount]) -> InstructionShare:
        return sum_of_counts(cells, code, timing, scale)

    everything = list(own)
    for group in operators.values():
        everything += group
    functions: Counter[str] = Counter()
    for cell in everything:
        functions[code.name_at(cell.address)] += cell.count
    largest_first = sorted(functions.items(), key=lambda item: (-item[1], item[0]))
    return InstructionCounts(
        total=share(everything),
        operators={index: share(group) for index, group in operators.items()},
        between=share(own),
        functions=tuple(largest_first),
        timing=timing,
        timing_board=timed,
        timer=timer,
        resolution=resolution,
        machine=compiled.board.run.machine,
        executed=tuple((cell, code.at(cell.address)) for cell in everything),
    )


def _timing(board: Board) -> CoreTiming | None:
    """Return the timing of a board's core, with its own calibration as the source."""
    timing, own = core_timing_of(board), board.calibration
    if timing is None or own is None:
        return timing
    return replace(timing, source=f"{timing.source}; calibrated on {own.measured}")


def sum_of_counts(
    cells: Iterable[InstructionCount],
    code: CodeIndex,
    timing: CoreTiming | None,
    scale: float = 1.0,
) -> InstructionShare:
    """Return the sums of instructions, with the cycles of their paths by the timing.

    A path is the code that one site calls, since an instruction's cycles depend on
    those before it.
    """
    kinds: Counter[InstructionKind] = Counter()
    branches_taken = 0
    stalls = 0.0
    sites: dict[int, list[Executed]] = {}
    for cell in sorted(cells, key=lambda cell: cell.address):
        instruction = code.at(cell.address)
        kinds[instruction.kind] += cell.count
        branches_taken += cell.taken
        stalls += cell.fetch_stalls + cell.data_stalls
        stalls += cell.unaligned * (timing.unaligned if timing else 0)
        executed = Executed(cell.address, instruction, cell.count, cell.taken)
        # Each instruction of the root is its own site.
        site = 0 if cell.site == cell.address else cell.site
        sites.setdefault(site, []).append(executed)
    cycles = None
    if timing is not None:
        paths = sum(modeled_cycles(timing, path) for path in sites.values())
        cycles = round(scale * (stalls + paths))
    ordered: dict[InstructionKind, int] = {}
    for kind in INSTRUCTION_KINDS:
        if kinds[kind]:
            ordered[kind] = kinds[kind]
    return InstructionShare(sum(kinds.values()), ordered, branches_taken, cycles)
