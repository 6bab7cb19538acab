"""Copies on Armv6-M, and layers whose default loops are slow there."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.verify import census
from firmwright.flows.verify.verification import verify
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.graph.attributes.layers import FullyConnectedAttrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.schedules.registry import SCHEDULES


def streamed(rows: int, channels: int) -> Model:
    """Return a network that appends a row to others and drops the first one."""
    g = GraphBuilder("net")
    x = g.input("x", (1, rows, channels), scale=0.05)
    row = g.input("row", (1, 1, channels), scale=0.05)
    every = g.call("concatenation", x, row, axis=1)
    y = g.call(
        "strided_slice",
        every,
        begin=(0, 1, 0),
        strides=(1, 1, 1),
        counts=(1, rows, channels),
        shrunk=(),
    )
    return g.model(y, every)


@pytest.mark.qemu
def test_runs_of_words_are_copied_four_at_a_time() -> None:
    for rows, channels in ((8, 32), (3, 36)):
        compiled = compile_for(streamed(rows, channels), "microbit")
        schedules = {item.kind: item.schedule for item in compiled.summary.operators}
        assert schedules["concatenation"] == "thumb1.concatenation.words"
        assert verify(compiled, samples=3).exact


def interleaved(channels: int) -> Model:
    """Return a network that swaps the channels of an image of unsigned bytes."""
    g = GraphBuilder("net")
    x = g.input("x", (1, 9, 5, channels), scale=0.05)
    y = g.call("quantize", x, dtype="uint8", scale=0.05, zero_point=128)
    sizes = (1, channels - 1)
    first, others = g.calls("split", y, results=("a", "b"), axis=3, sizes=sizes)
    return g.model(g.call("concatenation", others, first, axis=3))


@pytest.mark.qemu
@pytest.mark.parametrize("channels", [4, 12])
def test_channels_are_copied_with_strides(channels: int) -> None:
    compiled = compile_for(interleaved(channels), "microbit")
    schedules = {item.kind: item.schedule for item in compiled.summary.operators}
    assert schedules == {
        "quantize": "thumb1.quantize.signs",
        "split": "thumb1.split.words",
        "concatenation": "thumb1.concatenation.words",
    }
    assert verify(compiled, samples=3).exact


def dense(inputs: int, outputs: int) -> Model:
    """Return a fully connected layer whose outputs have scales of their own."""
    g = GraphBuilder("net")
    rng = np.random.default_rng(inputs)
    x = g.input("x", (1, inputs), scale=0.05, zero_point=-128)
    w = g.constant(
        rng.integers(-127, 128, (outputs, inputs)).astype(np.int8),
        scale=tuple(rng.uniform(0.01, 0.02, outputs)),
    )
    bias = g.constant(rng.integers(-500, 500, outputs).astype(np.int32))
    y = g.call(
        "fully_connected",
        x,
        w,
        bias,
        scale=0.1,
        zero_point=-4,
        activation="none",
        keep_dims=False,
    )
    return g.model(y)


def test_layers_of_floats_have_compiled_blocks_once() -> None:
    x, w, y = (TensorType(shape, FLOAT32) for shape in ((1, 8), (4, 8), (1, 4)))
    attrs = FullyConnectedAttrs(activation="none", keep_dims=False)
    call = OpCall("fully_connected", (x, w), (y,), attrs)
    found = {
        schedule.name.partition(".")[0]
        for schedule in SCHEDULES
        if schedule.name.endswith(".fully_connected.groups") and schedule.configs(call)
    }
    assert found == {"scalar"}


@pytest.mark.qemu
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 4), (1, 12), (16, 1)])
def test_small_layers_are_no_default_loops(inputs: int, outputs: int) -> None:
    compiled = compile_for(dense(inputs, outputs), "microbit")
    assert not census._operators_in_default_loops(compiled)
    assert verify(compiled, samples=3).exact
