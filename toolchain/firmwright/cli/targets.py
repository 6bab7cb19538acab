"""`firmwright targets`: the kinds of code generators and their attributes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from firmwright.cli.base import Outcome
from firmwright.cli.table import Cell, table
from firmwright.targets.backends import BACKENDS
from firmwright.targets.kind import TargetKind
from firmwright.targets.registry import KINDS

NAME = "targets"
HELP = "list the targets"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There is nothing to say."""


def run(args: argparse.Namespace) -> Outcome:
    kinds = [*KINDS.values(), *(backend.kind for backend in BACKENDS.all().values())]
    rows: list[Sequence[Cell]] = []
    for kind in kinds:
        words = [f"-{n}={'|'.join(s.choices) or s.default}" for n, s in kind.attrs.items()]
        rows.append([kind.name, kind.doc, " ".join(words)])
    return Outcome(
        {"targets": [facts_of(kind) for kind in kinds]}, table(["target", "", "attributes"], rows)
    )


def facts_of(kind: TargetKind) -> dict[str, object]:
    """A target kind for `--json`."""
    return {
        "kind": kind.name,
        "doc": kind.doc,
        "attributes": [
            {"name": n, "default": s.default, "choices": list(s.choices), "doc": s.doc}
            for n, s in kind.attrs.items()
        ],
    }
