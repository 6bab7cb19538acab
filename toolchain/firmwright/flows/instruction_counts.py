"""Exact instructions of one run, by operator, kind and function, and the cycles a model gives them.

In: a `Compilation` for a board in QEMU. Out: `InstructionCounts` of the release image, as it is:
no probes. Every
instruction is counted by itself (device/instruction_counter.py), so the counts are exact whatever
the timer's
resolution. Invariant: operators and what lies between them add up to the total. Cycles are of a
table (targets/core_timing.py) and are called modelled everywhere: an emulator has none.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from firmwright.artifacts import Compiler, Image, SymbolSize
from firmwright.base.errors import DeviceError, InternalError, ToolMissingError, UsageError
from firmwright.build.elf_reader import read_code_sections
from firmwright.codegen.function_printer import without_constant_copies
from firmwright.device import (
    InstructionCount,
    InstructionCounter,
    build_counter_plugin,
    check_plugin_support,
)
from firmwright.flows.core_timeline import CoreTimeline, build_timeline, traced_functions
from firmwright.flows.cost_prediction import count_kernel_calls
from firmwright.flows.firmware_images import build_image, cache_root
from firmwright.flows.model_session import ModelSession, c_prefix, open_session
from firmwright.flows.sample_batches import Tensors, generate_samples
from firmwright.ir import tir
from firmwright.ir.tir.traversal import prim_calls, walk
from firmwright.pipeline import Compilation
from firmwright.targets import rv32_decoder, thumb_decoder
from firmwright.targets.core_timing import CORE_TIMINGS, CoreTiming
from firmwright.targets.instruction import INSTRUCTION_KINDS, Instruction, InstructionKind

_NO_OPERATOR = -1
"""The index of calls that belong to no operator: rows moved on within a segment."""


class SharedKernelError(UsageError):
    """Calls of several operators cannot be told apart in the image."""


@dataclass(frozen=True, slots=True)
class InstructionShare:
    """What some instructions of a run add up to. `cycles` is None for a core without a table."""

    instructions: int
    kinds: Mapping[InstructionKind, int]
    taken: int
    cycles: int | None


@dataclass(frozen=True, slots=True)
class InstructionCounts:
    """One run, exactly: by operator index, between operators, and by function (largest first).

    `timer` is what the board's counter said of the same run, rounded to `resolution`.
    `build_timeline` is
    there where a second core has a part; all else is of the core that runs the model.
    """

    total: InstructionShare
    operators: Mapping[int, InstructionShare]
    between: InstructionShare
    functions: tuple[tuple[str, int], ...]
    timing_source: str
    timer: int
    resolution: int
    timeline: CoreTimeline | None = None

    @property
    def until_over(self) -> int:
        """The instructions until the run is over; of two cores that work at once, as modelled."""
        return self.total.instructions if self.timeline is None else self.timeline.makespan


def measure_instructions(
    compiled: Compilation,
    *,
    image: Image | None = None,
    compiler: Compiler | None = None,
    open_with: Callable[..., ModelSession] = open_session,
    sample: Tensors | None = None,
    behind: Callable[[ModelSession], None] = lambda session: None,
) -> InstructionCounts:
    """Count the second of two runs on sample 0 of seed 0, as `profile` measures it.

    Another `sample` may be given; `behind` sees the session after the runs.
    Raises ToolMissingError where QEMU has no plugins or there is no compiler to make one.
    """
    board = compiled.board
    if board.run.kind != "qemu":
        raise UsageError(
            "instructions are counted one by one in QEMU only.",
            where=board.name,
            hint="--board mps2-an386, or another that firmwright boards shows as emulated.",
        )
    check_plugin_support(board.run.program)
    image = image or build_image(compiled, compiler=compiler)
    code = _CodeIndex(image, _decoder(board.core))
    root = code.function(f"{c_prefix(compiled)}_run")
    plugin = build_counter_plugin(cache_root() / "plugins")
    if sample is None:
        (sample,) = generate_samples(compiled.module.io.inputs, 1, 0).samples
    traced = traced_functions(compiled, image)
    places = [(code.start(function), function.size_bytes) for function in traced]
    with InstructionCounter(plugin, code.start(root), root.size_bytes, places) as counter:
        try:
            with open_with(compiled, image=image, plugin=counter.argument) as session:
                timer = session.device.measure(sample)
                resolution = session.device.info.counter_scale
                behind(session)
        except DeviceError as error:
            if counter.started:
                raise
            raise ToolMissingError(
                f"{board.run.program} does not take our plugin, so it cannot count. {error}",
                where=board.name,
                hint="a QEMU with version 1 of the plugin interface, such as Debian's 7.2.",
            ) from error
        cells, steps = counter.read(), counter.steps()
    tick = -(-resolution.numerator // resolution.denominator)
    found = _counts(compiled, code, root, cells, timer, tick)
    return with_second_core(found, build_timeline(compiled, traced, steps)) if traced else found


def with_second_core(counts: InstructionCounts, line: CoreTimeline) -> InstructionCounts:
    """`counts` with the operators of the second core as they are there, not as they are begun."""
    others = {op: InstructionShare(n, {}, 0, None) for op, n in line.of_operators(1).items()}
    return replace(counts, operators={**counts.operators, **others}, timeline=line)


def _decoder(core: str) -> Callable[[bytes], Instruction]:
    return thumb_decoder.decode_thumb if core.startswith("cortex-m") else rv32_decoder.decode_rv32


class _CodeIndex:
    """The instructions and functions of an image, by address."""

    def __init__(self, image: Image, decode: Callable[[bytes], Instruction]) -> None:
        self._sections = read_code_sections(image.elf)
        self._decode = decode
        # Bit 0 of a function's address says Thumb; no instruction has it set.
        texts = sorted((s for s in image.sizes.symbols if s.kind == "text"), key=self.start)
        self._functions = texts
        self._starts = [self.start(symbol) for symbol in texts]
        self._known: dict[int, Instruction] = {}

    @staticmethod
    def start(symbol: SymbolSize) -> int:
        """The address of its first instruction."""
        return symbol.address & ~1

    def function(self, name: str) -> SymbolSize:
        """The function of that name."""
        for symbol in self._functions:
            if symbol.name == name:
                return symbol
        raise InternalError(f"the image has no function {name}.")

    def at(self, address: int) -> Instruction:
        """The instruction there."""
        if address not in self._known:
            for start, code in self._sections:
                if 0 <= address - start < len(code):
                    at = address - start
                    self._known[address] = self._decode(code[at : at + 4])
                    break
            else:
                raise InternalError(f"code ran at 0x{address:08x}, outside the image.")
        return self._known[address]

    def name_at(self, address: int) -> str:
        """The function that holds `address`."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index >= 0 and address - self._starts[index] < self._functions[index].size_bytes:
            return self._functions[index].name
        return f"0x{address:08x}"


def _counts(
    compiled: Compilation,
    code: _CodeIndex,
    root: SymbolSize,
    cells: tuple[InstructionCount, ...],
    timer: int,
    resolution: int,
) -> InstructionCounts:
    start, end = code.start(root), code.start(root) + root.size_bytes
    own = [cell for cell in cells if start <= cell.address < end]
    sites: dict[int, list[InstructionCount]] = {}
    for cell in cells:
        if not start <= cell.address < end and code.at(cell.site).kind == "call":
            sites.setdefault(cell.site, []).append(cell)
    times = {cell.address: cell.count for cell in own}
    operators = _by_operator(compiled, code, times, sites)
    own += operators.pop(_NO_OPERATOR, [])
    timing = CORE_TIMINGS.get(compiled.board.core)
    everything = [*own, *(cell for group in operators.values() for cell in group)]
    return InstructionCounts(
        total=_share(everything, code, timing),
        operators={index: _share(group, code, timing) for index, group in operators.items()},
        between=_share(own, code, timing),
        functions=_by_function(everything, code),
        timing_source=timing.source if timing else "",
        timer=timer,
        resolution=resolution,
    )


def _by_operator(
    compiled: Compilation,
    code: _CodeIndex,
    times: Mapping[int, int],
    sites: Mapping[int, list[InstructionCount]],
) -> dict[int, list[InstructionCount]]:
    """What ran for each operator. `sites` come in the order of their first execution.

    A compiler may copy a call, so how often each site ran (`times`) says which operator's it is:
    sites of one kernel are dealt out, in order, until each operator has the calls that it makes.
    """
    main = compiled.module.entry
    assert isinstance(main, tir.PrimFunc)  # compiled to the end
    if any(call.phase != "call" for call in prim_calls(main.body)):
        return _named(compiled, code, sites)
    calls = _straight_calls(main.body)
    if len(calls) == len(sites) and all(times[site] == 1 for site in sites):
        # One after the other, whatever names the compiler left: it makes equal functions one.
        found = {op: list[InstructionCount]() for op in sorted(set(calls))}
        for op, cells in zip(calls, sites.values(), strict=True):
            found[op] += cells
        return found
    waiting: dict[str, list[tuple[int, int]]] = {}
    for (op, callee), count in count_kernel_calls(main.body).items():
        kernel = compiled.module.functions[callee]
        served = kernel.code if isinstance(kernel, tir.PrimFunc) else callee
        waiting.setdefault(f"{c_prefix(compiled)}_{served}", []).append((op, count))
    found = {op: [] for group in waiting.values() for op, _ in group}
    for site, cells in sites.items():
        # A compiler's copy of a function has a suffix.
        name = code.name_at(cells[0].address).partition(".")[0]
        op, left = waiting[name][0] if waiting.get(name) else (_NO_OPERATOR, 0)
        if times[site] > left:
            raise SharedKernelError(
                f"operators share {name} within a segment, so its calls cannot be told apart.",
                where=compiled.module.name,
                hint="profile without --count-instructions, or without --ram.",
            )
        waiting[name][0] = op, left - times[site]
        if left == times[site]:
            waiting[name].pop(0)
        found[op] += cells
    return dict(sorted(found.items()))


def _named(
    compiled: Compilation, code: _CodeIndex, sites: Mapping[int, list[InstructionCount]]
) -> dict[int, list[InstructionCount]]:
    """What ran for each operator of a main that begins calls of another core, by kernels' names.

    What begins and awaits is nobody's.
    """
    main = compiled.module.entry
    assert isinstance(main, tir.PrimFunc)
    body = without_constant_copies(compiled.module, main.body)
    queue = iter([call.op for call in prim_calls(body) if not call.device])
    found: dict[int, list[InstructionCount]] = {call.op: [] for call in prim_calls(main.body)}
    prefix = f"{c_prefix(compiled)}_"
    for cells in sites.values():
        name = code.name_at(cells[0].address)
        own = name.startswith(prefix) and name != f"{prefix}told"
        found.setdefault(next(queue, _NO_OPERATOR) if own else _NO_OPERATOR, []).extend(cells)
    return dict(sorted(found.items()))


def _straight_calls(body: tir.Stmt) -> list[int]:
    """The operators of the calls of a main without loops, in order; [] of another one."""
    nodes = list(walk(body))
    if any(isinstance(node, tir.For | tir.If | tir.While) for node in nodes):
        return []
    return [node.op for node in nodes if isinstance(node, tir.PrimFuncCall)]


def _share(
    cells: Iterable[InstructionCount], code: _CodeIndex, timing: CoreTiming | None
) -> InstructionShare:
    kinds: Counter[InstructionKind] = Counter()
    taken, cycles = 0, 0.0
    before: tuple[int, int, InstructionKind] | None = (
        None  # where it ended, for which site, what it was
    )
    for cell in sorted(cells, key=lambda cell: (cell.site, cell.address)):
        instruction = code.at(cell.address)
        kinds[instruction.kind] += cell.count
        taken += cell.taken
        if timing is not None:
            behind_load = before == (cell.address, cell.site, "load")
            cycles += timing.of(instruction, cell.count, cell.taken, after_load=behind_load)
        before = (cell.address + instruction.size_bytes, cell.site, instruction.kind)
    return InstructionShare(
        sum(kinds.values()),
        {kind: kinds[kind] for kind in INSTRUCTION_KINDS if kinds[kind]},
        taken,
        None if timing is None else round(cycles),
    )


def _by_function(
    cells: Iterable[InstructionCount], code: _CodeIndex
) -> tuple[tuple[str, int], ...]:
    found: Counter[str] = Counter()
    for cell in cells:
        found[code.name_at(cell.address)] += cell.count
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))
