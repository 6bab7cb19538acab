"""Row-streamed segments of random networks run as planned and equal the graph."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.quant import Quantization
from firmwright.choose.aot_main import build_main
from firmwright.choose.row_streaming_loop import FusedSegment
from firmwright.choose.streaming_candidates import SegmentBuilder
from firmwright.flows.samples.reference_outputs import run_interpreter
from firmwright.ir.core import Attr, Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.graph.verify import verify_graph
from firmwright.ir.module import IoBinding, IRModule
from firmwright.ir.pass_catalog import PASS_NAMES
from firmwright.ir.settings import Settings
from firmwright.ir.tir.verify import verify_module
from firmwright.lower.lowering import Lowering
from firmwright.ops.registry import op_table
from firmwright.passes import BY_NAME
from firmwright.passes.graph.rematerialize import rematerialize
from firmwright.pipeline import Options, compile_model
from firmwright.schedules.registry import INTRINSICS, SCHEDULES
from firmwright.targets.registry import parse_target, target_features
from firmwright.usmp.memory_planning import plan_memory

BEFORE_PLANNING = [
    BY_NAME[name]
    for name in PASS_NAMES[PASS_NAMES.index("unroll") : PASS_NAMES.index("usmp")]
    if name in BY_NAME
]
OPS = op_table()
TARGETS = (
    "cortex-m -mcpu=cortex-m4",
    "cortex-m -mcpu=cortex-m55",
    "cortex-m -mcpu=cortex-m3",
    "c",
)
WIDTH = 4


class Net:
    """Builds networks of convolutions, pools and additions with a few channels."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.Generator(np.random.PCG64(seed))
        self.calls: list[Call] = []
        self.constants: dict[str, Constant] = {}
        shape = (1, self.rng.randint(4, 14), WIDTH, self.rng.choice((1, 3, 4, 8)))
        self.x = Value("x", TensorType(shape, INT8, self._scale()))

    def _scale(self) -> Quantization:
        return Quantization(
            (self.rng.uniform(0.02, 0.1),), (self.rng.randint(-128, 127),)
        )

    def _constant(self, array: np.ndarray, quant: Quantization | None) -> Value:
        name = f"c{len(self.constants)}"
        dtype = INT8 if array.dtype == np.int8 else INT32
        self.constants[name] = Constant.from_array(name, array, dtype)
        return Value(name, TensorType(array.shape, dtype, quant), name)

    def call(
        self, op: str, *inputs: Value, scale: Quantization | None = None, **a: Attr
    ) -> Value:
        """Return the call's result with the inferred shape."""
        guess = TensorType(inputs[0].type.shape, INT8, scale or self._scale())
        name = f"t{len(self.calls)}"
        if op in ("conv2d", "depthwise_conv2d"):
            count = inputs[1].type.shape[0 if op == "conv2d" else 3]
            guess = replace(guess, shape=(*guess.shape[:3], count))
        constants = tuple(self.constants.get(value.name) for value in inputs)
        described = OpCall(
            op,
            tuple(v.type for v in inputs),
            (guess,),
            attrs_from_mapping(op, a),
            constants,
        )
        result = Value(name, OPS[op].infer(described)[0])
        self.calls.append(Call(op, inputs, (result,), attrs_from_mapping(op, a)))
        return result

    def conv(
        self, x: Value, *, same: bool = False, op: str = "conv2d", channels: int = 0
    ) -> Value:
        """Add a convolution with a random window; `same` preserves rows and columns."""
        cost, height = x.type.shape[3], x.type.shape[1]
        rows = 3 if same else self.rng.randint(1, min(5, height))
        stride = 1 if same else self.rng.choice((1, 1, 2))
        top, bottom = (1, 1) if same else (self.rng.randint(0, rows - 1) for _ in "tb")
        count = cost if same or op != "conv2d" else self.rng.choice((4, 8))
        count = channels or count
        shape = (count, rows, 3, cost) if op == "conv2d" else (1, rows, 3, count)
        w = self.numbers.integers(-128, 128, shape).astype(np.int8)
        axis = 0 if op == "conv2d" else 3
        scales = tuple(float(s) for s in self.numbers.uniform(0.002, 0.02, count))
        quant = Quantization(scales, (0,) * count, axis)
        bias = self.numbers.integers(-2000, 2000, count).astype(np.int32)
        return self.call(
            op,
            x,
            self._constant(w, quant),
            self._constant(bias, None),
            stride=(stride, 1),
            dilation=(1, 1),
            padding=(top, bottom, 1, 1),
            activation="none",
        )

    def excited(self, x: Value) -> Value:
        """Multiply by a factor per channel, computed from the channel means."""
        squeezed = self.call("mean", x, axes=(1, 2), keep_dims=self.rng.random() < 0.5)
        factors = self.call("relu", squeezed)
        order = (x, factors) if self.rng.random() < 0.5 else (factors, x)
        return self.call("mul", *order, activation="none")

    def pool(self, x: Value, rows: int, padding: int, stride: int = 2) -> Value:
        return self.call(
            "max_pool2d",
            x,
            scale=x.type.quantization,
            size=(rows, 1),
            stride=(stride, 1),
            dilation=(1, 1),
            padding=(padding, padding, 0, 0),
            activation="none",
        )

    def layer(self, x: Value) -> Value:
        match self.rng.randrange(6):
            case 5:
                return self.excited(self.conv(x))
            case 0:
                return self.conv(x)
            case 1:
                return self.conv(x, op="depthwise_conv2d")
            case 2 if x.type.shape[1] > 2:
                return self.pool(x, 3, 1)
            case 3:
                inner = self.conv(self.conv(x, same=True), same=True)
                return self.call("add", x, inner, activation="relu")
            case _:
                return self.call("relu", x)

    def module(self) -> IRModule:
        value = self.x
        for _ in range(self.rng.randint(2, 5)):
            value = self.layer(value)
        if self.rng.random() < 0.4:
            value = self.call(
                "mean", value, axes=(1, 2), keep_dims=self.rng.random() < 0.5
            )
        return self.giving(value)

    def giving(self, value: Value) -> IRModule:
        """Return all calls so far as a module with that result."""
        main = Function("main", (self.x,), tuple(self.calls), (value,))
        module = IRModule("net", {"main": main}, self.constants, entry_name="main")
        verify_graph(main, module, OPS)
        return module


def _streamed(
    module: IRModule, rng: random.Random
) -> tuple[IRModule, FusedSegment] | None:
    """Return the planned module with a random segment."""
    lowering = Lowering(module, OPS, SCHEDULES, INTRINSICS, target_features)
    entry = lowering.entry
    segments = SegmentBuilder(entry, lowering.rows)
    count = len(entry.body)
    feed = module.io.stream_input_rows
    spans = [
        (first, end, band)
        for first in ((0,) if feed else range(count))
        for end in range(first + 1, count + 1)
        for band in (1, 2, 3)
    ]
    rng.shuffle(spans)
    result = (segments.segment(*span, feed=feed) for span in spans)
    segment = next((item for item in result if item is not None), None)
    if segment is None:
        return None
    chosen = [
        (i.call, i.candidates[0] if i.candidates else None) for i in lowering.calls()
    ]
    built = build_main(module, chosen, [segment])
    for step in BEFORE_PLANNING:
        built = step(built)
    built = plan_memory(built)
    for name in ("dedupe-functions", "tir-dce"):
        built = BY_NAME[name](built)
    return built, segment


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", TARGETS)
def test_streamed_random_networks_equal_the_graph(target: str, deep: bool) -> None:
    bands: set[int] = set()
    calls = 0
    for seed in range(300 if deep else 6):
        rng = random.Random(seed)
        module = replace(Net(seed).module(), targets={"cpu": parse_target(target)})
        module = replace(module, io=IoBinding(stream_input_rows=seed % 3 == 0))
        result = _streamed(module, rng)
        if result is None:
            continue
        planned, segment = result
        verify_module(planned, OPS, INTRINSICS)
        x = module.entry.params[0].type
        draw = np.random.Generator(np.random.PCG64(seed))
        sample = {"x": draw.integers(-128, 128, x.shape).astype(np.int8)}
        expected = evaluate_graph(module, sample, OPS, INTRINSICS)
        (outputs,) = run_interpreter(planned, [sample]).outputs
        for value in module.entry.results:
            assert np.array_equal(outputs[value.name], expected[value.name]), (
                seed,
                segment.plan,
            )
        bands |= {remaining.band for remaining in segment.plan.row_buffers.values()}
        calls = max(calls, len(segment.calls))
    assert {1, 2} <= bands
    assert calls > 3


def test_a_pool_may_leave_out_the_last_row() -> None:
    net = Net(0)
    net.x = Value("x", TensorType((1, 9, WIDTH, 4), INT8, net._scale()))
    module = net.giving(net.pool(net.pool(net.x, 5, 2, stride=1), 2, 0))
    streamed = _streamed(
        replace(module, targets={"cpu": parse_target("c")}), random.Random(2)
    )
    assert streamed is not None
    verify_module(streamed[0], OPS, INTRINSICS)


def _squeezed_twice(seed: int) -> IRModule:
    """Return a model that widens a tensor, scales by channel means and narrows it."""
    net = Net(seed)
    net.x = Value("x", TensorType((1, 12, WIDTH, 4), INT8, net._scale()))
    wide = net.conv(net.x, same=True, channels=32)
    wide = net.conv(wide, same=True, op="depthwise_conv2d")
    return net.giving(net.conv(net.excited(wide), same=True, channels=4))


@pytest.mark.deep
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.deep) for n in (1, 2))]
)
def test_input_of_a_squeeze_is_rematerialized_on_request(seed: int) -> None:
    module = _squeezed_twice(seed)
    again = rematerialize(replace(module, settings=Settings(recompute=True)), OPS)
    entry = again.entry
    assert isinstance(entry, Function)
    ops = [call.op for call in entry.body]
    pair = ["conv2d", "depthwise_conv2d"]
    assert ops == [*pair, "mean", "relu", *pair, "mul", "conv2d"]
    verify_graph(entry, again, OPS)
    compiled = [
        compile_model(module, Options(optimize="ram", recompute=requests))
        for requests in (False, True)
    ]
    once, twice = (item.metadata["workspace_bytes"] for item in compiled)
    assert twice < 0.8 * once
    draw = np.random.Generator(np.random.PCG64(seed))
    sample = {"x": draw.integers(-128, 128, (1, 12, WIDTH, 4)).astype(np.int8)}
    expected = evaluate_graph(module, sample, OPS, INTRINSICS)
    for item in compiled:
        (outputs,) = run_interpreter(item.module, [sample]).outputs
        for value in module.entry.results:
            assert np.array_equal(outputs[value.name], expected[value.name])
