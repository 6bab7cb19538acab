"""The first operator whose result differs from the reference's.

In: a compilation, samples, and a reference that knows the values in between. Out: the first
operator, in the order of execution, that differs in any sample. On the device each operator's first
output is known by its CRC-32 (the probes of a profile image gather it), so integer results are
compared without moving them over the link; results in floating point have no exact reference, so
the operators' numpy references stand for the device there.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from firmwright.artifacts import Variant
from firmwright.flows.inputs import Tensors
from firmwright.flows.reference import Reference, by_numpy
from firmwright.flows.sessions import ModelSession
from firmwright.ir.graph.nodes import Function
from firmwright.oracle.compare import compare_tensor
from firmwright.pipeline import Compiled

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """An operator by its name, kind and place in the model, and the first sample it differs in."""

    index: int
    name: str
    kind: str
    where: str
    sample: int
    judged: str


def first_difference(
    compiled: Compiled,
    samples: Sequence[Tensors],
    reference: Reference,
    open_with: Callable[..., ModelSession],
) -> tuple[FirstDifference | None, int]:
    """The first operator that differs, and the number of operators that could be compared."""
    if not reference.layers:
        return None, 0
    rows = [row for row in compiled.metadata["operators"] if row["tensor"] in reference.layers[0]]
    if any(_is_float(row, reference) for row in rows):
        return _by_values(compiled, samples, reference, rows)
    return _by_checksums(compiled, samples, reference, rows, open_with)


def _is_float(row: dict[str, Any], reference: Reference) -> bool:
    return reference.layers[0][row["tensor"]].dtype.kind == "f"


def _by_checksums(
    compiled: Compiled,
    samples: Sequence[Tensors],
    reference: Reference,
    rows: Sequence[dict[str, Any]],
    open_with: Callable[..., ModelSession],
) -> tuple[FirstDifference | None, int]:
    variant: Variant = "profile"
    found: list[FirstDifference] = []
    with open_with(compiled, variant=variant) as session:
        log.info("comparing %d operators on %s", len(rows), compiled.board.name)
        for number, (sample, layers) in enumerate(zip(samples, reference.layers, strict=True)):
            session.device.write_inputs(sample)
            session.device.execute(checksums=True)
            records = session.device.profile()
            for row in rows:
                expected = zlib.crc32(np.ascontiguousarray(layers[row["tensor"]]).tobytes())
                if records[row["index"]].checksum != expected:
                    found.append(_difference(row, number, compiled.board.name))
                    break
    return min(found, key=lambda item: item.index, default=None), len(rows)


def _by_values(
    compiled: Compiled,
    samples: Sequence[Tensors],
    reference: Reference,
    rows: Sequence[dict[str, Any]],
) -> tuple[FirstDifference | None, int]:
    if not isinstance(compiled.imported.entry, Function):
        return None, 0
    ours = by_numpy(compiled.imported, samples)
    rows = [row for row in rows if row["tensor"] in ours.layers[0]]
    for row in rows:
        name = row["tensor"]
        for number, layers in enumerate(reference.layers):
            if compare_tensor(number, name, layers[name], ours.layers[number][name]).mismatches:
                return _difference(row, number, ours.name), len(rows)
    return None, len(rows)


def _difference(row: dict[str, Any], sample: int, judged: str) -> FirstDifference:
    where = row["span"] or row["tensor"]
    return FirstDifference(row["index"], row["name"], row["kind"], where, sample, judged)
