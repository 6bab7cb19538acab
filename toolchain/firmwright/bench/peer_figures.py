"""What other systems reached, from benchmarks/peers.csv: each figure with how it was obtained.

In: the file. Out: figures by peer, core, model file and metric. Nothing is computed here.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.base.resources import benchmarks_dir

REFERENCE_PEER = "TFLM + CMSIS-NN"
"""The peer that the table stands beside: what most firmware with a network in it runs today."""


@dataclass(frozen=True, slots=True)
class PeerFigure:
    """One figure of a peer; `core` "any" is a figure that no core changes."""

    peer: str
    core: str
    model: str
    metric: str
    value: float
    unit: str
    obtained: str


def read_peers(path: Path | None = None) -> tuple[PeerFigure, ...]:
    """Every figure of the file (default: the project's own)."""
    file = path or benchmarks_dir() / "peers.csv"
    try:
        with file.open(encoding="utf-8", newline="") as text:
            return tuple(_figure(row) for row in csv.DictReader(text))
    except (OSError, KeyError, ValueError) as error:
        raise UsageError(f"the peers' figures cannot be read: {error}.", where=str(file)) from error


def _figure(row: dict[str, str]) -> PeerFigure:
    return PeerFigure(
        row["peer"],
        row["core"],
        row["model"],
        row["metric"],
        float(row["value"]),
        row["unit"],
        row["obtained"],
    )


def find_figure(
    figures: Sequence[PeerFigure], *, model: str, core: str, metric: str, peer: str = REFERENCE_PEER
) -> int | None:
    """A peer's figure for a model file on a core, if it is known."""
    wanted = (peer, core, model, metric)
    for figure in figures:
        if (figure.peer, figure.core, figure.model, figure.metric) == wanted:
            return round(figure.value)
    return None
