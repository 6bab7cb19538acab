"""Tests that graph passes preserve the devices of values and the spans of calls."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from firmwright.boards import load_board
from firmwright.flows.model.model import load_model
from firmwright.ir.core import UNCONSTRAINED, VirtualDevice
from firmwright.ir.graph.devices import with_device
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule, Pass
from firmwright.passes.graph.value_names import map_values
from firmwright.pipeline import Options, configure_module, passes_for

FILES = (
    "kws_ref_model.tflite",
    pytest.param("pretrainedResnet_quant.tflite", marks=pytest.mark.deep),
)
LAST = "plan-scopes"
"""The last pass over graphs."""


def graph_passes(options: Options) -> tuple[Pass, ...]:
    """Return the graph passes of the pipeline in order."""
    steps = passes_for(options)
    names = [step.name for step in steps]
    return steps[: names.index(LAST) + 1]


def entry(module: IRModule) -> Function:
    assert isinstance(module.entry, Function)
    return module.entry


def devices(module: IRModule) -> dict[str, VirtualDevice]:
    """Return every value with its device."""
    values = (
        *entry(module).sources,
        *(v for call in entry(module).body for v in call.outputs),
    )
    return {value.name: value.virtual_device for value in values}


def spread(module: IRModule) -> IRModule:
    """Assign values to two cores alternately."""
    numbers = count()
    known: dict[str, Value] = {}

    def change(value: Value) -> Value:
        if value.constant is not None:
            return value
        if value.name not in known:
            known[value.name] = with_device(value, f"cpu{next(numbers) % 2}")
        return known[value.name]

    return module.with_function(map_values(entry(module), change))


def has_span(call: Call) -> bool:
    return bool(call.span.file)


@pytest.mark.models
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("placed_before", [True, False])
def test_every_pass_preserves_devices_and_spans(
    file: str, placed_before: bool, model_path: Callable[[str], Path]
) -> None:
    options = Options(board="host", devices=("cpu0", "cpu1"))
    module = configure_module(
        load_model(model_path(file)).module, load_board("host"), options
    )
    module = spread(module) if placed_before else module
    assert all(map(has_span, entry(module).body))
    changing = set()
    for step in graph_passes(options):
        before, after = module, step(module)
        old, new = devices(before), devices(after)
        for name, device in old.items():
            if device != UNCONSTRAINED and name in new:
                assert new[name] == device, f"{step.name} moves {name}"
        assert all(map(has_span, entry(after).body)), f"{step.name} forgets a span"
        changing |= {step.name} if after is not before else set()
        module = after
    if not placed_before:
        assert {"multi-core-split", "plan-devices", "elide-copies"} <= changing
