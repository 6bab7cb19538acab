"""hybrid_conv2d: convolution of float activations with int8 weights (dynamic-range quantization).

Each input batch is quantized at run time, convolved in integers, scaled back to float, biased and
activated. Quantization is symmetric with scale max|x| / 127 if the weights have one scale, and
asymmetric over [min, max] including 0 if they have one per channel. Layouts and attributes are
those of conv2d. Semantics: TFLite's hybrid convolutions and portable quantizers, with the same
float types.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import NumericsSpec, OpCall, OpDef, TensorType
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, immediate, maximum
from firmwright.ops.conv2d import bias_of, count_macs, output_shape
from firmwright.ops.conv_window import ConvWindow, OutputPosition, im2col, window_of
from firmwright.ops.intrinsics import DYNAMIC_SCALE, DYNAMIC_ZERO_POINT
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import apply_activation, float_activation_range, quantization_of

_SYMMETRIC_LIMIT = 127
_MAGNITUDE = 0x7FFFFFFF
_NEGATIVE_ZERO = 0x80000000
_LEAST_REACH = float(np.float32(4e-37))  # 127 / 4e-37 is finite in float32


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, w = call.input(0), call.input(1)
    if len(x.shape) != 4 or len(w.shape) != 4 or w.shape[3] != x.shape[3]:
        raise NotSupportedError("a grouped convolution or tensors that are not 4-D")
    if (x.dtype, w.dtype, call.output.dtype) != (FLOAT32, INT8, FLOAT32):
        raise NotSupportedError(f"{x.dtype.name} input with {w.dtype.name} weights")
    if call.constant(1) is None or (call.has_input(2) and call.constant(2) is None):
        raise NotSupportedError("variable weights or bias")
    if call.numerics == "tflm":
        raise NotSupportedError("a hybrid operator in the tflm profile")
    if any(quantization_of(w).zero_points):
        raise NotSupportedError("weights with a zero point")
    return (TensorType(output_shape(call, w.shape[0]), FLOAT32),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, w = arrays[0].astype(np.float32), arrays[1]
    kernel = w.reshape(w.shape[0], -1).astype(np.float64)
    scales = np.array(quantization_of(call.input(1)).scales, np.float32)
    window = window_of(call, w.shape[1:3])
    low, high = float_activation_range(call.str_attr("activation"))
    results = []
    for batch in x:
        quantized, scale, offset = _quantize(batch, per_channel=len(scales) > 1)
        centered = quantized.astype(np.float64) - offset
        acc = (im2col(centered[None], window) @ kernel.T).astype(np.int64).astype(np.float32)
        scaled = acc * scales * scale if len(scales) > 1 else acc * (scale * scales[0])
        results.append(np.clip(scaled + bias_of(call, "float32"), low, high))
    return (np.concatenate(results).astype(np.float32),)


def _quantize(values: Array, *, per_channel: bool) -> tuple[Array, np.float32, int]:
    low, high = values.min(), values.max()
    if per_channel:
        scale, offset = DYNAMIC_SCALE.meaning(low, high), int(DYNAMIC_ZERO_POINT.meaning(low, high))
        inverse, minimum = np.float32(1) / scale, -128
    else:
        reach = max(abs(low), abs(high))
        if reach == 0:
            return np.zeros(values.shape, np.int8), np.float32(1), 0
        scale, offset = reach / np.float32(_SYMMETRIC_LIMIT), 0
        inverse, minimum = np.float32(_SYMMETRIC_LIMIT) / reach, -_SYMMETRIC_LIMIT
    shifted = np.float32(offset) + values * inverse
    rounded = np.sign(shifted) * np.floor(np.abs(shifted) + np.float32(0.5))
    return np.clip(rounded, minimum, 127).astype(np.int8), np.float32(scale), offset


def lower(call: OpCall, b: Kernel) -> None:
    x = call.input(0)
    w = b.input(1)
    bias = b.constant("bias", bias_of(call, "float32"), FLOAT32)
    window = window_of(call, (w.shape[1], w.shape[2]))
    with b.for_("n", x.shape[0]) as n, b.allocate("quantized", INT8, (1, *x.shape[1:])) as target:
        quantized_batch = quantize_batch(call, b, n, target)
        _convolve(call, b, n, target, (bias, quantized_batch), window)


@dataclass(frozen=True, slots=True)
class QuantizedBatch:
    """The registers that hold the quantization of a batch.

    Without `offset` the batch is symmetric and `scale` includes the weight scale; otherwise
    `offset` is the zero point.
    """

    scale: tir.Buffer
    offset: tir.Buffer | None


@dataclass(frozen=True, slots=True)
class QuantizePasses:
    """Emitters of the passes over a batch; each takes the builder and the batch index.

    `find_max_magnitude` and `find_min_max` (including 0 or -0) store their results in registers;
    `quantize_values` stores round(value * inverse), plus an offset if present.
    """

    find_max_magnitude: Callable[[Kernel, ArithExpr, int, tir.Buffer], None]
    find_min_max: Callable[[Kernel, ArithExpr, int, tir.Buffer, tir.Buffer], None]
    quantize_values: Callable[[Kernel, ArithExpr, tir.Buffer, ArithExpr, ArithExpr | None], None]


def quantize_batch(
    call: OpCall, b: Kernel, n: ArithExpr, target: tir.Buffer, passes: QuantizePasses | None = None
) -> QuantizedBatch:
    """Emit the quantization of input batch `n` to int8 in `target`."""
    scales, size = quantization_of(call.input(1)).scales, target.elements
    passes = passes or QuantizePasses(_find_max_magnitude, _find_min_max, _quantize_values)
    low, high = b.reg("low", FLOAT32), b.reg("high", FLOAT32)
    scale = b.reg("scale", FLOAT32)
    if len(scales) > 1:
        offset = b.reg("offset", INT32)
        passes.find_min_max(b, n, size, low, high)
        ends = b.load(low, [0]), b.load(high, [0])
        b.store(scale, [0], call_intrinsic("dynamic_scale", ends, FLOAT32, FLOAT32))
        b.store(offset, [0], call_intrinsic("dynamic_zero_point", ends, INT32, FLOAT32))
        inverse = ArithExpr(immediate(1.0, FLOAT32)) / b.load(scale, [0])
        passes.quantize_values(b, n, target, inverse, b.load(offset, [0]).cast(FLOAT32))
        return QuantizedBatch(scale, offset)
    passes.find_max_magnitude(b, n, size, high)
    with _symmetric_scale(b, high, scale) as inverse:
        passes.quantize_values(b, n, target, inverse, None)
    b.store(scale, [0], b.load(scale, [0]) * scales[0])
    return QuantizedBatch(scale, None)


@contextmanager
def _value_bits(b: Kernel, n: ArithExpr, size: int, dtype: DType) -> Iterator[ArithExpr]:
    """Open a loop over the values of batch `n` and yield their bit patterns as integers.

    As integers, the bits of floats of one sign are ordered by magnitude, and every core compares
    integers in one instruction.
    """
    unroll = next(count for count in (4, 2, 1) if size % count == 0)
    with (
        b.view("values", b.input(0), n * size, (size,), dtype=dtype, alignment=4) as values,
        b.for_("i", size // unroll) as i,
        b.for_("u", unroll, kind="unrolled") as u,
        b.let("bits", b.load(values, [i * unroll + u])) as bits,
    ):
        yield bits


def _find_max_magnitude(b: Kernel, n: ArithExpr, size: int, reach: tir.Buffer) -> None:
    max_bits = b.register("max_bits", INT32, 0)
    with _value_bits(b, n, size, INT32) as bits:
        max_bits.set(maximum(max_bits.value, bits & _MAGNITUDE))
    b.store(reach, [0], call_intrinsic("float_of_bits", [max_bits.value], FLOAT32))


def _find_min_max(b: Kernel, n: ArithExpr, size: int, low: tir.Buffer, high: tir.Buffer) -> None:
    """Store minimum and maximum of batch `n`, both including 0 or -0."""
    min_bits, max_bits = b.register("min_bits", UINT32), b.register("max_bits", INT32)
    min_bits.set(_NEGATIVE_ZERO)
    max_bits.set(0)
    with _value_bits(b, n, size, UINT32) as bits:
        min_bits.set(maximum(min_bits.value, bits))
        max_bits.set(maximum(max_bits.value, bits.cast(INT32)))
    b.store(low, [0], call_intrinsic("float_of_bits", [min_bits.value.cast(INT32)], FLOAT32))
    b.store(high, [0], call_intrinsic("float_of_bits", [max_bits.value], FLOAT32))


@contextmanager
def _symmetric_scale(b: Kernel, high: tir.Buffer, scale: tir.Buffer) -> Iterator[ArithExpr]:
    with (
        b.let("reach", b.load(high, [0])) as reach,
        # A batch of zeros stays zero under any finite factor.
        b.let("divisor", maximum(reach, _LEAST_REACH)) as divisor,
    ):
        b.store(scale, [0], reach / float(_SYMMETRIC_LIMIT))
        # No magnitude exceeds `reach`, so no result is below -127.
        yield ArithExpr(immediate(_SYMMETRIC_LIMIT, FLOAT32)) / divisor


def _quantize_values(
    b: Kernel, n: ArithExpr, target: tir.Buffer, inverse: ArithExpr, offset: ArithExpr | None
) -> None:
    size = target.elements
    unroll = next(count for count in (4, 2, 1) if size % count == 0)
    with ExitStack() as stack:
        factor = stack.enter_context(b.let("inverse", inverse))
        moved_by = None if offset is None else stack.enter_context(b.let("moved_by", offset))
        values = stack.enter_context(b.view("values", b.input(0), n * size, (size,)))
        flat = stack.enter_context(b.view("flat", target, 0, (size,), access="w"))
        i = stack.enter_context(b.for_("i", size // unroll))
        u = stack.enter_context(b.for_("u", unroll, kind="unrolled"))
        shifted = b.load(values, [i * unroll + u]) * factor
        if moved_by is not None:
            shifted = moved_by + shifted
        nearest = call_intrinsic("nearest_int8", [shifted], INT32, FLOAT32)
        b.store(flat, [i * unroll + u], nearest.cast(INT8))


def _convolve(
    call: OpCall,
    b: Kernel,
    n: ArithExpr,
    quantized: tir.Buffer,
    factors: tuple[tir.Buffer, QuantizedBatch],
    window: ConvWindow,
) -> None:
    bias, batch = factors
    offset = batch.offset
    table = None
    if offset is not None:
        table = b.constant("scales", np.array(quantization_of(call.input(1)).scales), FLOAT32)
    w = b.input(1)
    _, height, width, channels = call.output.shape
    with b.for_("oy", height) as oy, b.for_("ox", width) as ox, b.for_("oc", channels) as oc:
        acc = b.register("acc", INT32, 0)
        with (
            window.taps(b, OutputPosition(n, oy, ox)) as (ky, kx, iy, ix),
            b.for_("ic", w.shape[3]) as ic,
        ):
            value = b.load_i32(quantized, [0, iy, ix, ic])
            if offset is not None:
                value = value - b.load(offset, [0])
            product = value * b.load_i32(w, [oc, ky, kx, ic])
            acc.add(product)
        scaled = acc.value.cast(FLOAT32)
        if table is not None:
            scaled = scaled * b.load(table, [oc])
        result = scaled * b.load(batch.scale, [0]) + b.load(bias, [oc])
        b.store(b.y, [n, oy, ox, oc], apply_activation(result, call.str_attr("activation")))


OPDEF = OpDef(
    name="hybrid_conv2d",
    infer=infer,
    reference=reference,
    lower=lower,
    dtypes=("float32 with int8 weights",),
    numerics={"litert": NumericsSpec(None, "int32, scaled in float32", "HybridConv")},
    macs=count_macs,
)
