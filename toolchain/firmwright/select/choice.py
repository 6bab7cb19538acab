"""Which alternative each call takes, decided by what the planner says of a few trials.

In: for every call its alternatives, best first, and `ask`, which plans one pick for each call. Out:
the picks. Three steps. Trials in which all calls take their first, second, ... alternative tell
what each needs at its own moment; the largest of what calls need at best is what nothing gets
below. Every call then takes the first alternative that stays within that, and calls go on to
change theirs, one at a time, while the plan comes closer to it: neighbours have to agree on a
direction. A call whose change was for nothing takes its first alternative again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

ASKS_MAX = 160
TRIALS_MAX = 24

Picks: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a plan takes, and by the call's index what is needed at its moment.

    `call_bytes` counts what its input and output must have, `apart_bytes` both in full.
    """

    workspace_bytes: int
    call_bytes: Mapping[int, int]
    apart_bytes: Mapping[int, int]


Ask: TypeAlias = Callable[[Picks], Estimate]


def choose(widths: Sequence[int], ask: Ask) -> Picks:
    """The picks; `widths` counts each call's alternatives (0 for a call without a kernel)."""
    search = _Search(ask)
    first = tuple(0 for _ in widths)
    trials = _trials(widths)
    if len(trials) < 2:
        return first
    estimates = [search.ask(picks) for picks in trials]
    needs = _needs(widths, estimates)
    goal = max(min(mine) for mine in needs)
    picks = tuple(_first_within(mine, goal) for mine in needs)
    best = min((picks, *trials), key=lambda trial: search.ask(trial).workspace_bytes)
    binding = [
        call
        for call, width in enumerate(widths)
        if width > 1 and estimates[0].apart_bytes.get(call, 0) > goal
    ]
    improved = search.descend(best, goal, needs, binding)
    return search.relaxed(improved)


def needs_of(widths: Sequence[int], ask: Ask) -> list[list[int]]:
    """For each call and alternative the bytes that memory must hold at the call's moment."""
    return _needs(widths, [ask(picks) for picks in _trials(widths)])


def _trials(widths: Sequence[int]) -> list[Picks]:
    """All calls at their first alternative, at their second, ..."""
    return [
        tuple(min(index, width - 1) if width else 0 for width in widths)
        for index in range(max(widths, default=0))
    ]


def _needs(widths: Sequence[int], estimates: Sequence[Estimate]) -> list[list[int]]:
    return [
        [estimates[index].call_bytes.get(call, 0) for index in range(max(width, 1))]
        for call, width in enumerate(widths)
    ]


def _first_within(needs: Sequence[int], goal: int) -> int:
    within = [index for index, need in enumerate(needs) if need <= goal]
    return within[0] if within else needs.index(min(needs))


def improved(
    picks: Picks, goal: int, needs: Sequence[Sequence[int]], calls: Sequence[int], ask: Ask
) -> Picks:
    """`picks` with changes of `calls` that bring the plan closer to `goal`, after a few trials.

    `needs` has what each of a call's alternatives needs, of those that may be taken.
    """
    return _Search(ask, TRIALS_MAX).descend(picks, goal, needs, calls)


@dataclass
class _Search:
    """Asks, remembering the answers; stops changing things once it has asked enough."""

    planner: Ask
    asks_max: int = ASKS_MAX
    known: dict[Picks, Estimate] = field(default_factory=dict)

    def ask(self, picks: Picks) -> Estimate:
        if picks not in self.known:
            self.known[picks] = self.planner(picks)
        return self.known[picks]

    def bytes(self, picks: Picks) -> int:
        return self.ask(picks).workspace_bytes

    def descend(
        self, picks: Picks, goal: int, needs: Sequence[Sequence[int]], binding: Sequence[int]
    ) -> Picks:
        """Changes of one call that make the plan smaller, until there are none."""
        changed = True
        while changed and self.bytes(picks) > goal:
            changed = False
            for call in binding:
                for trial in _changes(picks, call, len(needs[call])):
                    if len(self.known) >= self.asks_max:
                        return picks
                    if needs[call][trial[call]] >= self.bytes(picks):
                        continue
                    if self.bytes(trial) < self.bytes(picks):
                        picks, changed = trial, True
        return picks

    def relaxed(self, picks: Picks) -> Picks:
        """First alternatives for all calls of which the plan does not need another."""
        for call, pick in enumerate(picks):
            if not pick:
                continue
            for trial in _changes(picks, call, pick):
                if self.bytes(trial) <= self.bytes(picks):
                    picks = trial
                    break
        return picks


def _changes(picks: Picks, call: int, width: int) -> Iterator[Picks]:
    """`picks` with another of the first `width` alternatives for `call`."""
    for index in range(width):
        if index != picks[call]:
            yield (*picks[:call], index, *picks[call + 1 :])
