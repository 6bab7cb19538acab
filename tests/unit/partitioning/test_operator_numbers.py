"""An operator has one number: in the model's C, in metadata.json and in `debug`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.flows.board.gdb_session import check_operator
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.pipeline import Compilation
from tests.state.test_control_flow import branches_and_a_loop

ROOT = Path(__file__).resolve().parents[3]
QAT = ROOT / "tests" / "onnx" / "networks" / "residual_qat.onnx"
KEYWORD = ROOT / "examples" / "02_keyword" / "keyword.tflite"


def flow(folder: Path) -> Path:
    path = folder / "flow.tflite"
    path.write_bytes(branches_and_a_loop())
    return path


MODELS: dict[str, Callable[[Path], Compilation]] = {
    "fused": lambda folder: compile_for(load_model(QAT), "host"),
    "rows": lambda folder: compile_for(
        load_model(KEYWORD), "mps2-an386", optimize="ram"
    ),
    "size": lambda folder: compile_for(
        load_model(KEYWORD), "mps2-an386", optimize="size"
    ),
    "called": lambda folder: compile_for(load_model(flow(folder)), "host"),
    "partitioned": lambda folder: compile_for(
        load_model(KEYWORD), "host", target="squeeze, c"
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("squeeze")
@pytest.mark.parametrize("name", MODELS)
def test_c_metadata_and_debug_agree_on_operator_numbers(
    name: str, tmp_path: Path
) -> None:
    compiled = MODELS[name](tmp_path)
    text = str(compiled.tree.files[f"model/{compiled.module.name}.c"])
    kinds = {operator.index: operator.kind for operator in compiled.summary.operators}
    probed = {int(number) for number in re.findall(r"_PROBE\(\s*(\d+), 0,", text)}
    assert probed == set(kinds)
    for number, kind in re.findall(r"^ +/\* (\d+): (\w+)", text, re.MULTILINE):
        assert kinds[int(number)] == kind
    for comment, code in re.findall(r"/\*([^/]*?)\*/\n\w+KERNEL void (\w+)\(", text):
        listed = re.findall(r"Shared by operators ([\d, ]+)\.", comment)
        served = {int(number) for number in listed[0].split(",")} if listed else set()
        calls = re.findall(rf"_PROBE\(\s*(\d+), 0,[^;]*;\s*{code}\(", text)
        assert served == ({int(n) for n in calls} if len(set(calls)) > 1 else set())
    for number in range(compiled.summary.operator_count):
        if number in kinds:
            check_operator(compiled, number)
        else:
            with pytest.raises(UsageError, match=f"no code of an operator {number}"):
                check_operator(compiled, number)
