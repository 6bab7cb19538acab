"""Choice of the kernels with the smallest image within a time, for the goal `size`."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from firmwright.ir import tir
from firmwright.ir.tir.schedule import LoweringCandidate
from firmwright.select.flash_budget import CandidatesPerCall

# Kernels with one key share their code, so the cost of a kernel depends on those of other calls. A
# descent changes one call, or all calls that can use one key, as long as bytes + weight * time
# becomes less. Of the results for different weights, the smallest one within the time is best.

_UNIT = 1 << 20
"""One byte in the units of cost; a weight is the cost of a unit of time."""
_WEIGHTS = [(2 + step % 2 << step // 2) // 2 for step in range(8, 60)]
_ROUNDS_MAX = 8


@dataclass(frozen=True)
class SmallestImage:
    """Search for the smallest image; kernels with equal `key` share their code."""

    candidates_per_call: CandidatesPerCall
    key: Callable[[tir.PrimFunc], Hashable]
    time_max: int

    @cached_property
    def _options(self) -> list[list[tuple[LoweringCandidate, Hashable]]]:
        calls = (candidates for _, candidates in self.candidates_per_call if candidates)
        return [[(item, self.key(item.function)) for item in own] for own in calls]

    def choose(self) -> CandidatesPerCall:
        """Return each call with its one candidate, or without one."""
        plans = map(self._descend, reversed(_WEIGHTS))
        within = [picks for picks in plans if self._time(picks) <= self.time_max]
        best = min(within, key=self._bytes, default=self._descend(_WEIGHTS[-1]))
        chosen = iter(own[pick][0] for own, pick in zip(self._options, best, strict=True))
        return [
            (call, (next(chosen),) if candidates else ())
            for call, candidates in self.candidates_per_call
        ]

    def _descend(self, weight: int) -> list[int]:
        def cost(item: LoweringCandidate) -> int:
            return item.flash_bytes * _UNIT + item.time * weight

        picks = [
            min(range(len(own)), key=lambda i, own=own: own[i][0].time)  # type: ignore[misc]
            for own in self._options
        ]
        for _ in range(_ROUNDS_MAX):
            before = picks
            for key in dict.fromkeys(key for own in self._options for _, key in own):
                picks = self._moved_to(picks, key, cost)
            for index, own in enumerate(self._options):
                sharers = Counter(self._keys(picks))
                sharers[own[picks[index]][1]] -= 1
                costs = [
                    cost(item) + (0 if sharers[key] else item.code_bytes * _UNIT)
                    for item, key in own
                ]
                picks = [*picks[:index], costs.index(min(costs)), *picks[index + 1 :]]
            if picks == before:
                break
        return picks

    def _moved_to(
        self, picks: list[int], key: Hashable, cost: Callable[[LoweringCandidate], int]
    ) -> list[int]:
        """Return `picks` with all calls moved to the kernels of `key`, if that costs less."""
        moved = []
        for own, pick in zip(self._options, picks, strict=True):
            alike = [index for index, (_, other) in enumerate(own) if other == key]
            moved.append(min(alike, key=lambda i, own=own: cost(own[i][0]), default=pick))  # type: ignore[misc]
        own_costs = [
            sum(cost(own[pick][0]) for own, pick in zip(self._options, choice, strict=True))
            + self._code_bytes(choice) * _UNIT
            for choice in (moved, picks)
        ]
        return moved if own_costs[0] < own_costs[1] else picks

    def _keys(self, picks: Sequence[int]) -> list[Hashable]:
        return [own[pick][1] for own, pick in zip(self._options, picks, strict=True)]

    def _code_bytes(self, picks: Sequence[int]) -> int:
        codes: dict[Hashable, int] = {}
        for own, pick in zip(self._options, picks, strict=True):
            item, key = own[pick]
            codes[key] = max(codes.get(key, 0), item.code_bytes)
        return sum(codes.values())

    def _bytes(self, picks: Sequence[int]) -> int:
        pairs = zip(self._options, picks, strict=True)
        return self._code_bytes(picks) + sum(own[pick][0].flash_bytes for own, pick in pairs)

    def _time(self, picks: Sequence[int]) -> int:
        return sum(own[pick][0].time for own, pick in zip(self._options, picks, strict=True))
