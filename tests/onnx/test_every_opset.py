"""Every operator as each opset since 7 defines it equals ONNX Runtime or is refused.

The node tests of the package `onnx` are models of the newest opset. Each is run again
for each opset that redefined its operator, where the older schema allows the node.
test_old_opsets.py has the forms that no newer schema allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("onnx", reason="ONNX needs the package onnx")
pytest.importorskip("onnxruntime", reason="the expected values come from ONNX Runtime")

import onnx
from firmwright.frontends.onnx.older_operators import OPSET_MIN, REWRITES
from firmwright.frontends.onnx.operators.registry import onnx_importers
from firmwright.oracle.reference_worker import OnnxRuntimeSession
from onnx import checker, defs, helper
from tests.onnx.backend import (
    NodeTest,
    SupportedTest,
    collect_tests,
    import_test,
    read_skips,
    reference_mismatch,
)

OLDEST = 7
GATE_OPERATORS = ("Clip", "Dropout", "Gemm", "MaxPool", "Slice", "TopK", "Upsample")


AS_DEFINED = tuple(
    f"test_attention_4d_with_past_and_present_qk_matmul_bias_{rank}d_mask_causal"
    for rank in (3, 4)
)
"""Tests whose products of queries and keys ONNX Runtime returns without the mask."""


@dataclass(slots=True)
class Sweep:
    compared: int = 0
    not_run: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, test: NodeTest) -> None:
        expected = runtime_outputs(test)
        if expected is None:
            self.not_run[test.name] += 1
            return
        own = import_test(replace(test, outputs=expected))
        if isinstance(own, SupportedTest):
            self.compared += 1
            own_error = reference_mismatch(own)
        else:
            own_error = own
        if own_error:
            self.wrong.append(f"{test.name}: {own_error}")


def schemas_of(op: str) -> list[Any]:
    """Return the definitions of a standard operator, the oldest first."""
    schemas = []
    for schema in defs.get_all_schemas_with_history():
        if (schema.domain, schema.name) == ("", op):
            schemas.append(schema)
    return sorted(schemas, key=lambda schema: int(schema.since_version))


def opsets_of(op: str) -> list[int]:
    """Return OLDEST and the opsets since that redefined a standard operator."""
    versions = [int(schema.since_version) for schema in schemas_of(op)]
    return [OLDEST, *(version for version in versions if version > OLDEST)]


def has_only_gained(older: Any, newer: Any) -> bool:
    """Return whether each older node means the same as a newer one."""
    if newer.deprecated or len(newer.inputs) < len(older.inputs):
        return False
    for name, attribute in older.attributes.items():
        kept = newer.attributes.get(name)
        if kept is None or kept.default_value != attribute.default_value:
            return False
    added = newer.inputs[len(older.inputs) :]
    optional = defs.OpSchema.FormalParameterOption.Optional
    return all(formal.option == optional for formal in added)


def at_opset(test: NodeTest, opset: int) -> NodeTest | None:
    """Return the test as a model of this opset, None if it does not allow its node."""
    model = onnx.load_from_string(test.model)
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", opset))
    model.ir_version = 10
    try:
        checker.check_model(model)
    except checker.ValidationError:
        return None
    name = f"{test.name} of opset {opset}"
    return replace(test, name=name, model=model.SerializeToString())


def runtime_outputs(test: NodeTest) -> tuple[object, ...] | None:
    try:
        return tuple(OnnxRuntimeSession(test.model, layers=False).run(test.inputs))
    except RuntimeError:
        return None


def older_tests(ops: Iterable[str] = ()) -> Iterator[NodeTest]:
    skips = read_skips()
    for test in collect_tests(ops):
        nodes = onnx.load_from_string(test.model).graph.node
        if test.name in (*skips, *AS_DEFINED) or len(nodes) != 1 or nodes[0].domain:
            continue
        for opset in opsets_of(nodes[0].op_type):
            older = at_opset(test, opset)
            if older is not None:
                yield older


def check(tests: Iterable[NodeTest], least: int) -> None:
    sweep = Sweep()
    for test in tests:
        sweep.add(test)
    print(sweep)
    assert sweep.wrong == []
    assert sweep.compared >= least


@pytest.mark.parametrize("op", sorted(op for op in onnx_importers() if ":" not in op))
def test_operators_without_a_rule_have_only_gained(op: str) -> None:
    for older, newer in pairwise(schemas_of(op)):
        if not OLDEST < newer.since_version <= OPSET_MIN:
            continue
        if not has_only_gained(older, newer):
            assert op in REWRITES
            assert newer.since_version <= REWRITES[op].since


def test_operators_of_each_opset_equal_onnx_runtime() -> None:
    check(older_tests(GATE_OPERATORS), 60)


@pytest.mark.deep
def test_all_operators_of_each_opset_equal_onnx_runtime() -> None:
    check(older_tests(), 1500)
