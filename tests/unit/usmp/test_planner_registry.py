from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest

from firmwright.base.errors import UsageError
from firmwright.usmp import planner_registry
from firmwright.usmp.heuristics import greedy_by_size
from firmwright.usmp.planner_registry import (
    find_planner,
    planner_names,
    planner_summaries,
)


def test_builtin_planners_have_names_and_summaries() -> None:
    names = ("greedy_by_size", "greedy_by_conflicts", "hill_climb", "search", "exact")
    assert planner_names()[:6] == names
    assert all(planner_summaries()[name].endswith(".") for name in names)


def test_error_for_an_unknown_planner_lists_the_names() -> None:
    with pytest.raises(UsageError) as caught:
        find_planner("magic")
    assert str(caught.value) == (
        "there is no memory planner 'magic'. Try: one of greedy_by_size, greedy_by_conflicts, "
        "hill_climb, search, exact."
    )


def test_installed_package_can_provide_a_planner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = EntryPoint(
        "theirs",
        "firmwright.usmp.heuristics:greedy_by_size",
        planner_registry.PLANNER_ENTRY_POINTS,
    )
    chosen = EntryPoint(
        "search",
        "firmwright.usmp.heuristics:greedy_by_size",
        planner_registry.PLANNER_ENTRY_POINTS,
    )
    monkeypatch.setattr(
        planner_registry, "entry_points", lambda group: EntryPoints([point, chosen])
    )
    assert planner_names()[-1] == "theirs"
    assert find_planner("theirs") is greedy_by_size
    assert find_planner("search") is not greedy_by_size
