"""Quantized and dequantized values of models with QuantizeLinear/DequantizeLinear."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.frontends.onnx.node_context import CallEmitter, ConstantValue, OnnxValue
from firmwright.frontends.onnx.protobuf import Message
from firmwright.ir.graph.attributes.values import ExpressionAttrs
from firmwright.ir.graph.nodes import TensorType, Value

UNSIGNED_OFFSET = 128
BY_RECIPROCAL = "by_reciprocal"
"""An attribute of QuantizeLinear nodes that were made from PyTorch programs."""
QUANTIZE_ATTRIBUTES = frozenset({"axis", "saturate", BY_RECIPROCAL})


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedValue:
    """A quantized int8 value; if `is_unsigned`, it is the model's uint8 minus 128."""

    value: Value
    is_unsigned: bool

    @property
    def quantization(self) -> Quantization:
        quantization = self.value.type.quantization
        assert quantization is not None  # by construction
        return quantization


@dataclass(frozen=True, slots=True, eq=False)
class DequantizedValue:
    """The float value of quantized integers, computed only if floats are required.

    `integer_type` is the file's element type, "" if ONNX Runtime moved the values as
    floats and so uses no integer kernel. `is_scalar`: the file's scale and zero point
    are not vectors of one.
    """

    source: QuantizedValue | ConstantValue
    integer_type: str
    is_scalar: bool


@dataclass(frozen=True, slots=True, eq=False)
class NarrowedValue:
    """A 16-bit float of the model: `value`, computed in float32, before its rounding.

    It is rounded where the model stores it, as ONNX Runtime drops the conversions
    between two nodes that it computes in float32. The result of a Cast (`is_cast`) is
    also rounded where elements are moved.
    """

    value: OnnxValue
    dtype: DType
    is_cast: bool = False


QdqValue: TypeAlias = (
    Value | ConstantValue | QuantizedValue | DequantizedValue | NarrowedValue
)
QdqOperands: TypeAlias = Sequence[QdqValue | None]


@dataclass(frozen=True, slots=True)
class QdqParameters:
    """The parameters of a QuantizeLinear.

    `by_reciprocal` multiplies by 1 / scale, as PyTorch does.

    `is_scalar`: the file's scale and zero point are not vectors of one element.
    """

    scale: float
    zero_point: int
    is_unsigned: bool
    by_reciprocal: bool = False
    is_scalar: bool = True

    @property
    def quantization(self) -> Quantization:
        return Quantization((self.scale,), (self.zero_point,))

    @property
    def type(self) -> TensorType:
        return TensorType((), INT8, self.quantization)

    @property
    def step_formula(self) -> str:
        """Return the number of steps in the value `a` of an expression."""
        if self.by_reciprocal:
            return f"a * {float(np.float32(1 / self.scale))!r}"
        return f"a / {self.scale!r}"

    def steps(self, reals: Array) -> Array:
        """Return the number of steps in float32 values, not rounded."""
        if self.by_reciprocal:
            return np.asarray(reals.astype(np.float32) * np.float32(1 / self.scale))
        return np.asarray(reals.astype(np.float32) / np.float32(self.scale))

    @property
    def integer_type(self) -> str:
        return "uint8" if self.is_unsigned else "int8"

    def quantize(self, reals: Array) -> Array:
        """Quantize float32 values to int8, by the definition of QuantizeLinear."""
        steps = np.rint(self.steps(reals)) + self.zero_point
        # ONNX Runtime quantizes NaN to the lowest value.
        known = np.nan_to_num(steps, nan=INT8.min, posinf=INT8.max, neginf=INT8.min)
        return np.asarray(np.clip(known, INT8.min, INT8.max)).astype(np.int8)

    def dequantized_range(self) -> Array:
        """Return the float32 values that the int8 values represent, in order."""
        steps = np.arange(INT8.min, INT8.max + 1) - self.zero_point
        return np.asarray(steps.astype(np.float32) * np.float32(self.scale))


def qdq_parameters(
    scale: QdqValue | None, zero_point: QdqValue | None, by_reciprocal: bool = False
) -> QdqParameters | None:
    if not isinstance(scale, ConstantValue):
        return None
    if not isinstance(zero_point, ConstantValue | None):
        return None
    if scale.array.size != 1 or scale.array.dtype != np.float32:
        return None
    points = np.zeros(1, np.uint8) if zero_point is None else zero_point.array
    if points.dtype not in (np.uint8, np.int8):
        return None
    unsigned = points.dtype == np.uint8
    point = int(points.reshape(-1)[0]) - UNSIGNED_OFFSET * unsigned
    value = float(scale.array.item())
    if by_reciprocal and not value:
        raise NotSupportedError("a scale of 0")
    is_scalar = are_scalars(scale, zero_point)
    return QdqParameters(value, point, unsigned, by_reciprocal, is_scalar)


def are_scalars(scale: QdqValue | None, zero_point: QdqValue | None) -> bool:
    """Return whether neither parameter is a vector.

    Only then, Add and Mul have integer kernels.
    """
    operands = (scale, zero_point)
    ranks = [x.array.ndim for x in operands if isinstance(x, ConstantValue)]
    return not any(ranks)


def following_quantize(
    node: Message,
    only_reader: Callable[[Message], Message | None],
    tensors: Mapping[str, QdqValue | None],
) -> tuple[tuple[float, float], QdqParameters, list[str]] | None:
    """Return (bounds, parameters, outputs) of the next QuantizeLinear, or None.

    The bounds are those of a Relu or Clip before it, or infinite.
    """
    following = only_reader(node)
    names = []
    bounds = (-np.inf, np.inf)
    if following is not None and following.op_type in ("Relu", "Clip"):
        own_bounds = _clamp_bounds(following, tensors)
        if own_bounds is None:
            return None
        bounds = own_bounds
        names.append(following.output[0])
        following = only_reader(following)
    if following is None or following.op_type != "QuantizeLinear":
        return None
    operands = [tensors.get(name) for name in following.input[1:]]
    scale, point, *_ = (*operands, None)
    attrs = {item.name for item in following.attribute}
    scaling = qdq_parameters(scale, point, BY_RECIPROCAL in attrs)
    if scaling is None or attrs - QUANTIZE_ATTRIBUTES:
        return None
    return bounds, scaling, [*names, following.output[0]]


def _clamp_bounds(
    clamp: Message, tensors: Mapping[str, QdqValue | None]
) -> tuple[float, float] | None:
    """Return the bounds of a Relu or Clip; None if they are not constant."""
    names = clamp.input[1:]
    low, high = [tensors.get(name) for name in (*names, "", "")][:2]
    constant_count = isinstance(low, ConstantValue) + isinstance(high, ConstantValue)
    if constant_count != len(list(filter(None, names))):
        return None
    least = low.array.item() if isinstance(low, ConstantValue) else -np.inf
    most = high.array.item() if isinstance(high, ConstantValue) else np.inf
    return 0.0 if clamp.op_type == "Relu" else least, most


def attach_quantization(
    x: ConstantValue, scale: QdqValue | None, zero_point: QdqValue | None, axis: int
) -> ConstantValue | None:
    """Return a constant with DequantizeLinear's quantization, or None."""
    if not isinstance(scale, ConstantValue):
        return None
    if not isinstance(zero_point, ConstantValue | None):
        return None
    array = x.array
    if array.dtype.name in ("int4", "uint4", "int2", "uint2"):
        array = array.astype(np.int8)
    if array.dtype not in (np.int8, np.uint8, np.int32):
        return None
    if scale.array.dtype != np.float32 or scale.array.ndim > 1:
        return None
    points: Array = np.zeros((), np.int64)
    if zero_point is not None:
        points = zero_point.array.astype(np.int64)
    if points.size not in (1, scale.array.size):
        return None
    if array.dtype == np.uint8:
        array = (array.astype(np.int64) - UNSIGNED_OFFSET).astype(np.int8)
        points = points - UNSIGNED_OFFSET
    scales = tuple(float(n) for n in scale.array.reshape(-1))
    spread = np.broadcast_to(points, scale.array.shape)
    whole = tuple(int(n) for n in spread.reshape(-1))
    if len(scales) > 1 and array.shape[axis % array.ndim] != len(scales):
        return None
    scale_axis = None if len(scales) == 1 else axis % array.ndim
    return ConstantValue(array, x.name, Quantization(scales, whole, scale_axis))


def dequantize_constant(constant: ConstantValue) -> ConstantValue:
    quant = constant.quantization
    assert quant is not None  # by construction
    scales = np.array(quant.scales, np.float32)
    points = np.array(quant.zero_points)
    if quant.axis is not None:
        spread = [1] * constant.array.ndim
        spread[quant.axis] = -1
        scales = scales.reshape(spread)
        points = points.reshape(spread)
    reals = (constant.array.astype(np.int64) - points).astype(np.float32) * scales
    return ConstantValue(np.asarray(reals, np.float32), constant.name)


def materialize_value(emit: CallEmitter, value: QdqValue) -> OnnxValue:
    """Return the tensor as in the model: float32, or integers in their own type."""
    if isinstance(value, DequantizedValue):
        source = value.source
        if isinstance(source, ConstantValue):
            return dequantize_constant(source)
        return emit.call("dequantize", source.value, result=FLOAT32)
    if isinstance(value, NarrowedValue):
        return emit.cast(value.value, value.dtype)
    if not isinstance(value, QuantizedValue):
        return value
    if value.is_unsigned:
        return emit.expression(f"uint8(int32(a) + {UNSIGNED_OFFSET})", value.value)
    return value.value


def as_quantized(
    emit: CallEmitter, x: OnnxValue, scaling: QdqParameters
) -> QuantizedValue:
    if scaling.is_unsigned:
        attrs = ExpressionAttrs(formula=f"int8(int32(a) - {UNSIGNED_OFFSET})")
        result = emit.call("expression", x, attrs=attrs, result=scaling.type)
    else:
        result = emit.call("reshape", x, result=replace(scaling.type, shape=x.shape))
    return QuantizedValue(emit.value(result), scaling.is_unsigned)


_NAN_MAKERS = ("/", "fmod", "log", "pow", "sqrt")
"""Operations of formulas that make NaN of finite values."""


def emit_quantize(
    emit: CallEmitter, x: OnnxValue, scaling: QdqParameters
) -> QuantizedValue:
    """Quantize floats: round half to even and saturate; NaN is the lowest value."""
    lowest, highest = float(INT8.min), float(INT8.max)
    steps = f"rint({scaling.step_formula}) + {float(scaling.zero_point)!r}"
    limited = f"min(max({steps}, {lowest!r}), {highest!r})"
    made_by = _formula_of(emit, x)
    if any(operation in made_by for operation in _NAN_MAKERS):
        limited = f"where(a == a, {limited}, {lowest!r})"
    attrs = ExpressionAttrs(formula=f"int8({limited})")
    result = emit.call("expression", x, attrs=attrs, result=scaling.type)
    return QuantizedValue(emit.value(result), scaling.is_unsigned)


def _formula_of(emit: CallEmitter, x: OnnxValue) -> str:
    """Return the formula of the expression that computes x, "" if none does."""
    maker = emit.maker(x)
    if maker is None or not isinstance(maker.attrs, ExpressionAttrs):
        return ""
    return maker.attrs.formula
