"""Convolutions of all shapes in one function (goal `size`)."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.flows.model.compilation import compile_for
from firmwright.flows.verify.verification import verify
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.graph.attributes.base import attrs_to_mapping
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir import PrimFunc
from firmwright.schedules.cortex_m_dsp.conv2d_shared import SCHEDULES
from tests.unit.schedules.relu_layers import relu_layer

(SHARED,) = SCHEDULES


def layer(
    seed: int,
    shape: tuple[int, int, int],
    outputs: int,
    window: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> OpCall:
    rng = np.random.default_rng(seed)
    scales = tuple(
        float(np.float32(s)) for s in rng.choice([2e-3, 1e-2, 0.05], outputs)
    )
    weights = rng.integers(-127, 128, (outputs, *window, shape[2])).astype(np.int8)
    bias = (rng.uniform(-1, 3, outputs) / np.array(scales) / 0.02).astype(np.int32)
    zero_point = int(rng.choice([-128, 0, 127, 5]))
    return relu_layer(
        "conv2d", zero_point, shape, weights, scales, bias, stride, padding
    )


LAYERS = [
    ((4, 5, 7), 6, (1, 1)),
    ((3, 3, 13), 10, (1, 1)),
    ((7, 6, 8), 4, (1, 1), (2, 2)),
    ((9, 8, 3), 8, (3, 3), (2, 2), (0, 1, 0, 1)),
    ((6, 7, 5), 2, (3, 3), (1, 1), (1, 1, 1, 1)),
    ((8, 9, 1), 4, (4, 3), (2, 1), (2, 2, 1, 1)),
    ((10, 3, 2), 6, (2, 3), (1, 2), (1, 0, 2, 2)),
    ((5, 4, 16), 12, (2, 2)),
]


def test_layers_of_many_shapes_match_the_reference(judge) -> None:
    judged = 0
    for seed, arguments in enumerate(LAYERS):
        call = layer(seed, *arguments)
        for config in SHARED.configs(call):
            judge(call, SHARED, config)
            judged += 1
    assert judged > len(LAYERS) // 2


def test_layers_without_this_form_are_not_offered() -> None:
    assert not SHARED.configs(
        layer(0, (4, 4, 4), 3, (1, 1))
    )  # an odd number of channels
    assert not SHARED.configs(layer(0, (1, 3, 4), 4, (1, 1)))  # fewer than four pixels
    assert not SHARED.configs(layer(0, (4, 4, 4), 4, (1, 1), padding=(0, 0, 1, 0)))


def several_layers() -> IRModule:
    g = GraphBuilder("many")
    y = g.input("x", (1, 12, 11, 3), scale=0.02, zero_point=-128)
    for seed, (outputs, window, stride) in enumerate(
        [
            (8, (3, 3), (2, 2)),
            (22, (1, 1), (1, 1)),
            (12, (1, 1), (1, 1)),
            (14, (2, 2), (1, 1)),
        ]
    ):
        made = layer(seed, y.shape[1:], outputs, window, stride)
        weights, bias = (constant.array() for constant in made.constants[1:])
        scales = made.input(1).quantization.scales
        y = g.call(
            "conv2d",
            y,
            g.constant(weights, scale=scales, axis=0),
            g.constant(bias),
            scale=6 / 255,
            zero_point=-128,
            **attrs_to_mapping(made.attrs),
        )
    return g.model(y)


def test_outputs_replace_inputs_that_were_read() -> None:
    compiled = compile_for(
        several_layers(), "host", target="cortex-m -mcpu=cortex-m4", optimize="size"
    )
    assert compiled.summary.workspace_bytes < 5 * 5 * (22 + 12)
    assert verify(compiled, samples=3).exact


@pytest.mark.parametrize("goal", ["size", "balanced"])
def test_only_the_goal_size_shares_one_function(goal: str) -> None:
    compiled = compile_for(several_layers(), "mps2-an386", optimize=goal)
    used = [item.schedule.split()[0] for item in compiled.summary.operators]
    assert (set(used) == {"dsp.conv2d.shared"}) == (goal == "size")
    functions = [
        f for f in compiled.module.functions.values() if isinstance(f, PrimFunc)
    ]
    codes = {f.code for f in functions if f.attrs.get("op") == "conv2d"}
    assert (len(codes) == 1) == (goal == "size")
