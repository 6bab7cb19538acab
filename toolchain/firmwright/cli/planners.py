"""`firmwright planners`: the memory planners there are."""

from __future__ import annotations

import argparse

from firmwright.cli.shared_options import Outcome
from firmwright.cli.text_table import Cell, format_table
from firmwright.usmp.planner_registry import DEFAULT_PLANNER, planner_summaries

NAME = "planners"
HELP = "list the memory planners"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There is nothing to say."""


def run(args: argparse.Namespace) -> Outcome:
    found = planner_summaries()
    data = [
        {"name": name, "default": name == DEFAULT_PLANNER, "doc": doc}
        for name, doc in found.items()
    ]
    rows: list[list[Cell]] = [
        [name, "default" if name == DEFAULT_PLANNER else "", doc] for name, doc in found.items()
    ]
    return Outcome(
        {"planners": data, "default": DEFAULT_PLANNER}, format_table(["planner", "", ""], rows)
    )
