"""`firmwright targets`: list the target kinds and their attributes."""

import argparse
from collections.abc import Sequence

from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.targets.backend_registry import BACKENDS
from firmwright.targets.cores import CORE_KINDS
from firmwright.targets.target_kind import TargetKind


def run(args: argparse.Namespace) -> Outcome:
    kinds = list(CORE_KINDS.values())
    kinds += [backend.kind for backend in BACKENDS.all().values()]
    rows: list[Sequence[Cell]] = []
    for kind in kinds:
        words: list[str] = []
        for name, spec in kind.attrs.items():
            words.append(f"-{name}={'|'.join(spec.choices) or spec.default}")
        rows.append([kind.name, kind.doc, " ".join(words)])
    data = {"targets": [target_to_json(kind) for kind in kinds]}
    return Outcome(data, format_table(["target", "", "attributes"], rows))


def target_to_json(kind: TargetKind) -> dict[str, object]:
    attributes: list[dict[str, object]] = []
    for name, spec in kind.attrs.items():
        attribute: dict[str, object] = {
            "name": name,
            "default": spec.default,
            "choices": spec.choices,
            "doc": spec.doc,
        }
        attributes.append(attribute)
    return {"kind": kind.name, "doc": kind.doc, "attributes": attributes}
