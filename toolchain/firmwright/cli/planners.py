"""`firmwright planners`: list the memory planners."""

import argparse

from firmwright.cli.text_table import format_table
from firmwright.cli.verb import Outcome
from firmwright.usmp.planner_registry import DEFAULT_PLANNER, planner_summaries


def run(args: argparse.Namespace) -> Outcome:
    planners: list[dict[str, object]] = []
    rows: list[tuple[str, str, str]] = []
    for name, doc in planner_summaries().items():
        is_default = name == DEFAULT_PLANNER
        planners.append({"name": name, "default": is_default, "doc": doc})
        rows.append((name, "default" if is_default else "", doc))
    data = {"planners": planners, "default": DEFAULT_PLANNER}
    return Outcome(data, format_table(["planner", "", ""], rows))
