"""Quantized layers and graphs equal ONNX Runtime for all kinds of scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import onnx
from firmwright.base.dtypes import INT8
from firmwright.base.quant import Quantization, Rounding, quantize_multiplier
from firmwright.frontends.onnx import ModelOverrides, import_onnx, preprocess_model
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Function, TensorType
from firmwright.ir.module import IRModule
from firmwright.ops.double_requantize import (
    find_exact_multipliers,
    requantization_in_float32,
    requantize_in_float32,
)
from firmwright.ops.registry import op_table
from firmwright.ops.requantize import Requantization
from firmwright.oracle.onnx_rewriting import with_unsigned_weights
from firmwright.oracle.reference_runner import run_reference
from firmwright.oracle.reference_worker import is_quantized
from firmwright.schedules.registry import INTRINSICS
from tests.onnx.backend import run_merged
from tests.onnx.onnx_models import Net

Reals = NDArray[np.float32]
LAYERS, DEEP_LAYERS = 24, 320
OPERATORS = (
    "Conv",
    "depthwise",
    "Gemm",
    "Add",
    "Mul",
    "Sub",
    "GlobalAveragePool",
    "Softmax",
)


@dataclass
class LayerMaker:
    """Random quantized layers of one type, a third with power-of-two scales."""

    rng: np.random.Generator
    unsigned: bool
    dyadic: bool

    def scale(self, low: float, high: float, *shape: int) -> Reals:
        drawn = self.rng.uniform(low, high, shape or None)
        return np.asarray(
            np.exp2(np.rint(np.log2(drawn))) if self.dyadic else drawn, np.float32
        )

    def point(self) -> NDArray[np.generic]:
        value = int(self.rng.integers(-90, 90))
        return (
            np.array(value + 128, np.uint8)
            if self.unsigned
            else np.array(value, np.int8)
        )

    def tensor(self, net: Net, x: str, scale: Reals) -> str:
        operands = net.weight(scale), net.weight(self.point())
        return str(
            net.node(
                "DequantizeLinear", net.node("QuantizeLinear", x, *operands), *operands
            )
        )

    def weights(self, net: Net, shape: tuple[int, ...], scales: Reals) -> str:
        values = self.rng.integers(-127, 128, shape).astype(np.int8)
        points = net.weight(np.zeros(scales.shape, np.int8))
        axis = {"axis": 0} if scales.ndim else {}
        operands = net.weight(values), net.weight(scales), points
        return str(net.node("DequantizeLinear", *operands, **axis))

    def bias(self, net: Net, channels: int, scales: Reals) -> str:
        values = self.rng.integers(-3000, 3000, channels).astype(np.int32)
        points = net.weight(np.zeros(scales.shape, np.int32))
        axis = {"axis": 0} if scales.ndim else {}
        operands = net.weight(values), net.weight(scales), points
        return str(net.node("DequantizeLinear", *operands, **axis))

    def layer(self, op: str) -> bytes:
        net = Net(int(self.rng.integers(1000)))
        shape = (3, 24) if op in ("Gemm", "Softmax") else (1, 8, 6, 5)
        step = self.scale(0.01, 0.06)
        x = self.tensor(net, net.input("x", shape), step)
        y_step = self.scale(0.02, 0.1)
        if op in ("Conv", "depthwise", "Gemm"):
            channels = int(self.rng.choice([8, 16]))
            channel_steps = self.scale(
                0.002, 0.01, *([channels] * (self.rng.random() < 0.5))
            )
            form = {"Conv": (8, 3, 3), "depthwise": (1, 3, 3), "Gemm": (24,)}[op]
            w = self.weights(net, (channels, *form), channel_steps)
            bias = self.bias(
                net, channels, np.asarray(step * channel_steps, np.float32)
            )
            groups = {} if op == "Gemm" else {"pads": [1] * 4, "group": 8 // form[0]}
            attrs: dict[str, Any] = {"transB": 1} if op == "Gemm" else groups
            y = net.node("Gemm" if op == "Gemm" else "Conv", x, w, bias, **attrs)
            y_step = self.scale(0.04, 0.3) * np.float32(np.sqrt(np.prod(form)) / 3)
            y_step = self.scale(float(y_step), float(y_step) * 1.01)
        elif op in ("Add", "Mul", "Sub"):
            size = (
                shape
                if self.rng.random() < 0.6
                else (1, int(self.rng.choice([1, 8])), 1, 1)
            )
            y = net.node(
                op, x, self.tensor(net, net.input("z", size), self.scale(0.01, 0.06))
            )
        else:
            y = net.node(op, x)
        return net.model(self.tensor(net, y, y_step))


def imported(data: bytes) -> IRModule:
    complete = preprocess_model(data, "net.onnx", ModelOverrides())
    return import_onnx(complete, "net.onnx", "net", op_table())


def inputs_of(module: IRModule, seed: int) -> dict[str, Reals]:
    rng = np.random.Generator(np.random.PCG64(seed))
    assert isinstance(module.entry, Function)
    return {
        value.name: rng.normal(scale=2, size=value.type.shape).astype(np.float32)
        for value in module.entry.params
    }


def made(number: int) -> bytes:
    rng = np.random.Generator(np.random.PCG64(number))
    op = OPERATORS[number % len(OPERATORS)]
    return LayerMaker(rng, number // len(OPERATORS) % 2 == 1, number % 3 == 0).layer(op)


def merged(models: list[bytes]) -> bytes:
    """Return one model with all graphs; names get a number as prefix."""
    whole = onnx.ModelProto.FromString(models[0])
    del whole.graph.node[:], whole.graph.initializer[:], whole.graph.value_info[:]
    del whole.graph.input[:], whole.graph.output[:]
    for number, data in enumerate(models):
        part = onnx.compose.add_prefix(onnx.ModelProto.FromString(data), f"{number}.")
        whole.graph.node.extend(part.graph.node)
        whole.graph.initializer.extend(part.graph.initializer)
        whole.graph.input.extend(part.graph.input)
        whole.graph.output.extend(part.graph.output)
    return bytes(whole.SerializeToString())


def test_layers_equal_onnx_runtime(deep: bool) -> None:
    models = [made(number) for number in range(DEEP_LAYERS if deep else LAYERS)]
    modules = list(map(imported, models))
    for seed in range(3):
        inputs = [inputs_of(module, seed) for module in modules]
        feeds = {
            f"{k}.{name}": x
            for k, part in enumerate(inputs)
            for name, x in part.items()
        }
        (expected,) = run_reference(merged(models), [feeds], "onnxruntime").outputs
        differing = []
        for number, (module, part) in enumerate(zip(modules, inputs, strict=True)):
            values = evaluate_graph(module, part, op_table(), INTRINSICS)
            assert isinstance(module.entry, Function)
            (name,) = (item for item in expected if item.startswith(f"{number}."))
            if not np.array_equal(values[module.entry.results[0].name], expected[name]):
                differing.append((number, OPERATORS[number % len(OPERATORS)]))
        assert differing == []


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=[pytest.mark.host_c, pytest.mark.deep]),
        pytest.param("mps2-an386", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("mps2-an385", marks=[pytest.mark.qemu, pytest.mark.deep]),
    ],
)
def test_firmware_of_the_layers_has_the_same_integers(board: str, deep: bool) -> None:
    modules = [
        imported(made(number)) for number in range(LAYERS if deep else len(OPERATORS))
    ]
    inputs = [inputs_of(module, 5) for module in modules]
    (got,) = run_merged(modules, [inputs], board)
    for number, (module, part) in enumerate(zip(modules, inputs, strict=True)):
        values = evaluate_graph(module, part, op_table(), INTRINSICS)
        assert isinstance(module.entry, Function)
        name = module.entry.results[0].name
        np.testing.assert_array_equal(
            got[f"{number}.{name}"], values[name], str(number)
        )


def test_fitted_multipliers_are_exact_for_every_sum(deep: bool) -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    fitted = 0
    for _ in range(2000 if deep else 60):
        reach = int(rng.integers(500, 60_000))
        factor = float(np.float32(rng.uniform(50, 300) / reach))
        point = int(rng.integers(-128, 128))
        multiplier, shift = quantize_multiplier(factor)
        usual = Requantization((multiplier,), (shift,), Rounding.ONCE, point, -128, 127)
        ends = np.array([-reach]), np.array([reach])
        found = find_exact_multipliers(usual, [factor], *ends, requantize_in_float32)
        if found is None:
            continue
        fitted += 1
        sums = np.arange(-reach, reach + 1)
        exact = np.clip(
            requantize_in_float32(sums, np.array([factor])) + point, -128, 127
        )
        scaled = (sums * found.multipliers[0] + (1 << (30 - shift))) >> (31 - shift)
        np.testing.assert_array_equal(np.clip(scaled + point, -128, 127), exact)
    assert fitted > 50


def test_channels_with_a_fitted_multiplier_round_once_in_a_layer_of_float32() -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    factors = rng.uniform(0.001, 0.004, 48).astype(np.float32).astype(float)
    output = TensorType((1, 48), INT8, Quantization((0.1,), (-20,)))
    reach = np.full(48, 70_000)
    found = requantization_in_float32(factors.tolist(), -reach, reach, output, "none")
    fitted = np.array(found.multipliers) % 2 == 0
    assert found.rounding is Rounding.FLOAT32
    assert 10 < fitted.sum() < 48
    sums = np.arange(-70_000, 70_001)[:, None]
    exact = np.clip(requantize_in_float32(sums, factors) - 20, -128, 127)
    np.testing.assert_array_equal(found.apply(sums, INT8), exact)


def test_only_quantized_models_run_with_graph_optimizations() -> None:
    assert is_quantized(made(0))
    net = Net(1)
    assert not is_quantized(net.model(net.node("Relu", net.input("x", (1, 4)))))


@pytest.mark.parametrize("is_integer", [True, False])
def test_products_of_uint8_and_int8_do_not_saturate(is_integer: bool):
    # 2 * 255 * 127 exceeds 16 bits, where ONNX Runtime saturates on CPUs without VNNI.
    rng = np.random.default_rng(3)
    data, net = rng.integers(200, 256, (4, 64)).astype(np.uint8), Net()
    weights = rng.integers(100, 128, (64, 8)).astype(np.int8)
    operands = [net.weight(np.array(4, np.uint8)), net.weight(np.array(3, np.int8))]
    exact = (data.astype(np.int32) - 4) @ (weights.astype(np.int32) - 3)
    x = net.input("x", data.shape, onnx.TensorProto.UINT8)
    if is_integer:
        y = net.node("MatMulInteger", x, net.weight(weights), *operands)
    else:
        one = net.weight(np.array(1, np.float32))
        scale = net.weight(np.array(2.0**14, np.float32))
        real = net.node("DequantizeLinear", x, one, operands[0])
        w = net.node("DequantizeLinear", net.weight(weights), one, operands[1])
        y = net.node("QuantizeLinear", net.node("MatMul", real, w), scale, operands[0])
        exact = np.rint(exact / 2**14) + 4
    model = net.model(y)
    (outputs,) = run_reference(model, [{"x": data}], "onnxruntime").outputs
    assert np.array_equal(outputs[y], exact)
    stored = onnx.load_from_string(with_unsigned_weights(model)).graph
    names = {tensor.name: tensor.data_type for tensor in stored.initializer}
    read = [names[name] for node in stored.node for name in node.input if name in names]
    assert onnx.TensorProto.INT8 not in read
