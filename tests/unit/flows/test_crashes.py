"""A firmware that is made to crash is reported with its operator, its line, and what to try."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.artifacts import SourceTree, Variant
from firmwright.device import FaultError
from firmwright.flows.compiling import compile_for
from firmwright.flows.images import build_image
from firmwright.flows.inputs import generated
from firmwright.flows.model import load_model
from firmwright.flows.sessions import open_session
from firmwright.pipeline import Compiled

MARK = "/* the planted defect */"
CRASHES = {
    "arm": '__asm__ volatile(".short 0xde00");',
    "riscv32": '__asm__ volatile("unimp");',
    "host": "__builtin_trap();",
}


def crashing(compiled: Compiled, operator: str, family: str) -> Compiled:
    """The same with a line at the beginning of one operator's kernel that crashes."""
    row = next(r for r in compiled.metadata["operators"] if r["name"] == operator)
    files = dict(compiled.tree.files)
    text = str(files["model/digits.c"])
    head = text.index(f"digits_{row['kernel']}(")
    start = text.index("\n{\n", head) + 3
    files["model/digits.c"] = f"{text[:start]}    {CRASHES[family]} {MARK}\n{text[start:]}"
    return replace(compiled, tree=SourceTree(files))


@pytest.mark.parametrize(
    ("board", "family", "variant"),
    [
        pytest.param("host", "host", "profile", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", "arm", "release", marks=pytest.mark.qemu),
        pytest.param("qemu-riscv32-virt", "riscv32", "profile", marks=pytest.mark.qemu("riscv32")),
        pytest.param("microbit", "arm", "release", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("mps2-an505", "arm", "release", marks=[pytest.mark.qemu, pytest.mark.deep]),
    ],
)
def test_a_crash_is_told_by_its_operator_and_line(
    board: str, family: str, variant: Variant, digits_path: Path
) -> None:
    compiled = compile_for(load_model(digits_path), board)
    image = build_image(crashing(compiled, "conv_2d_2", family), variant)
    (sample,) = generated(compiled.module.io.inputs, 1).samples
    with open_session(compiled, variant=variant, image=image) as session:
        with pytest.raises(FaultError) as caught:
            session.run(sample)
        text = (image.directory / "model/digits.c").read_text().splitlines()
    said = str(caught.value)
    assert "The operator is " in said
    assert ", conv_2d_2 (conv2d, digits.tflite: subgraph 0, operator 2 (conv_2d_2))" in said
    assert " Try: " in said
    if family != "host":
        line = 1 + next(number for number, row in enumerate(text) if MARK in row)
        assert f"(model/digits.c:{line})" in said
        assert "bytes of stack" in said
