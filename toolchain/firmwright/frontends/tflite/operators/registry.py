"""The importers of this package, and our operators by the names of TFLite's."""

from collections.abc import Mapping
from functools import cache

import firmwright.frontends.tflite.operators as package
from firmwright.base.errors import OPERATOR_IS_UNSUPPORTED
from firmwright.base.extensions import merge_tables
from firmwright.base.operator_texts import read_operator_texts
from firmwright.frontends.tflite.node_context import Importer

STRUCTURAL_OPERATORS: Mapping[str, str] = {
    "ASSIGN_VARIABLE": "variable",
    "CALL_ONCE": "variable",
    "IF": "if",
    "READ_VARIABLE": "variable",
    "VAR_HANDLE": "variable",
    "WHILE": "while",
    "custom:TFLM_DECODE": "decoded",
}
"""Operators of `subgraph_importer.py`, as they need more than their own node."""


@cache
def tflite_importers() -> Mapping[str, Importer]:
    """Merge the tables `IMPORTERS` of this package and of extensions.

    They map OPERATOR or custom:OPERATOR to an importer.
    """
    return merge_tables(
        package, "IMPORTERS", lambda extension: extension.tflite_importers
    )


_REASONS = read_operator_texts(__file__, "reasons")


def unsupported_reason(op: str) -> str:
    """Return why an operator without an importer is not supported."""
    if op.startswith("STABLEHLO_"):
        op = "STABLEHLO"
    return _REASONS.get(op, OPERATOR_IS_UNSUPPORTED)


@cache
def imported_operators() -> Mapping[str, str]:
    """Return our operator of each of TFLite's, in the order of TFLite's names."""
    plain = {name: importer.op for name, importer in tflite_importers().items()}
    return dict(sorted({**plain, **STRUCTURAL_OPERATORS}.items()))


def tflite_names(op: str) -> tuple[str, ...]:
    """Return TFLite's names of our operator; none if types alone lead to it."""
    return tuple(name for name, own in imported_operators().items() if own == op)
