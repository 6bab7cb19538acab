"""What a run costs: in all, by operator, on the stack.

In: a `Compiled`. Out: a `Profile`. The total is of the release image: one call of the model's run,
sample 0 of seed 0, second run, the counter's own cost taken away. The operators' shares come from
the profile image, which is the same code with a probe around each; what its total is more is
`probe_overhead`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from firmwright.flows.inputs import generated
from firmwright.flows.sessions import ModelSession, open_session
from firmwright.pipeline import Compiled

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One operator's share, in the profile's unit; it is rounded to the counter's resolution."""

    name: str
    kind: str
    macs: int
    count: int
    schedule: str


@dataclass(frozen=True, slots=True)
class Profile:
    """A model's cost on a board. `unit` is instructions, cycles or ns; a tick is `resolution`.

    `stack_bytes` is the deepest use since start-up, the runtime's included; None where nobody
    marks the stack, as on the host.
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

    @property
    def macs(self) -> int:
        return sum(operator.macs for operator in self.operators)


def profile(
    compiled: Compiled, *, open_with: Callable[..., ModelSession] = open_session
) -> Profile:
    """Measure `compiled` on its board."""
    (sample,) = generated(compiled.module.io.inputs, 1, 0).samples
    with open_with(compiled, variant="release") as session:
        log.info("measuring on %s", compiled.board.name)
        device = session.device
        total = device.measure(sample)
        info = device.info
        stack_bytes = device.stack_bytes() if info.stack_bytes else None
    with open_with(compiled, variant="profile") as session:
        log.info("measuring each operator on %s", compiled.board.name)
        probed = session.device.measure(sample)
        counts = session.device.profile()
    rows = {row["index"]: row for row in compiled.metadata["operators"]}
    operators = tuple(
        OperatorCost(
            str(rows[index]["name"]),
            str(rows[index]["kind"]),
            int(rows[index]["macs"]),
            counts[index].count,
            str(rows[index]["schedule"]),
        )
        for index in sorted(rows)
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
    )
