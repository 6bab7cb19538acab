"""`firmwright doctor`: check the tools and packages that Firmwright uses."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.doctor import ToolStatus, check_tools, install_commands

NAME = "doctor"
HELP = "check the installed tools, and show the purpose of missing ones"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options."""


def run(args: argparse.Namespace) -> Outcome:
    findings = check_tools()
    rows: list[Sequence[Cell]] = []
    for area, items in groupby(findings, key=lambda item: item.area):
        for item in items:
            rows.append([area, item.name, _state(item), item.enables])
            area = ""
    return Outcome(
        {
            "findings": [_status_to_json(item) for item in findings],
            "install": list(install_commands(findings)),
        },
        "\n\n".join(
            filter(
                None, (format_table(["", "tool", "installed", "purpose"], rows), *_advice(findings))
            )
        ),
    )


def _state(item: ToolStatus) -> str:
    if not item.found:
        return "–"
    return f"{item.found}: {item.problem}" if item.problem else item.found


def _advice(findings: Sequence[ToolStatus]) -> list[str]:
    """Return the install commands for missing tools and remarks where there is no command."""
    missing = [item for item in findings if not item.usable]
    if not missing:
        return ["All tools are installed."]
    lines = [f"  {command}" for command in install_commands(findings)]
    lines += [
        f"  {item.install} ({item.name})"
        for item in missing
        if not item.install.startswith(("apt install ", "pip install "))
    ]
    return ["\n".join(["Install the missing tools with:", *lines])]


def _status_to_json(item: ToolStatus) -> dict[str, Any]:
    return {
        "area": item.area,
        "name": item.name,
        "found": item.found or None,
        "problem": item.problem,
        "enables": item.enables,
        "install": item.install,
        "usable": item.usable,
    }
