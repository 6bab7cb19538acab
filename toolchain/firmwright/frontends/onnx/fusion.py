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
    """A node and its QuantizeLinear; `bounds` are a Relu's or Clip's, or infinite."""

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
        """Return whether ONNX Runtime has an integer kernel.

        It depends on the types and the limits.
        """
        types: set[str] = set()
        for operand in self.operands:
            if isinstance(operand, DequantizedValue):
                types.add(operand.integer_type)
            else:
                types.add("")
        same = types == {self.target.integer_type} and not self.target.by_reciprocal
        return same and self.activation == "none"

    @property
    def uses_scalar_integer_kernel(self) -> bool:
        """Return whether an integer kernel for scalar scales (Add, Mul) applies."""
        for operand in self.operands:
            if not isinstance(operand, DequantizedValue) or not operand.is_scalar:
                return False
        return self.target.is_scalar and self.uses_integer_kernel

    @property
    def x(self) -> Value | None:
        """Return the first operand if it is quantized."""
        return quantized_input(self.operands[0])

    def constant_operands(self) -> tuple[ConstantValue | None, ...] | None:
        """Return the operands after the first, or None if they are not all constant."""
        constants: list[ConstantValue | None] = []
        for operand in self.operands[1:]:
            if not isinstance(operand, ConstantValue | None):
                return None
            constants.append(operand)
        return tuple(constants)


FusionRule: TypeAlias = Callable[[Fusion], OnnxValue | None]


def quantized_input(operand: QdqValue | None) -> Value | None:
    if not isinstance(operand, DequantizedValue):
        return None
    source = operand.source
    return source.value if isinstance(source, QuantizedValue) else None


def dequantized_constant(operand: QdqValue | None) -> ConstantValue | None:
    if not isinstance(operand, DequantizedValue):
        return None
    source = operand.source
    return source if isinstance(source, ConstantValue) else None


def check_gemm_bias(c: NodeContext, operands: QdqOperands) -> None:
    """Refuse a bias whose scale or zero point ONNX Runtime's QGemm would ignore."""
    x, w, bias = (*operands, None, None)[:3]
    constant = dequantized_constant(bias)
    if constant is None or constant.array.dtype != np.int32:
        return
    if c.attr("alpha", 1.0) != 1 or c.attr("beta", 1.0) != 1:
        return  # computed in floats
    steps = np.ones(1, np.float32)
    for item in (x, w):
        if not isinstance(item, DequantizedValue):
            return
        if item.integer_type not in ("int8", "uint8"):
            return
        source = item.source
        stored = source.value if isinstance(source, QuantizedValue) else source
        steps = steps * np.array(quantization_of(stored).scales, np.float32)
    own = quantization_of(constant)
    has_these_steps = np.allclose(own.scales, steps, rtol=1e-5, atol=0)
    if not has_these_steps or any(own.zero_points):
        raise NotSupportedError(
            "a bias in other steps than input scale times weight scale, or with a zero "
            "point, which ONNX Runtime ignores; quantize the bias with that scale, or "
            "keep it in floats"
        )


def quantization_of(x: Value | ConstantValue) -> Quantization:
    quantization = x.type.quantization
    assert quantization is not None  # by construction
    return quantization
