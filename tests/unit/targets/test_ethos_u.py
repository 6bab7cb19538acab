"""Backends ethos-u*: regions compiled by Vela, executed by the functional model of the NPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from firmwright.base.errors import ToolMissingError
from firmwright.flows.compilation import compile_for
from firmwright.flows.model import load_model
from firmwright.flows.verification import verify
from firmwright.pipeline import Compilation
from firmwright.targets import vela

pytest.importorskip("ethosu.vela", reason="needs Vela (pip install 'firmwright[ethos-u]')")

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"


def compile_digits(board: str, numerics: str) -> Compilation:
    model = load_model(DIGITS)
    return compile_for(model, board=board, target="ethos-u55-128", numerics=numerics)


def test_a_whole_model_is_one_call_in_the_arena_of_vela() -> None:
    compiled = compile_digits("mps3-an547", "tflm")
    (call,) = [d.decode() for name, d in compiled.module.files.items() if name.endswith("_run.c")]
    assert len(compiled.summary.operators) == 1
    assert f".arena_size = {compiled.summary.workspace_bytes}," in call


def test_digits_on_the_npu_equals_the_reference() -> None:
    assert verify(compile_digits("host", "tflm"), samples=3).exact


def test_operators_that_the_npu_rounds_in_another_way_stay_on_the_core() -> None:
    operators = compile_digits("host", "litert").summary.operators
    by_place = {row.kind: row.schedule for row in operators}
    assert by_place["fully_connected"] != "ethos-u55-128" != by_place["softmax"]
    assert "ethos-u55-128" in by_place.values()


def test_without_vela_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vela, "find_spec", lambda name: None)
    vela.find_unsupported.cache_clear()
    with pytest.raises(ToolMissingError, match="Vela") as caught:
        compile_digits("host", "tflm")
    assert "firmwright[ethos-u]" in caught.value.hint
