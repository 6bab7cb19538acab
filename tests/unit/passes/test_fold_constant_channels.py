"""Constant channels are removed, and the results stay equal bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import firmwright as fw
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Value
from firmwright.ir.graph.verify import diagnose_graph
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table
from firmwright.passes.graph.fold_constant_channels import PASS, fold_if_not_slower

OPS = op_table()
ZERO, FULL = -1_000_000, 1_000_000
"""Biases with which a layer returns its lower clamp, zero point and upper clamp."""


class Network(GraphBuilder):
    """Builds int8 layers with random weights; `special` maps channels to biases."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__("net")
        self.rng = np.random.default_rng(seed)
        self.x = self.input("x", (1, 7, 6, 3), scale=0.05, zero_point=3)

    def layer(
        self,
        op: str,
        x: Value,
        shape: tuple[int, ...],
        axis: int,
        special: dict[int, int],
        unused: tuple[int, ...] = (),
        scale: float = 0.1,
        **attrs: object,
    ) -> Value:
        weights = self.rng.integers(-127, 128, shape).astype(np.int8)
        weights[..., unused] = 0
        bias = self.rng.integers(-2000, 2000, shape[axis]).astype(np.int32)
        bias[list(special)] = list(special.values())
        scales = self.rng.uniform(0.002, 0.02, shape[axis]).tolist()
        w = self.constant(weights, scale=scales, axis=axis)
        operands = (x, w, self.constant(bias))
        return self.call(
            op, *operands, scale=scale, zero_point=-100, activation="relu", **attrs
        )

    def conv(
        self, x: Value, outputs: int, special: dict[int, int], pad: int = 0, **more
    ) -> Value:
        size, window = (
            2 * pad + 1,
            {"stride": (1, 1), "dilation": (1, 1), "padding": (pad,) * 4},
        )
        shape = (outputs, size, size, x.shape[3])
        return self.layer("conv2d", x, shape, 0, special, **window, **more)

    def depthwise(self, x: Value, special: dict[int, int], pad: int = 1) -> Value:
        window = {"stride": (1, 1), "dilation": (1, 1), "padding": (pad,) * 4}
        return self.layer(
            "depthwise_conv2d", x, (1, 3, 3, x.shape[3]), 3, special, **window
        )

    def pool(self, x: Value, op: str, size: tuple[int, int] = (2, 2)) -> Value:
        window = {
            "size": size,
            "stride": (2, 2),
            "dilation": (1, 1),
            "padding": (0,) * 4,
        }
        kind = {"scale": 0.1, "zero_point": -100}
        return self.call(op, x, **window, **kind, activation="none")


def channels_left(module: IRModule) -> list[int]:
    """Check that values stay equal; return the channel counts of those with fewer."""
    folded = PASS(module)
    assert diagnose_graph(folded.entry, folded, OPS) == []
    live = dict(folded.results.live_channels)
    for seed in range(3):
        x = (
            np.random.default_rng(seed)
            .integers(-128, 128, (1, 7, 6, 3))
            .astype(np.int8)
        )
        before, after = (
            evaluate_graph(one, {"x": x}, OPS, {}) for one in (module, folded)
        )
        for name, values in before.items():
            expected = values[..., live[name]] if name in live else values
            np.testing.assert_array_equal(expected, after[name], name)
        assert len(np.unique(before[module.entry.results[0].name])) > 2
    return [len(channels) for channels in live.values()]


def test_a_chain_computes_only_the_channels_that_vary() -> None:
    net = Network()
    y = net.conv(net.x, 16, {1: ZERO, 4: ZERO, 5: ZERO, 6: FULL, 9: ZERO, 15: ZERO})
    y = net.conv(net.pool(net.depthwise(y, {}), "max_pool2d"), 8, {})
    assert channels_left(net.module(y)) == [12, 12, 12]


def test_constants_other_than_zero_become_biases() -> None:
    net = Network()
    y = net.conv(net.x, 8, dict.fromkeys(range(4), FULL))
    y = net.conv(net.pool(y, "average_pool2d"), 8, {})
    assert channels_left(net.module(y)) == [4, 4]


def test_padded_windows_keep_constants_other_than_zero() -> None:
    net = Network()
    y = net.conv(net.conv(net.x, 8, dict.fromkeys(range(4), FULL)), 8, {}, pad=1)
    assert channels_left(net.module(y)) == []


def test_channels_without_weights_in_their_reader_are_removed() -> None:
    net = Network()
    y = net.conv(net.conv(net.x, 8, {}), 8, {}, pad=1, unused=(0, 2, 3, 7))
    assert channels_left(net.module(y)) == [4]


def test_every_reader_decides() -> None:
    net = Network()
    y = net.conv(net.x, 8, dict.fromkeys(range(4), ZERO))
    assert channels_left(net.module(net.conv(y, 8, {}), net.conv(y, 4, {}))) == [4]
    assert channels_left(net.module(net.conv(y, 8, {}), y)) == []


def test_flattened_channels_are_removed_from_fully_connected_layers() -> None:
    net = Network()
    y = net.conv(net.x, 8, {0: ZERO, 3: ZERO, 4: FULL, 7: ZERO})
    y = net.call("reshape", y, shape=(1, 336), scale=0.1, zero_point=-100)
    y = net.layer("fully_connected", y, (12, 336), 0, {}, scale=2.0, keep_dims=False)
    assert channels_left(net.module(y)) == [4, 168]


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_keep_their_results(seed: int) -> None:
    rng, net = np.random.default_rng(seed), Network(seed)

    def special(channels: int) -> dict[int, int]:
        chosen = rng.permutation(channels)[: rng.integers(channels)]
        return {int(c): int(rng.choice([ZERO, FULL, 0])) for c in chosen}

    y, read = net.conv(net.x, 12, special(12)), []
    for step in rng.choice(["conv", "padded", "depthwise", "pool", "rows"], 6):
        if step in ("conv", "padded"):
            y = net.conv(
                y, 4 * int(rng.integers(1, 6)), special(4), int(step == "padded")
            )
        elif step == "depthwise":
            y = net.depthwise(y, special(y.shape[3]))
        elif step == "pool" and y.shape[1] > 1:
            y = net.pool(y, str(rng.choice(["max_pool2d", "average_pool2d"])))
        elif step == "rows":  # of another length than the channels, also across pixels
            flat = net.call(
                "reshape", y, shape=(1, y.type.elements), scale=0.1, zero_point=-100
            )
            inputs = y.type.elements // int(rng.choice([1, y.shape[1]]))
            read.append(
                net.layer("fully_connected", flat, (9, inputs), 0, {}, keep_dims=False)
            )
    channels_left(net.module(net.conv(y, 8, {}, scale=0.5), *read))


def test_scalars_have_no_channels() -> None:
    net = Network()
    x = net.call("reshape", net.input("one", (1,), scale=0.1), shape=(), scale=0.1)
    y = net.conv(net.x, 1, {})
    pixel = net.pool(y, "max_pool2d", (7, 6))
    scalar = net.call("reshape", pixel, shape=(), scale=0.1, zero_point=-100)
    module = net.module(scalar, x)
    assert PASS(module) is module


def test_constant_inputs_have_no_bounds() -> None:
    net = Network()
    fixed = net.constant(np.zeros((1, 4, 2), np.int8), scale=0.1)
    x = net.call("reshape", fixed, shape=(1, 2, 2, 2), scale=0.1)
    held = net.constant(np.ones((1, 3, 3, 2), np.int8), scale=0.1)
    module = net.module(net.conv(x, 4, {}), net.conv(held, 4, {}))
    assert PASS(module) is module


def test_one_group_of_channels_always_remains() -> None:
    net = Network()
    y = net.conv(net.conv(net.x, 12, dict.fromkeys(range(12), FULL)), 8, {})
    module = PASS(net.module(y))
    assert [len(channels) for _, channels in module.results.live_channels] == [2]


@pytest.mark.deep
@pytest.mark.models
def test_a_person_detector_loses_its_constant_channels(model_path) -> None:
    compiled = fw.compile(fw.load(model_path("vww_96_int8.tflite")), board="host")
    live = dict(compiled.module.results.live_channels)
    assert len(live) == 19
    assert min(map(len, live.values())) == 16
    result = fw.verify(compiled, samples=3, find_first_divergence=True)
    assert result.exact
    assert (result.layers_compared, result.layer) == (30, None)


# ---- what is kept --------------------------------------------------------------------


def test_few_channels_are_removed_only_if_that_is_predicted_to_be_faster() -> None:
    net = Network()
    module = net.module(net.conv(net.conv(net.x, 32, {1: ZERO, 4: ZERO}), 8, {}))

    def folds(after: int, before: int) -> bool:
        times = iter((after, before))
        return fold_if_not_slower(module, lambda _: next(times)) is not module

    assert folds(after=98, before=100)
    assert not folds(after=100, before=100)
    assert not folds(after=110, before=100)


def test_many_channels_are_removed_without_a_prediction() -> None:
    net = Network()
    y = net.conv(net.conv(net.x, 16, dict.fromkeys(range(8), ZERO)), 8, {})

    def predict(_: IRModule) -> int:
        raise AssertionError("no prediction is needed")

    folded = fold_if_not_slower(net.module(y), predict)
    assert [len(live) for _, live in folded.results.live_channels] == [8]


def test_all_channels_remain_if_the_user_asks_for_them() -> None:
    net = Network()
    module = net.module(net.conv(net.conv(net.x, 16, {1: ZERO, 4: ZERO}), 8, {}))
    settings = replace(module.settings, all_channels=True)
    wide = replace(module, settings=settings)
    assert PASS(wide) is wide
