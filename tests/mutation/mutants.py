"""Mutants, their outcomes and the result table.

A mutant is planted at run time, on values in memory or on a copy of a source, never in
the checkout. `caught` names the checker that rejected it. `same` explains why a mutant
provably has no effect: equal bytes, or equal values for every reachable input. Any
other mutant has survived, which reveals a gap in the checkers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The checker that caught the mutant and its message, or why it has no effect."""

    checker: str = ""
    said: str = ""
    same: str = ""

    @property
    def survived(self) -> bool:
        return not self.checker and not self.same


SURVIVED = Outcome()


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect of a kind at a site, with the functions to plant and judge it."""

    kind: str
    site: str
    judge: Callable[[], Outcome]


@dataclass(frozen=True, slots=True)
class Row:
    """A judged mutant: kind, site and outcome."""

    kind: str
    site: str
    outcome: Outcome


def judged(mutants: Iterable[Mutant]) -> list[Row]:
    """Judge all mutants in order."""
    return [Row(mutant.kind, mutant.site, mutant.judge()) for mutant in mutants]


def caught(checker: str, error: object) -> Outcome:
    """Return the outcome for an error, described by its first line."""
    text = str(error).strip()
    return Outcome(checker, text.splitlines()[0] if text else type(error).__name__)


def drawn(items: Sequence[Item], count: int, seed: str) -> list[Item]:
    """Draw `count` items in order, the same on every machine."""
    if len(items) <= count:
        return list(items)
    places = random.Random(seed).sample(range(len(items)), count)
    return [items[place] for place in sorted(places)]


def table(rows: Sequence[Row]) -> str:
    """Return kinds by checkers, followed by the survivors."""
    lines = [f"{'kind of defect':46} planted caught same  checkers"]
    for kind in dict.fromkeys(row.kind for row in rows):
        mine = [row for row in rows if row.kind == kind]
        checkers = Counter(row.outcome.checker for row in mine if row.outcome.checker)
        same = sum(bool(row.outcome.same) for row in mine)
        names = ", ".join(f"{name} {count}" for name, count in checkers.most_common())
        planted, found = len(mine) - same, sum(checkers.values())
        lines.append(f"{kind:46} {planted:7} {found:6} {same:4}  {names}")
    planted = [row for row in rows if not row.outcome.same]
    survivors = [row for row in planted if row.outcome.survived]
    lines.append(
        f"{len(planted)} planted, {len(planted) - len(survivors)} caught, "
        f"{len(survivors)} survived; {len(rows) - len(planted)} more changed nothing"
    )
    lines += [f"  survived: {row.kind}: {row.site}" for row in survivors]
    return "\n".join(lines)
