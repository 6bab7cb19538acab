"""The reasons of operators without an importer name replacements that exist."""

import re
from collections.abc import Iterable, Mapping

import pytest

from firmwright.base.operator_texts import read_operator_texts
from firmwright.flows.verify import float_remedies
from firmwright.frontends.onnx.operators import registry as onnx_registry
from firmwright.frontends.tflite.operators import registry as tflite_registry
from firmwright.oracle.onnx_quantizer_worker import OPERATORS

ONNX_NAMES = r"\b[A-Z][a-z]+[A-Z]\w+\b"
TFLITE_NAMES = r"\b[A-Z]+\d*(?:_[A-Z0-9]+)+\b"


def named_in(texts: Iterable[str], form: str) -> set[str]:
    names: set[str] = set()
    for text in texts:
        names.update(re.findall(form, text.partition("; ")[2]))
    return names


@pytest.mark.parametrize(
    ("reasons", "importers", "form"),
    [
        (onnx_registry._REASONS, onnx_registry.onnx_importers(), ONNX_NAMES),
        (tflite_registry._REASONS, tflite_registry.tflite_importers(), TFLITE_NAMES),
    ],
)
def test_replacements_are_supported_and_the_replaced_ones_are_not(
    reasons: Mapping[str, str], importers: Mapping[str, object], form: str
) -> None:
    assert not reasons.keys() & importers.keys()
    named = named_in(reasons.values(), form) - {"StableHLO"}
    assert named, "the form finds no names"
    assert named <= importers.keys()


def test_remedies_of_floats_name_operators_with_an_integer_form() -> None:
    texts = read_operator_texts(float_remedies.__file__, "operators")
    # BatchNormalization is folded before the operators are quantized.
    usable = {*OPERATORS, "BatchNormalization"}
    for op, text in texts.items():
        assert op not in OPERATORS
        assert set(re.findall(ONNX_NAMES, text)) <= usable, op


def test_stablehlo_has_one_reason() -> None:
    why = tflite_registry.unsupported_reason("STABLEHLO_ADD")
    assert why.startswith("an operator of StableHLO")
