"""`firmwright targets`: the kinds of code generators and their attributes."""

from __future__ import annotations

import argparse

from firmwright.cli.base import Outcome
from firmwright.cli.table import Cell, table
from firmwright.targets.registry import KINDS

NAME = "targets"
HELP = "list the targets"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There is nothing to say."""


def run(args: argparse.Namespace) -> Outcome:
    data = [
        {
            "kind": kind.name,
            "doc": kind.doc,
            "attributes": [
                {"name": n, "default": s.default, "choices": list(s.choices), "doc": s.doc}
                for n, s in kind.attrs.items()
            ],
        }
        for kind in KINDS.values()
    ]
    rows: list[list[Cell]] = []
    for kind in KINDS.values():
        words = [f"-{n}={'|'.join(s.choices) or s.default}" for n, s in kind.attrs.items()]
        rows.append([kind.name, kind.doc, " ".join(words)])
    return Outcome({"targets": data}, table(["target", "", "attributes"], rows))
