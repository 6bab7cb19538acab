"""A text module with a handwritten PrimFunc compiles and runs on a board."""

from __future__ import annotations

from pathlib import Path

import pytest

from firmwright.base.errors import ModelError
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import verify
from firmwright.ir.graph.nodes import Function
from firmwright.ir.printer import parse_module, print_module
from firmwright.pipeline import Compilation, Options, compile_model, load_module_bytes

TEXT = Path(__file__).with_name("gated_delta.fwir")


def compiled_for(board: str) -> Compilation:
    model = load_model(TEXT, trust=True)
    return compile_model(model.module, Options(board=board))


def test_module_text_round_trip() -> None:
    module = load_model(TEXT, trust=True).module
    assert isinstance(module.entry, Function)
    assert [call.op for call in module.entry.body] == [
        "reshape",
        "relu",
        "@gate",
        "quantize",
    ]
    assert parse_module(print_module(module)) == module


def test_handwritten_kernel_is_planned_and_printed() -> None:
    done = compiled_for("mps2-an386")
    plan = done.module.plan
    assert plan is not None
    assert "gate.before" in plan.placements, "the kernel's own memory is planned"
    source = str(done.tree.files["model/gated_delta.c"])
    assert "gated_delta_gate(lifted, limit, moved, gate_before);" in source
    assert "if (moved > least || moved < -least) {" in source


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
    ],
)
def test_the_firmware_equals_the_evaluated_graph(board: str) -> None:
    found = verify(compiled_for(board), samples=20)
    assert found.reference == "firmwright numpy references"
    assert (found.samples, found.values, found.mismatches) == (20, 20 * 64, 0)


def test_an_access_out_of_bounds_is_refused_before_any_pass() -> None:
    broken = TEXT.read_text(encoding="utf-8").replace(
        "for t in 0..16 {", "for t in 0..17 {"
    )
    with pytest.raises(ModelError, match=r"@gate: x\[t, c\]"):
        load_module_bytes(broken.encode(), TEXT.name)
