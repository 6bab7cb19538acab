"""A node between DequantizeLinear and QuantizeLinear, as the fusion rules see it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.frontends.onnx.node_context import ConstantValue, NodeContext, OnnxValue
from firmwright.frontends.onnx.qdq import (
    DequantizedValue,
    QdqOperands,
    QdqParameters,
    QdqValue,
    QuantizedValue,
)
from firmwright.ir.graph.attributes.layers import Activation
from firmwright.ir.graph.nodes import Value
from firmwright.ops.requantize import quantized_activation_range

_ACTIVATIONS: tuple[Activation, ...] = (
    "none",
    "relu",
    "relu6",
    "relu_n1_to_1",
    "relu_0_to_1",
)


@dataclass(frozen=True, slots=True)
class Fusion:
    """A node and the next QuantizeLinear; `bounds` are those of a Relu or Clip, or
    infinite.
    """

    c: NodeContext
    operands: QdqOperands
    target: QdqParameters
    bounds: tuple[float, float]

    @property
    def limits(self) -> tuple[int, int]:
        low, high = self.target.quantize(np.array(self.bounds)).tolist()
        return low, high

    @property
    def activation(self) -> Activation | None:
        """Return the fused activation with these limits, or None if there is none."""
        for activation in _ACTIVATIONS:
            if quantized_activation_range(activation, self.target.type) == self.limits:
                return activation
        return None

    @property
    def uses_integer_kernel(self) -> bool:
        """Return whether ONNX Runtime has an integer kernel for these types and
        limits.
        """
        types = {
            x.integer_type if isinstance(x, DequantizedValue) else ""
            for x in self.operands
        }
        same = types == {self.target.integer_type} and not self.target.by_reciprocal
        return same and self.activation == "none"

    @property
    def uses_scalar_integer_kernel(self) -> bool:
        """Return whether there is an integer kernel that takes only scalar scales (Add,
        Mul).
        """
        scalar = all(
            isinstance(x, DequantizedValue) and x.is_scalar for x in self.operands
        )
        return scalar and self.target.is_scalar and self.uses_integer_kernel

    @property
    def x(self) -> Value | None:
        """Return the first operand if it is quantized."""
        return quantized_input(self.operands[0])

    def constant_operands(self) -> tuple[ConstantValue | None, ...] | None:
        """Return the operands after the first, or None if they are not all constant."""
        rest = self.operands[1:]
        constants = tuple(x for x in rest if x is None or isinstance(x, ConstantValue))
        return constants if len(constants) == len(rest) else None


FusionRule: TypeAlias = Callable[[Fusion], OnnxValue | None]


def quantized_input(operand: QdqValue | None) -> Value | None:
    if isinstance(operand, DequantizedValue) and isinstance(
        operand.source, QuantizedValue
    ):
        return operand.source.value
    return None


def dequantized_constant(operand: QdqValue | None) -> ConstantValue | None:
    if isinstance(operand, DequantizedValue) and isinstance(
        operand.source, ConstantValue
    ):
        return operand.source
    return None


def check_gemm_bias(c: NodeContext, operands: QdqOperands) -> None:
    """Refuse a bias that ONNX Runtime's QGemm takes as it is, whatever its scale or
    zero point.
    """
    x, w, bias = (*operands, None, None)[:3]
    constant = dequantized_constant(bias)
    if constant is None or constant.array.dtype != np.int32:
        return
    if c.attr("alpha", 1.0) != 1 or c.attr("beta", 1.0) != 1:
        return  # computed in floats
    steps = np.ones(1, np.float32)
    for item in (x, w):
        if not isinstance(item, DequantizedValue) or item.integer_type not in (
            "int8",
            "uint8",
        ):
            return
        source = (
            item.source.value
            if isinstance(item.source, QuantizedValue)
            else item.source
        )
        steps = steps * np.array(quantization_of(source).scales, np.float32)
    own = quantization_of(constant)
    if not np.allclose(own.scales, steps, rtol=1e-5, atol=0) or any(own.zero_points):
        raise NotSupportedError(
            "a bias in other steps than input scale times weight scale, or with a zero "
            "point, which ONNX Runtime ignores; quantize the bias with that scale, or "
            "keep it in floats"
        )


def quantization_of(x: Value | ConstantValue) -> Quantization:
    quantization = x.type.quantization
    assert quantization is not None  # by construction
    return quantization
