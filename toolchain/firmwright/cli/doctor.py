"""`firmwright doctor`: what is here of the things that Firmwright works with."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from firmwright.cli.shared_options import Outcome
from firmwright.cli.text_table import Cell, format_table
from firmwright.flows.doctor import ToolStatus, check_tools, install_commands

NAME = "doctor"
HELP = "say what is installed, and what the rest would enable"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There is nothing to say."""


def run(args: argparse.Namespace) -> Outcome:
    findings = check_tools()
    rows: list[Sequence[Cell]] = []
    for area, items in groupby(findings, key=lambda found: found.area):
        for item in items:
            rows.append([area, item.name, _state(item), item.enables])
            area = ""
    return Outcome(
        {
            "findings": [_facts(item) for item in findings],
            "install": list(install_commands(findings)),
        },
        "\n\n".join(
            filter(None, (format_table(["", "", "found", "for"], rows), *_advice(findings)))
        ),
    )


def _state(item: ToolStatus) -> str:
    if not item.found:
        return "–"
    return f"{item.found}: {item.problem}" if item.problem else item.found


def _advice(findings: Sequence[ToolStatus]) -> list[str]:
    """What would install the rest, and what no command installs."""
    missing = [item for item in findings if not item.usable]
    if not missing:
        return ["Everything is here."]
    lines = [f"  {command}" for command in install_commands(findings)]
    lines += [
        f"  {item.install} ({item.name})"
        for item in missing
        if not item.install.startswith(("apt install ", "pip install "))
    ]
    return ["\n".join(["What is missing comes with:", *lines])]


def _facts(item: ToolStatus) -> dict[str, Any]:
    return {
        "area": item.area,
        "name": item.name,
        "found": item.found or None,
        "problem": item.problem,
        "enables": item.enables,
        "install": item.install,
        "usable": item.usable,
    }
