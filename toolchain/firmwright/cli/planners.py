"""`firmwright planners`: list the memory planners."""

import argparse

from firmwright.cli.text_table import format_table
from firmwright.cli.verb import Outcome
from firmwright.usmp.planner_registry import DEFAULT_PLANNER, planner_summaries


def run(args: argparse.Namespace) -> Outcome:
    summaries = planner_summaries().items()
    planners = [
        {"name": n, "default": n == DEFAULT_PLANNER, "doc": doc} for n, doc in summaries
    ]
    rows = [(n, "default" if n == DEFAULT_PLANNER else "", doc) for n, doc in summaries]
    data = {"planners": planners, "default": DEFAULT_PLANNER}
    return Outcome(data, format_table(["planner", "", ""], rows))
