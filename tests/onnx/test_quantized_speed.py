"""ONNX Runtime's roundings cost at most 4.5 % of the instructions of TFLite's."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.frontends.onnx import ModelOverrides, import_onnx, preprocess_model
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table
from tests.onnx.backend import compile_module
from tests.onnx.onnx_models import Net, quantized_tensor

MOST = (
    1.045  # both have a faster transpose before the layers, TFLite has faster sums, too
)


def layer(
    net: Net, x: str, shape: tuple[int, ...], steps: float, group: int = 1
) -> str:
    """Add a convolution with scales per channel, Relu, quantize and dequantize."""
    scales = net.weight(
        net.rng.uniform(0.2, 1.0, shape[0]).astype(np.float32) * np.float32(steps)
    )
    values = net.weight(net.rng.integers(-127, 128, shape).astype(np.int8))
    zeros = net.weight(np.zeros(shape[0], np.int8))
    w = net.node("DequantizeLinear", values, scales, zeros, axis=0)
    y = net.node("Relu", net.node("Conv", x, w, group=group, pads=[shape[2] // 2] * 4))
    return quantized_tensor(net, y, 0.05, False, least=True)


def network() -> IRModule:
    net = Net(4)
    x = quantized_tensor(net, net.input("image", (1, 16, 7, 7)), 0.05, False)
    x = layer(net, x, (32, 16, 3, 3), 0.003)
    x = layer(net, x, (32, 1, 3, 3), 0.01, group=32)
    x = layer(net, x, (32, 32, 1, 1), 0.006)
    data = preprocess_model(net.model(x), "net.onnx", ModelOverrides())
    return import_onnx(data, "net.onnx", "net", op_table())


@pytest.mark.deep
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
        *(
            pytest.param(board, marks=[pytest.mark.qemu, pytest.mark.deep])
            for board in ("mps2-an385", "mps3-an547", "microbit", "qemu-riscv32-virt")
        ),
    ],
)
def test_layers_of_onnx_runtime_are_as_fast_as_those_of_tflite(board: str) -> None:
    module = network()
    modules = [module, module.with_numerics("litert")]
    own, other = (
        measure_instructions(compile_module(item, board)).total for item in modules
    )
    assert own.instructions <= MOST * other.instructions, (
        own.instructions / other.instructions
    )
