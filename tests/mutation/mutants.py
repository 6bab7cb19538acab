"""What a planted defect is, what becomes of it, and the table of many.

In: mutants. Out: one `Outcome` for each. A mutant is planted at run time, on values in memory or on
a copy of a source, never in the checkout. `caught` names the checker that refused it. `same` is for
a mutant that makes no difference, and says why that is proved: the same bytes come out, or every
reachable value is the same. Whatever is neither has survived: a checker has a hole.
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
    """One of: the checker that caught the mutant with what it said, or why it is none."""

    checker: str = ""
    said: str = ""
    same: str = ""

    @property
    def survived(self) -> bool:
        return not self.checker and not self.same


SURVIVED = Outcome()


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect of a kind at a site, and how it is planted and judged."""

    kind: str
    site: str
    judge: Callable[[], Outcome]


@dataclass(frozen=True, slots=True)
class Row:
    """A judged mutant: its kind, its site, what became of it."""

    kind: str
    site: str
    outcome: Outcome


def judged(mutants: Iterable[Mutant]) -> list[Row]:
    """All of them, in order."""
    return [Row(mutant.kind, mutant.site, mutant.judge()) for mutant in mutants]


def caught(checker: str, error: object) -> Outcome:
    """By an error's first line."""
    text = str(error).strip()
    return Outcome(checker, text.splitlines()[0] if text else type(error).__name__)


def drawn(items: Sequence[Item], count: int, seed: str) -> list[Item]:
    """`count` of the items, the same ones on every machine, in their order."""
    if len(items) <= count:
        return list(items)
    places = random.Random(seed).sample(range(len(items)), count)
    return [items[place] for place in sorted(places)]


def table(rows: Sequence[Row]) -> str:
    """Kinds down, checkers beside them, and what survived by name."""
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
