"""Memory planners by name: the built-in ones, then entry points of packages.

The first line of a planner's docstring is its summary.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from typing import cast

from firmwright.base.errors import PluginError, UsageError
from firmwright.base.plugin_calls import entry_points, load_entry_point, plugin_call
from firmwright.ir.tir.plan import Planner
from firmwright.usmp.branch_and_bound import exact_planner, search_planner
from firmwright.usmp.heuristics import greedy_by_conflicts, greedy_by_size, hill_climb

PLANNER_ENTRY_POINTS = "firmwright.planners"
DEFAULT_PLANNER = "search"
BUILTIN_PLANNERS: Mapping[str, Planner] = {
    "greedy_by_size": greedy_by_size,
    "greedy_by_conflicts": greedy_by_conflicts,
    "hill_climb": hill_climb,
    "search": search_planner,
    "exact": exact_planner,
}


def planner_names() -> tuple[str, ...]:
    """Return the names of the built-in planners, then those of the installed ones."""
    return (*BUILTIN_PLANNERS, *sorted(_installed()))


def planner_summaries() -> dict[str, str]:
    """Return the first line of each planner's docstring by name."""
    summaries: dict[str, str] = {}
    for name in planner_names():
        docstring = find_planner(name).__doc__ or ""
        summaries[name] = docstring.strip().partition("\n")[0]
    return summaries


def find_planner(name: str) -> Planner:
    """Return the planner named `name`; raise UsageError if there is none."""
    if name in BUILTIN_PLANNERS:
        return BUILTIN_PLANNERS[name]
    point = _installed().get(name)
    if point is None:
        what = f"there is no memory planner {name!r}."
        names = ", ".join(planner_names())
        raise UsageError(what, hint=f"one of {names}.")
    planner = load_entry_point(point)
    if not callable(planner):
        what = f"the planner {name} is not a function."
        raise PluginError(what, where=point.value, hint="correct its package.")
    return cast(Planner, planner)


@contextmanager
def planner_call(planner: str | Planner) -> Iterator[None]:
    """Convert exceptions, also of the plan's validator, unless the planner is ours."""
    if planner in BUILTIN_PLANNERS or planner in BUILTIN_PLANNERS.values():
        yield
        return
    name = planner
    if not isinstance(name, str):
        name = getattr(planner, "__name__", "given")
    with plugin_call(f"the planner {name}"):
        yield


def _installed() -> dict[str, EntryPoint]:
    """Return the planners that packages offer, without names of built-in ones."""
    installed: dict[str, EntryPoint] = {}
    for point in entry_points(group=PLANNER_ENTRY_POINTS):
        if point.name not in BUILTIN_PLANNERS:
            installed[point.name] = point
    return installed
