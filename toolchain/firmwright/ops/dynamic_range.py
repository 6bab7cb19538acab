"""Run-time quantization of float activations to int8, for dynamic range layers.

These layers are also called hybrid.

Each row of activations has its own scale. Symmetric: max|x| / 127. Asymmetric: the
range [min, max] including 0 over 255 steps, with a zero point. The integer sums of a
layer are scaled back to floats. Semantics: TFLite's portable quantizers, in their float
width; ONNX's DynamicQuantizeLinear, which divides by the scale and rounds half to even.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    Register,
    call_intrinsic,
    immediate,
    maximum,
    minimum,
)
from firmwright.ops.intrinsics import dynamic_scale, dynamic_zero_point
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import quantization_of

_SYMMETRIC_LIMIT = 127
_MAGNITUDE = 0x7FFFFFFF
_NEGATIVE_ZERO = 0x80000000
_LEAST_REACH = float(np.float32(4e-37))  # 127 / 4e-37 is finite in float32


def is_hybrid(call: OpCall) -> bool:
    """Whether the call multiplies float activations (input 0) by int8 weights (1)."""
    return (call.input(0).dtype, call.input(1).dtype) == (FLOAT32, INT8)


def check_hybrid(
    call: OpCall, axis: int | None, weights: tuple[int, ...] = (1,)
) -> None:
    """Raise NotSupportedError if weights have zero points or unsupported scales.

    There is one scale, or one for each index of `axis`.
    """
    if call.output.dtype != FLOAT32:
        raise NotSupportedError(
            f"float32 input with int8 weights giving {call.output.dtype.name}"
        )
    if call.numerics == "tflm":
        raise NotSupportedError("a hybrid operator in the tflm profile")
    for index in weights:
        quant = quantization_of(call.input(index))
        if any(quant.zero_points):
            raise NotSupportedError("weights with a zero point")
        if len(quant.scales) > 1 and quant.axis != axis:
            raise NotSupportedError(
                f"a weight scale for each index of axis {quant.axis}"
            )


def quantize_array(values: Array, *, asymmetric: bool) -> tuple[Array, np.float32, int]:
    low, high = values.min(), values.max()
    if asymmetric:
        scale = dynamic_scale(low, high)
        offset = int(dynamic_zero_point(low, high))
        inverse = np.float32(1) / scale
        minimum = -128
    else:
        reach = max(abs(low), abs(high))
        if reach == 0:
            return np.zeros(values.shape, np.int8), np.float32(1), 0
        scale = reach / np.float32(_SYMMETRIC_LIMIT)
        offset = 0
        inverse = np.float32(_SYMMETRIC_LIMIT) / reach
        minimum = -_SYMMETRIC_LIMIT
    scaled = (values * inverse).astype(np.float64)
    rounded = np.sign(scaled) * np.floor(np.abs(scaled) + 0.5) + offset
    return np.clip(rounded, minimum, 127).astype(np.int8), np.float32(scale), offset


def quantize_array_onnx(values: Array) -> tuple[Array, np.float32, int]:
    """Return int8 values with their scale and zero point.

    Values and zero point are 128 below those of DynamicQuantizeLinear.
    """
    low, high = values.min(), values.max()
    scale = np.float32(dynamic_scale(low, high))
    offset = int(np.rint(-np.minimum(low, np.float32(0)) / scale)) - 128
    steps = np.clip(np.rint(values / scale) + offset, -128, 127)
    return steps.astype(np.int8), scale, offset


@dataclass(frozen=True, slots=True)
class FloatRow:
    """`size` activations from flat index `start` of `buffer`, which share a scale."""

    buffer: tir.Buffer
    start: ArithExpr | int
    size: int


@dataclass(frozen=True, slots=True)
class QuantizedRow:
    """The registers that hold a row's scale and, in `offset` if any, its zero point."""

    scale: Register
    offset: Register | None

    @property
    def zero_point(self) -> ArithExpr | int:
        return 0 if self.offset is None else self.offset.value

    def load(
        self, b: Kernel, values: tir.Buffer, index: Sequence[ArithExpr | int]
    ) -> ArithExpr:
        """Load a quantized value less the zero point."""
        return b.load_i32(values, index) - self.zero_point


@dataclass(frozen=True, slots=True)
class QuantizePasses:
    """Emitters of the passes over a row of activations.

    `find_max_magnitude` and `find_min_max` (including 0 or -0) store their results in
    registers; `quantize_values` stores round(value * inverse), plus an offset if
    present.
    """

    find_max_magnitude: Callable[[Kernel, FloatRow, Register], None]
    find_min_max: Callable[[Kernel, FloatRow, Register, Register], None]
    quantize_values: Callable[
        [Kernel, FloatRow, tir.Buffer, ArithExpr, ArithExpr | None], None
    ]


def quantize_row(
    b: Kernel,
    row: FloatRow,
    target: tir.Buffer,
    *,
    weight_scale: float | None,
    asymmetric: bool,
    passes: QuantizePasses | None = None,
) -> QuantizedRow:
    """Emit the quantization of `row` to int8 in `target`.

    The scale that the result holds includes `weight_scale`, if that is given.
    """
    passes = passes or _DEFAULT_PASSES
    low = b.register("low", FLOAT32)
    high = b.register("high", FLOAT32)
    scale = b.register("scale", FLOAT32)
    offset = b.register("offset", INT32) if asymmetric else None
    if offset is not None:
        passes.find_min_max(b, row, low, high)
        ends = low.value, high.value
        scale.set(call_intrinsic("dynamic_scale", ends, FLOAT32, FLOAT32))
        offset.set(call_intrinsic("dynamic_zero_point", ends, INT32, FLOAT32))
        inverse = ArithExpr(immediate(1.0, FLOAT32)) / scale.value
        passes.quantize_values(b, row, target, inverse, offset.value)
    else:
        passes.find_max_magnitude(b, row, high)
        inverse = _symmetric_scale(b, high, scale)
        passes.quantize_values(b, row, target, inverse, None)
    if weight_scale is not None:
        scale.set(scale.value * weight_scale)
    return QuantizedRow(scale, offset)


def quantize_row_onnx(b: Kernel, row: FloatRow, target: tir.Buffer) -> QuantizedRow:
    """Emit the quantization of `row` to int8 in `target` by `quantize_array_onnx`."""
    low = b.register("low", FLOAT32)
    high = b.register("high", FLOAT32)
    scale = b.register("scale", FLOAT32)
    offset = b.register("offset", INT32)
    _find_min_max(b, row, low, high)
    ends = low.value, high.value
    scale.set(call_intrinsic("dynamic_scale", ends, FLOAT32, FLOAT32))
    below = (0.0 - low.value) / scale.value
    offset.set(call_intrinsic("nearest_even", [below], INT32) - 128)
    values = b.view("values", row.buffer, row.start, (row.size,))
    flat = b.view("flat", target, 0, (row.size,), access="w")
    with b.for_("i", row.size) as i:
        quotient = b.load(values, [i]) / scale.value
        steps = call_intrinsic("nearest_even", [quotient], INT32)
        shifted = maximum(minimum(steps + offset.value, INT8.max), INT8.min)
        b.store(flat, [i], shifted.cast(INT8))
    return QuantizedRow(scale, offset)


@contextmanager
def _value_bits(b: Kernel, row: FloatRow, dtype: DType) -> Iterator[ArithExpr]:
    """Open a loop over the values of `row` and yield their bit patterns as integers.

    As integers, the bits of floats of one sign are ordered by magnitude.
    """
    values = b.view(
        "values", row.buffer, row.start, (row.size,), dtype=dtype, alignment=4
    )
    with b.unrolled("i", row.size, 4, 2) as i:
        yield b.let("bits", b.load(values, [i]))


def _find_max_magnitude(b: Kernel, row: FloatRow, reach: Register) -> None:
    max_bits = b.register("max_bits", INT32, 0)
    with _value_bits(b, row, INT32) as bits:
        max_bits.set(maximum(max_bits.value, bits & _MAGNITUDE))
    reach.set(call_intrinsic("float_of_bits", [max_bits.value], FLOAT32))


def _find_min_max(b: Kernel, row: FloatRow, low: Register, high: Register) -> None:
    """Store minimum and maximum of `row`, both including 0 or -0."""
    min_bits = b.register("min_bits", UINT32)
    max_bits = b.register("max_bits", INT32)
    min_bits.set(_NEGATIVE_ZERO)
    max_bits.set(0)
    with _value_bits(b, row, UINT32) as bits:
        min_bits.set(maximum(min_bits.value, bits))
        max_bits.set(maximum(max_bits.value, bits.cast(INT32)))
    low.set(call_intrinsic("float_of_bits", [min_bits.value.cast(INT32)], FLOAT32))
    high.set(call_intrinsic("float_of_bits", [max_bits.value], FLOAT32))


def _symmetric_scale(b: Kernel, high: Register, scale: Register) -> ArithExpr:
    reach = b.let("reach", high.value)
    # A batch of zeros stays zero under any finite factor.
    divisor = b.let("divisor", maximum(reach, _LEAST_REACH))
    scale.set(reach / float(_SYMMETRIC_LIMIT))
    # No magnitude exceeds `reach`, so no result is below -127.
    return ArithExpr(immediate(_SYMMETRIC_LIMIT, FLOAT32)) / divisor


def _quantize_values(
    b: Kernel,
    row: FloatRow,
    target: tir.Buffer,
    inverse: ArithExpr,
    offset: ArithExpr | None,
) -> None:
    size = target.elements
    factor = b.let("inverse", inverse)
    values = b.view("values", row.buffer, row.start, (size,))
    flat = b.view("flat", target, 0, (size,), access="w")
    with b.unrolled("i", size, 4, 2) as i:
        steps = [b.load(values, [i]) * factor, 0 if offset is None else offset]
        b.store(flat, [i], call_intrinsic("nearest_int8", steps, INT32).cast(INT8))


_DEFAULT_PASSES = QuantizePasses(_find_max_magnitude, _find_min_max, _quantize_values)
