"""What a check of evidence found about each of its statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

OF_THE_SENDER: Final = ("date", "wall_seconds")
"""Statements that no computer can confirm."""
_SHOWN_CHARACTERS: Final = 60
_HASH_CHARACTERS: Final = 16


class Verdict(StrEnum):
    """The result of a check of one statement."""

    CONFIRMED = "confirmed"
    DIFFERS = "differs"
    UNCHECKED = "cannot be checked here"


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one statement; `reason` explains all but confirmed."""

    statement: str
    verdict: Verdict
    reason: str = ""


def not_confirmed(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the statements that could be confirmed, but are not, in their order."""
    names: list[str] = []
    for finding in findings:
        is_open = finding.verdict is not Verdict.CONFIRMED
        if is_open and finding.statement not in OF_THE_SENDER:
            names.append(finding.statement)
    return tuple(names)


def unchecked(statement: str, reason: str) -> Finding:
    return Finding(statement, Verdict.UNCHECKED, reason)


def compare_values(statement: str, recorded: object, here: object) -> Finding:
    """Return whether a recorded value is the one that was computed here."""
    if recorded == here:
        return Finding(statement, Verdict.CONFIRMED)
    reason = f"The record has {_shown(recorded)}; here it is {_shown(here)}."
    return Finding(statement, Verdict.DIFFERS, reason)


def _shown(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    text = str(value)
    if len(text) > _SHOWN_CHARACTERS:
        return f"{text[:_HASH_CHARACTERS]}..."
    return text or "empty"
