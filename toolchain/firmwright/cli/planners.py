"""`firmwright planners`: list the memory planners."""

from __future__ import annotations

import argparse

from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.usmp.planner_registry import DEFAULT_PLANNER, planner_summaries

NAME = "planners"
HELP = "list the memory planners"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the verb has no options."""


def run(args: argparse.Namespace) -> Outcome:
    summaries = planner_summaries()
    data = [
        {"name": name, "default": name == DEFAULT_PLANNER, "doc": doc}
        for name, doc in summaries.items()
    ]
    rows: list[list[Cell]] = [
        [name, "default" if name == DEFAULT_PLANNER else "", doc] for name, doc in summaries.items()
    ]
    return Outcome(
        {"planners": data, "default": DEFAULT_PLANNER}, format_table(["planner", "", ""], rows)
    )
