"""Calls of other devices may run at any time between start and wait: the interpreter tries both."""

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

FILE = Path(__file__).parents[2] / "filetests" / "usmp" / "under_way.fwir"


def read() -> IRModule:
    return parse_module(FILE.read_text(encoding="utf-8").partition("; ----")[0], fragment=True)


def result(module: IRModule, *, deferred: bool) -> list[int]:
    """What a run of the planned module leaves in its output for an input of 1, 2, 3..."""
    functions = {k: f for k, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
    machine = Interpreter(functions, {}, module.constants, deferred=deferred)
    assert module.plan is not None
    places = module.plan.placements
    memory = np.zeros(module.plan.pool_bytes["sram"], np.uint8)
    x, y = (places[name].offset for name in ("x", "y"))
    memory[x : x + 64] = np.arange(1, 65)
    machine.run("run", {"sram": memory})
    return [int(value) for value in memory[y : y + 64]]


@pytest.mark.parametrize("deferred", [False, True])
def test_the_device_may_be_early_or_late(deferred: bool) -> None:
    assert result(plan_memory(read(), "search"), deferred=deferred) == list(range(1, 65))


def test_memory_of_a_call_under_way_is_its_own() -> None:
    """The plan of the same calls in one step each has b on x: what is right there is an error."""
    planned = plan_memory(read(), "search")
    moved = print_module(planned).replace(
        "decl b: i8[64] = ptr(sram, 0", "decl b: i8[64] = ptr(sram, 64"
    )
    with pytest.raises(ModelError, match=r"@copy op 1 on no device writes sram \[64, 128\) while"):
        verify_module(replace(parse_module(moved), plan=None), {}, {})
