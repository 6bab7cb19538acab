"""Tests of split calls: a device may run at any time between start and wait."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import ModelError
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.interpreter import Interpreter
from firmwright.ir.tir.verify import verify_module
from firmwright.usmp.memory_planning import plan_memory

FILE = Path(__file__).parents[2] / "filetests" / "usmp" / "async_calls.fwir"


def read() -> IRModule:
    return parse_module(
        FILE.read_text(encoding="utf-8").partition("; ----")[0], fragment=True
    )


def result(module: IRModule, *, deferred: bool) -> list[int]:
    """Return the output of the planned module for the input 1, 2, 3..."""
    functions = {
        k: f for k, f in module.functions.items() if isinstance(f, tir.PrimFunc)
    }
    machine = Interpreter(functions, {}, module.constants, deferred=deferred)
    assert module.plan is not None
    places = module.plan.placements
    memory = np.zeros(module.plan.pool_bytes["sram"], np.uint8)
    x, y = (places[name].offset for name in ("x", "y"))
    memory[x : x + 64] = np.arange(1, 65)
    machine.run("run", {"sram": memory})
    return [int(value) for value in memory[y : y + 64]]


@pytest.mark.parametrize("deferred", [False, True])
def test_results_do_not_depend_on_when_the_device_runs(deferred: bool) -> None:
    assert result(plan_memory(read(), "search"), deferred=deferred) == list(
        range(1, 65)
    )


def test_memory_of_a_call_in_flight_is_reserved() -> None:
    """The plan for unsplit calls places b on x, which is an error for split ones."""
    planned = plan_memory(read(), "search")
    moved = print_module(planned).replace(
        "decl b: i8[64] = ptr(sram, 0", "decl b: i8[64] = ptr(sram, 64"
    )
    with pytest.raises(
        ModelError, match=r"@copy op 1 on no device writes sram \[64, 128\) while"
    ):
        verify_module(replace(parse_module(moved), plan=None), {}, {})
