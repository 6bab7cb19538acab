"""Each operator of TFLite and of ONNX has a counterpart in the other, or a reason.

Operators that lead to the same one of ours have the types that it has, whatever the
format.
"""

from __future__ import annotations

from firmwright.base.operator_texts import read_operator_texts
from firmwright.flows.verify.operator_names import onnx_operators
from firmwright.frontends.tflite.operators.registry import imported_operators

COUNTERPARTS = read_operator_texts(__file__, "counterparts")
ONNX_ONLY = read_operator_texts(__file__, "onnx_only")
TFLITE_ONLY = read_operator_texts(__file__, "tflite_only")


def _plain(name: str) -> str:
    return name.rpartition(":")[2].replace("_", "").lower()


def test_operators_of_tflite_have_a_counterpart_or_a_reason() -> None:
    named_alike = set(map(_plain, onnx_operators()))
    others = {name for name in imported_operators() if _plain(name) not in named_alike}
    assert sorted(others) == sorted({*COUNTERPARTS, *TFLITE_ONLY})


def test_operators_of_onnx_have_a_counterpart_or_a_reason() -> None:
    known = {*map(_plain, imported_operators()), *map(_plain, COUNTERPARTS.values())}
    others = {name for name in onnx_operators() if _plain(name) not in known}
    assert sorted(others) == sorted(ONNX_ONLY)


def test_counterparts_are_supported_operators_of_onnx() -> None:
    assert set(COUNTERPARTS.values()) <= set(onnx_operators())


def test_an_operator_is_in_one_list() -> None:
    assert not COUNTERPARTS.keys() & TFLITE_ONLY.keys()
