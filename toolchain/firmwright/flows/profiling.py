"""What a run costs: in all, by operator, on the stack.

In: a `Compiled`. Out: a `Profile`. The total is of the release image: one call of the model's run,
sample 0 of seed 0, second run, the counter's own cost taken away. The operators' shares come from
the profile image, which is the same code with a probe around each; what its total is more is
`probe_overhead`. With `exact` (QEMU only) they come from counting.py instead: from the release
image, instruction by instruction, and with the cycles that a timing table gives them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from firmwright.artifacts import Compiler
from firmwright.flows.counting import Counts, count
from firmwright.flows.inputs import generated
from firmwright.flows.predicting import predicted
from firmwright.flows.sessions import ModelSession, open_session
from firmwright.pipeline import Compiled

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One operator's share, in the profile's unit; it is rounded to the counter's resolution.

    `predicted` is what the cost model said, in instructions. `modelled_cycles` and `kinds`
    (instructions by kind) are known of exact profiles only.
    """

    name: str
    kind: str
    macs: int
    count: int
    schedule: str
    predicted: int
    modelled_cycles: int | None = None
    kinds: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A model's cost on a board. `unit` is instructions, cycles or ns; a tick is `resolution`.

    `stack_bytes` is the deepest use since start-up, the runtime's included; None where nobody
    marks the stack, as on the host. `exact` has everything that was counted, if it was asked for.
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
    exact: Counts | None = None

    @property
    def macs(self) -> int:
        return sum(operator.macs for operator in self.operators)


def profile(
    compiled: Compiled,
    *,
    open_with: Callable[..., ModelSession] = open_session,
    exact: bool = False,
    compiler: Compiler = "gcc",
) -> Profile:
    """Measure `compiled` on its board; `exact` counts instructions one by one in QEMU."""
    counts = count(compiled, open_with=open_with, compiler=compiler) if exact else None
    said = predicted(compiled)
    (sample,) = generated(compiled.module.io.inputs, 1, 0).samples
    with open_with(compiled, variant="release", compiler=compiler) as session:
        log.info("measuring on %s", compiled.board.name)
        device = session.device
        total = device.measure(sample)
        info = device.info
        stack_bytes = device.stack_bytes() if info.stack_bytes else None
    if counts is not None:
        probed, operators = total, _counted(compiled, counts, said)
    else:
        with open_with(compiled, variant="profile", compiler=compiler) as session:
            log.info("measuring each operator on %s", compiled.board.name)
            probed = session.device.measure(sample)
            probes = session.device.profile()
        operators = tuple(
            _cost(row, probes[int(row["index"])].count, said) for row in _operator_rows(compiled)
        )
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
    )


def _operator_rows(compiled: Compiled) -> list[dict[str, Any]]:
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
    compiled: Compiled, counts: Counts, said: Mapping[int, int]
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
