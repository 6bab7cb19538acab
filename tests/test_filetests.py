"""Run tests/filetests/**/*.fwir: IR text in, IR text or the verifier's errors out.

The first line selects the test: `; test roundtrip`, `; test pass=NAME verify`,
`; test plan=PLANNER verify`, `; test verify`.

Text below `; ----` is the whole expected output (`--update-golden` rewrites it). Each comment
`; error: TEXT` in the input expects one line of the verifier's report that contains TEXT.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.errors import ModelError, NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.opdef import OpDef
from firmwright.usmp.memory_planning import plan_memory

FOLDER = Path(__file__).parent / "filetests"
FILES = sorted(FOLDER.rglob("*.fwir"))
LINE = "; ----\n"
LINES_MAX = 150


def infer_relu(call: OpCall) -> tuple[TensorType, ...]:
    if len(call.inputs) != 1:
        raise NotSupportedError("relu takes one input.")
    return (call.input(0),)


OPS = {
    name: OpDef(
        name, infer_relu, lambda c, x: (), lambda c, k: None, {}, lambda: iter(()), ()
    )
    for name in ("relu", "expression")
}
INTRINSICS = {
    row.name: row
    for row in (
        Intrinsic(
            "twice",
            (Operand("x", "in", INT32), Operand("n", "imm", INT32)),
            max,
            "",
            "",
            INT32,
        ),
        Intrinsic(
            "load4",
            (Operand("to", "out", INT32), Operand("src", "ptr", INT8, "r", 4, 0, 4)),
            max,
            "",
            "",
        ),
        Intrinsic("fill", (Operand("to", "ptr", INT8, "w", 8),), max, "", ""),
    )
}


def verify(module: IRModule) -> None:
    verify_module(module, OPS, INTRINSICS)


def transformed(module: IRModule, steps: list[str]) -> IRModule:
    for step in steps:
        if step.startswith("pass="):
            module = importlib.import_module("firmwright.passes").BY_NAME[step[5:]](
                module
            )
        elif step == "verify":
            verify(module)
        elif step.startswith("plan="):
            module = plan_memory(module, step[5:])
        else:
            assert step == "roundtrip", f"unknown step {step}"
            text = print_module(module)
            assert parse_module(text) == module
            assert print_module(parse_module(text)) == text
    return module


@pytest.mark.parametrize("path", FILES, ids=[str(p.relative_to(FOLDER)) for p in FILES])
def test_file(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LINES_MAX, "too long to be read in review"
    source, _, expected = text.partition(LINE)
    first = source.splitlines()[0]
    assert first.startswith("; test "), "the first line must select the test"
    steps = first.removeprefix("; test ").split()
    errors = re.findall(r"; error: (.*)", source)
    module = parse_module(source, str(path), fragment=True)
    if errors:
        with pytest.raises(ModelError) as caught:
            transformed(module, steps)
        found = caught.value.what.splitlines()
        for error in errors:
            assert any(error in line for line in found), f"no {error!r} among {found}"
        assert len(found) == len(errors), "\n".join(found)
        return
    result = print_module(
        transformed(module, steps), elide_constants=True, fragment=True
    ).strip()
    if request.config.getoption("--update-golden") and LINE in text:
        path.write_text(source + LINE + result + "\n", encoding="utf-8")
    elif LINE in text:
        assert result == expected.strip()
