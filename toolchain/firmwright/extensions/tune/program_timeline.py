"""A predicted timeline of a partition, and the moves that make its run shorter.

The search of `collage` minimizes the sum of all costs. If devices work at the same
time, the run ends earlier. The timeline follows the generated code: the core executes
its regions in their order, and each device those that it was given:

    core      a     e
    engine 0     b  c           move c to engine 1: the run ends earlier
    engine 1     d

A move replaces one region by another candidate for the same calls: another target, or
several that divide the operator. The costs of starts and waits are not predicted, so
that the whole program is measured in the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.extensions.tune.collage import (
    PartitionCandidate,
    PartitionedProgram,
    TransferCost,
)
from firmwright.ir.graph.nodes import Function, Value
from firmwright.partitioning.engine_instances import ComputedTensor
from firmwright.partitioning.regions import sort_topologically

_ROUNDS = 4
"""Maximum number of times that all regions are tried."""


@dataclass
class ProgramTimeline:
    """Predicts when the regions of a function's programs end.

    `devices` are those of the targets that work concurrently with the core.
    """

    function: Function
    devices: Mapping[str, str]
    transfer: TransferCost

    def makespan(self, parts: Sequence[PartitionCandidate]) -> int:
        """Return the cycles of a run of regions in execution order."""
        computed: dict[str, ComputedTensor] = {}
        for value in self.function.sources:
            computed[value.name] = ComputedTensor(0, "")
        free: dict[str, int] = {}
        now = 0
        for part in parts:
            ends: list[int] = []
            for target, count in _work(part):
                start = self._start(part, target, computed)
                device = self.devices.get(target, "")
                start = max(start, free.get(device, 0) if device else now)
                ends.append(start + count)
                if device:
                    free[device] = start + count
                else:
                    now = start + count
            # The parts of a divided operator are in memory that the core can access.
            target = "" if part.split else part.group.target
            complete = ComputedTensor(max(ends), target)
            for index in part.group.calls:
                for value in self.function.body[index].outputs:
                    computed[value.name] = complete
        for value in self.function.sinks:
            now = max(now, self._arrival(value, computed[value.name], ""))
        return max((now, *free.values()))

    def _start(
        self,
        part: PartitionCandidate,
        target: str,
        computed: Mapping[str, ComputedTensor],
    ) -> int:
        """Return the cycle in which a target has the inputs of a region."""
        start = 0
        for index in part.group.calls:
            for value in self.function.body[index].variables:
                tensor = computed.get(value.name)
                if tensor is not None:
                    start = max(start, self._arrival(value, tensor, target))
        return start

    def _arrival(self, value: Value, tensor: ComputedTensor, target: str) -> int:
        if tensor.target == target:
            return tensor.end
        return tensor.end + self.transfer(tensor.target, target, value.type.size_bytes)


def _work(part: PartitionCandidate) -> list[tuple[str, int]]:
    """Return the targets that execute a region, with their cycles."""
    if part.split:
        return [(own.share.target, own.count) for own in part.split]
    return [(part.group.target, part.cost.count)]


def shorten_run(
    timeline: ProgramTimeline,
    program: PartitionedProgram,
    candidates: Sequence[PartitionCandidate],
) -> PartitionedProgram:
    """Return the program after all moves that make its predicted run shorter.

    The regions with the highest cost are tried first. The result is the same program if
    no move helps.
    """
    others: dict[tuple[int, ...], list[PartitionCandidate]] = {}
    for candidate in candidates:
        if candidate.cost.status == "ok":
            others.setdefault(candidate.group.calls, []).append(candidate)
    by_calls = {part.group.calls: part for part in program.parts}
    groups = [part.group for part in program.parts]
    order = [group.calls for group in sort_topologically(timeline.function, groups)]
    best = timeline.makespan([by_calls[calls] for calls in order])
    for _ in range(_ROUNDS):
        before = best
        for calls in sorted(order, key=lambda own: (-by_calls[own].cost.count, own)):
            for other in others.get(calls, ()):
                moved = {**by_calls, calls: other}
                length = timeline.makespan([moved[own] for own in order])
                if length < best:
                    best, by_calls = length, moved
        if best == before:
            break
    parts = tuple(by_calls[part.group.calls] for part in program.parts)
    return program if parts == program.parts else replace(program, parts=parts)
