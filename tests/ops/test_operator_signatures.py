"""The inputs, results and semantics that the page of operators states are the real ones."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from firmwright.conformance.case_tables import conformance_cases
from firmwright.flows.verify.operator_catalog import supported_operators
from firmwright.ir.graph.nodes import Call
from firmwright.ops.registry import op_table
from firmwright.pipeline import load_module_bytes
from tests.ops.tflite_writer import write_cases

OPERATORS = supported_operators(op_table(), ())


def least_and_most(names: Sequence[str]) -> tuple[int, float]:
    """Return how many values the names of inputs or results stand for."""
    least, most = 0, 0.0
    for name in names:
        repeated = re.search(r"\((\d+)\)$", name)
        count = int(repeated[1]) if repeated else 1
        least += 0 if name.endswith("?") else count
        most += math.inf if name.endswith("...") else count
    return least, most


def test_calls_have_the_inputs_and_results_of_their_operator() -> None:
    cases = [case for item in OPERATORS for case in conformance_cases(item.name)]
    module = load_module_bytes(write_cases(cases), "cases.tflite")
    by_name = {item.name: item for item in OPERATORS}
    found: dict[str, set[tuple[int, int]]] = {}
    for call in module.entry_graph.body:
        found.setdefault(call.op, set()).add(_counts(call))
    assert len(found) > 100
    for op, counts in found.items():
        item = by_name[op]
        for inputs, results in counts:
            least, most = least_and_most(item.inputs)
            assert least <= inputs <= most, (op, item.inputs, inputs)
            least, most = least_and_most(item.results)
            assert least <= results <= most, (op, item.results, results)


def _counts(call: Call) -> tuple[int, int]:
    return sum(value is not None for value in call.inputs), len(call.outputs)


def test_the_semantics_name_the_operator() -> None:
    for item in OPERATORS:
        pattern = rf"\b{item.name}\b"
        assert re.search(pattern, item.semantics), f"{item.source} lacks {item.name}"
