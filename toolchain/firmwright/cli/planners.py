"""`firmwright planners`: the memory planners there are."""

from __future__ import annotations

import argparse

from firmwright.cli.base import Outcome
from firmwright.cli.table import Cell, table
from firmwright.usmp.registry import DEFAULT, planner_summaries

NAME = "planners"
HELP = "list the memory planners"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There is nothing to say."""


def run(args: argparse.Namespace) -> Outcome:
    found = planner_summaries()
    data = [{"name": name, "default": name == DEFAULT, "doc": doc} for name, doc in found.items()]
    rows: list[list[Cell]] = [
        [name, "default" if name == DEFAULT else "", doc] for name, doc in found.items()
    ]
    return Outcome({"planners": data, "default": DEFAULT}, table(["planner", "", ""], rows))
