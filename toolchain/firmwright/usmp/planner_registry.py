"""Planners by name: the project's own, then those that packages offer as entry points.

An entry point of the group `firmwright.planners` is a function with the signature of
`ir.tir.plan.Planner`; its name must differ from ours. Its docstring's first line is its summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import cast

from firmwright.base.errors import UsageError
from firmwright.ir.tir.plan import Planner
from firmwright.usmp.branch_and_bound import exact_planner
from firmwright.usmp.cp_sat import cp_sat
from firmwright.usmp.default_planner import search_planner
from firmwright.usmp.greedy import greedy_by_conflicts, greedy_by_size
from firmwright.usmp.hill_climb import hill_climb

PLANNER_ENTRY_POINTS = "firmwright.planners"
DEFAULT_PLANNER = "search"
BUILTIN_PLANNERS: Mapping[str, Planner] = MappingProxyType(
    {
        "greedy_by_size": greedy_by_size,
        "greedy_by_conflicts": greedy_by_conflicts,
        "hill_climb": hill_climb,
        "search": search_planner,
        "exact": exact_planner,
        "cpsat": cp_sat,
    }
)


def planner_names() -> tuple[str, ...]:
    """All names `find_planner` knows, ours first."""
    return (*BUILTIN_PLANNERS, *sorted(_offered()))


def planner_summaries() -> dict[str, str]:
    """One line on each planner, by name."""
    return {name: _summary(find_planner(name)) for name in planner_names()}


def find_planner(name: str) -> Planner:
    """The planner of that name; UsageError listing the known ones if there is none."""
    if name in BUILTIN_PLANNERS:
        return BUILTIN_PLANNERS[name]
    offered = _offered()
    if name not in offered:
        known = ", ".join(planner_names())
        raise UsageError(f"there is no memory planner {name!r}.", hint=f"one of {known}.")
    return cast(Planner, offered[name].load())


def _offered() -> dict[str, EntryPoint]:
    found = sorted(
        entry_points(group=PLANNER_ENTRY_POINTS), key=lambda point: (point.name, point.value)
    )
    return {point.name: point for point in found if point.name not in BUILTIN_PLANNERS}


def _summary(planner: Planner) -> str:
    lines = (planner.__doc__ or "").strip().splitlines()
    return lines[0] if lines else ""
