"""What a run costs: in all, by operator, on the stack.

In: a `Compilation`. Out: a `Profile`. The total is of the release image: one call of the model's
run,
sample 0 of seed 0, second run, the counter's own cost taken away. The operators' shares come from
the profile image, which is the same code with a probe around each; what its total is more is
`probe_overhead`. Where nothing repeats exactly several runs are measured: the median counts, and
the least is told beside it. The firmware counts, so what the way to the board takes is in none of
them. With `exact` (QEMU only) shares come from counting.py instead: from the release image,
instruction by instruction, and with the cycles that a timing table gives them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any

from firmwright.artifacts import Compiler
from firmwright.boards import Board
from firmwright.build.compiler_flags import MODEL_OPTIMIZATION, clang_flags, compile_flags
from firmwright.build.compiler_selection import choose_compiler
from firmwright.build.zig_toolchain import zig_flags
from firmwright.device import OperatorCount, Session
from firmwright.flows.cost_prediction import predict_instructions
from firmwright.flows.html import profile_html
from firmwright.flows.instruction_counts import InstructionCounts, measure_instructions
from firmwright.flows.model_session import ModelSession, open_session
from firmwright.flows.sample_batches import Tensors, generate_samples
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)
RUNS = 11
"""How many are measured where a count does not repeat exactly."""


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One operator's share, in the profile's unit; it is rounded to the counter's resolution.

    `predict_instructions` is what the cost model said, in instructions. `modelled_cycles` and
    `kinds`
    (instructions by kind) are known of exact profiles only. `least` is that of the shortest run.
    """

    name: str
    kind: str
    macs: int
    count: int
    schedule: str
    predicted: int
    modelled_cycles: int | None = None
    kinds: Mapping[str, int] | None = None
    least: int | None = None


@dataclass(frozen=True, slots=True)
class ProfiledPool:
    """What the plan takes of a pool at most; 0 is no limit."""

    name: str
    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class Profile:
    """A model's cost on a board. `unit` is instructions, cycles or ns; a tick is `resolution`.

    `stack_bytes` is the deepest use since start-up, the runtime's included; None where nobody
    marks the stack, as on the host. `exact` has everything that was counted, if it was asked for.
    `total` is the median of `runs` runs, `least` the shortest. `clock_hz` is what the processor ran
    at, 0 where nobody says; `flags` are those that the model was compiled with.
    """

    model: str
    board: str
    unit: str
    total: int
    resolution: int
    operators: tuple[OperatorCost, ...]
    probe_overhead: int
    stack_bytes: int | None
    stack_reserve_bytes: int
    exact: InstructionCounts | None = None
    runs: int = 1
    least: int = 0
    clock_hz: int = 0
    flags: str = ""
    pools: tuple[ProfiledPool, ...] = ()

    @property
    def macs(self) -> int:
        return sum(operator.macs for operator in self.operators)

    def _repr_html_(self) -> str:
        return profile_html(self)


def profile(
    compiled: Compilation,
    *,
    open_with: Callable[..., ModelSession] = open_session,
    exact: bool = False,
    compiler: Compiler | None = None,
    runs: int | None = None,
) -> Profile:
    """Measure `compiled` on its board; `exact` counts instructions one by one in QEMU.

    `runs` are measured: 1 where counts repeat exactly, else RUNS, unless it is said.
    """
    runs = runs or (1 if compiled.board.run.kind == "qemu" else RUNS)
    counts = (
        measure_instructions(compiled, open_with=open_with, compiler=compiler) if exact else None
    )
    said = predict_instructions(compiled)
    (sample,) = generate_samples(compiled.module.io.inputs, 1, 0).samples
    with open_with(compiled, variant="release", compiler=compiler) as session:
        log.info("measuring on %s", compiled.board.name)
        device = session.device
        totals = list(device.measurements(sample, runs))
        info = device.info
        stack_bytes = device.stack_bytes() if info.stack_bytes else None
    total = median_low(totals)
    if counts is not None:
        probed, operators = total, _counted(compiled, counts, said)
    else:
        with open_with(compiled, variant="profile", compiler=compiler) as session:
            log.info("measuring each operator on %s", compiled.board.name)
            probed, operators = _probed(compiled, session.device, sample, runs, said)
    return Profile(
        model=compiled.module.name,
        board=compiled.board.name,
        unit=info.counter_unit,
        total=total,
        resolution=math.ceil(info.counter_scale),
        operators=operators,
        probe_overhead=probed - total,
        stack_bytes=stack_bytes,
        stack_reserve_bytes=info.stack_bytes,
        exact=counts,
        runs=runs,
        least=min(totals),
        clock_hz=_clock_hz(compiled.board, info.start_up_text),
        flags=_flags(compiled.board, choose_compiler(compiler)),
        pools=tuple(
            ProfiledPool(name, row["bytes"], row["limit_bytes"] or 0)
            for name, row in compiled.metadata["pools"].items()
        ),
    )


def _probed(
    compiled: Compilation, device: Session, sample: Tensors, runs: int, said: Mapping[int, int]
) -> tuple[int, tuple[OperatorCost, ...]]:
    """A run's cost with probes, and each operator's; of several runs the medians."""
    totals: list[int] = []
    counts: list[tuple[OperatorCount, ...]] = []
    for total in device.measurements(sample, runs):
        totals.append(total)
        counts.append(device.profile())
    operators = []
    for row in _operator_rows(compiled):
        own = [of_run[int(row["index"])].count for of_run in counts]
        operators.append(replace(_cost(row, median_low(own), said), least=min(own)))
    return median_low(totals), tuple(operators)


def _flags(board: Board, compiler: Compiler) -> str:
    """The compiler of the model, and what it is told."""
    flags = {"gcc": compile_flags, "clang": clang_flags, "zig": zig_flags}[compiler]
    return " ".join((compiler, MODEL_OPTIMIZATION, *flags(board)))


def _clock_hz(board: Board, start_up_text: str) -> int:
    """The raised clock, unless start-up says that it did not come up."""
    raised = board.clock is not None and not start_up_text
    return board.clock.hz if raised and board.clock is not None else board.clock_hz


def _operator_rows(compiled: Compilation) -> list[dict[str, Any]]:
    return sorted(compiled.metadata["operators"], key=lambda row: int(row["index"]))


def _cost(row: Mapping[str, Any], count: int, said: Mapping[int, int]) -> OperatorCost:
    return OperatorCost(
        str(row["name"]),
        str(row["kind"]),
        int(row["macs"]),
        count,
        str(row["schedule"]),
        said.get(int(row["index"]), 0),
    )


def _counted(
    compiled: Compilation, counts: InstructionCounts, said: Mapping[int, int]
) -> tuple[OperatorCost, ...]:
    costs = []
    for row in _operator_rows(compiled):
        share = counts.operators[int(row["index"])]
        cost = _cost(row, share.instructions, said)
        costs.append(
            replace(
                cost,
                modelled_cycles=share.cycles,
                kinds={str(kind): count for kind, count in share.kinds.items()},
            )
        )
    return tuple(costs)
