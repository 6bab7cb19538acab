"""Every pass keeps the rules of docs/reference/passes.md that can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from firmwright.boards import load_board
from firmwright.flows.model.model import load_model
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.pipeline import Options, configure_module, passes_for

DIGITS = Path(__file__).parents[3] / "examples/01_digits/digits.tflite"


def names_in_order(module: IRModule) -> tuple[Sequence[str], ...]:
    """Return the names of inputs, outputs and states."""
    entry = module.entry
    if isinstance(entry, Function):
        states = [state.value.name for state in entry.state]
        inputs = [value.name for value in entry.params]
        return inputs, [value.name for value in entry.results], states
    io = module.io
    return tuple(
        [tensor.name for tensor in tensors]
        for tensors in (io.inputs, io.outputs, io.state)
    )


@pytest.mark.parametrize(
    "options",
    [
        Options(board="mps2-an521", target="vanilla"),
        pytest.param(
            Options(board="mps2-an521", devices=("cpu0", "cpu1")),
            marks=pytest.mark.deep,
        ),
        pytest.param(
            Options(board="mps2-an521", target="vanilla", pipeline_runs=True),
            marks=pytest.mark.deep,
        ),
    ],
    ids=["engine", "cores", "pipeline"],
)
def test_every_pass_keeps_interface_and_settings_and_returns_an_equal_module(
    options: Options,
) -> None:
    module = configure_module(
        load_model(DIGITS).module, load_board(str(options.board)), options
    )
    unchanged = 0
    for step in passes_for(options):
        before, module = module, step(module)
        assert module.settings == before.settings, step.name
        inputs, outputs, states = names_in_order(module)
        own_inputs, own_outputs, own_states = names_in_order(before)
        assert (inputs, outputs) == (own_inputs, own_outputs), step.name
        if step.name != "lower-select":  # names states for C
            assert states == own_states or step.name == "pipeline-runs"
        assert len(states) == len(own_states) or step.name == "pipeline-runs"
        if module == before:
            assert module is before, step.name
            unchanged += 1
    assert 5 <= unchanged < len(passes_for(options)) - 5
