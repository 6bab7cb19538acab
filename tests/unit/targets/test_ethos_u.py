"""Backends ethos-u*: regions compiled by Vela, executed by the functional model of the NPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from firmwright.base.errors import ToolMissingError
from firmwright.base.resources import runtime_dir
from firmwright.flows.compilation import compile_for
from firmwright.flows.model import load_model
from firmwright.flows.verification import verify
from firmwright.pipeline import Compilation
from firmwright.targets import vela

pytest.importorskip("ethosu.vela", reason="needs Vela (pip install 'firmwright[ethos-u]')")

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
needs_npu_model = pytest.mark.skipif(
    not (runtime_dir() / "ethos_u" / "ethosu_driver.c").is_file(), reason="needs the NPU's model"
)


def compile_digits(board: str, numerics: str) -> Compilation:
    model = load_model(DIGITS)
    return compile_for(model, board=board, target="ethos-u55-128", numerics=numerics)


def test_a_whole_model_is_one_call_in_the_arena_of_vela() -> None:
    compiled = compile_digits("mps3-an547", "tflm")
    (call,) = [d.decode() for name, d in compiled.module.files.items() if name.endswith("_run.c")]
    assert len(compiled.summary.operators) == 1
    assert f".arena_size = {compiled.summary.workspace_bytes}," in call


@needs_npu_model
@pytest.mark.parametrize("numerics", ["tflm", "litert"])
def test_digits_on_the_npu_equals_the_reference(numerics: str) -> None:
    assert verify(compile_digits("host", numerics), samples=3).exact


def test_without_vela_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vela, "find_spec", lambda name: None)
    vela.find_unsupported.cache_clear()
    with pytest.raises(ToolMissingError, match="Vela") as caught:
        compile_digits("host", "tflm")
    assert "firmwright[ethos-u]" in caught.value.hint
