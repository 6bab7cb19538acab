"""Figures of other systems from benchmarks/peers.csv, each with its origin."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.base.input_files import read_input_text
from firmwright.base.resources import benchmarks_dir

REFERENCE_PEER = "TFLM + CMSIS-NN"
"""The peer in the benchmark table: the usual way to run a network in firmware."""


@dataclass(frozen=True, slots=True)
class PeerFigure:
    """One figure of another system; `core` is "any" if it does not depend on the core.

    `script` measured it with the `commit` of the public `source`; else "by hand" or
    "published".
    """

    peer: str
    core: str
    model: str
    metric: str
    value: float
    unit: str
    obtained: str
    script: str
    source: str
    commit: str
    date: str


def _peer_figure(row: dict[str, str]) -> PeerFigure:
    value = float(row.pop("value"))
    return PeerFigure(**row, value=value)


def read_peers(path: Path | None = None) -> tuple[PeerFigure, ...]:
    """Read all figures from the file, by default the project's own."""
    file = path or benchmarks_dir() / "peers.csv"
    try:
        rows = list(csv.DictReader(io.StringIO(read_input_text(file))))
        return tuple(map(_peer_figure, rows))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"the peers' figures cannot be read: {error}.", where=str(file)
        ) from error


def find_figure(
    figures: Sequence[PeerFigure], *, model: str, core: str, metric: str
) -> int | None:
    """Return the rounded value of REFERENCE_PEER's first matching figure, or None."""
    key = (REFERENCE_PEER, core, model, metric)
    for figure in figures:
        if (figure.peer, figure.core, figure.model, figure.metric) == key:
            return round(figure.value)
    return None
