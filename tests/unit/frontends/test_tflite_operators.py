"""The tables of TFLite's importers agree with the operators that they lead to."""

from __future__ import annotations

from firmwright.frontends.tflite.operators.registry import (
    STRUCTURAL_OPERATORS,
    imported_operators,
    tflite_importers,
    tflite_names,
)
from firmwright.ops.registry import op_table
from firmwright.tflite_schema import OPERATORS


def test_every_importer_leads_to_a_known_operator() -> None:
    assert [
        name for name, op in imported_operators().items() if op not in op_table()
    ] == []


def test_every_importer_has_the_name_of_a_builtin_or_custom_operator() -> None:
    builtin = {name for name in imported_operators() if not name.startswith("custom:")}
    assert builtin <= set(OPERATORS)


def test_operators_that_need_the_whole_graph_have_no_importer_of_their_own() -> None:
    assert not STRUCTURAL_OPERATORS.keys() & tflite_importers().keys()


def test_the_names_of_an_operator_are_those_that_lead_to_it() -> None:
    assert tflite_names("reshape") == ("EXPAND_DIMS", "RESHAPE", "SQUEEZE")
    assert tflite_names("hybrid_conv2d") == ()
