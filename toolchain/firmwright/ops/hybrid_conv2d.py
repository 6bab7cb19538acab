"""hybrid_conv2d: float activations with int8 weights, as dynamic-range quantisation leaves them.

Each batch of the input is quantised on the fly, the convolution runs in integers, its result is
scaled back to float, biased and activated. Weights with one scale: symmetric, scale = max|x| / 127.
Weights per channel: asymmetric over [min, max] widened to hold 0. Layouts and attributes as in
conv2d. Source of the semantics: TFLite's hybrid convolutions and its portable quantisers of float
vectors; every step below is done in the float width they use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    Case,
    CaseTensor,
    NotSupportedError,
    NumericsCell,
    OpCall,
    OpDef,
)
from firmwright.ir.tir.builder import E, immediate, maximum, minimum
from firmwright.ir.tir.builder import call as intrinsic
from firmwright.ir.tir.nodes import Buffer
from firmwright.ops.conv2d import bias_of, macs
from firmwright.ops.conv_shapes import (
    OutputIndex,
    Window,
    check_padding,
    columns,
    conv_cases,
    window_of,
)
from firmwright.ops.fixed_point import activated, float_activation_range, quant_of
from firmwright.ops.intrinsics import DYNAMIC_SCALE, DYNAMIC_ZERO_POINT
from firmwright.ops.kernel import Kernel

_SYMMETRIC_LIMIT = 127
_LEAST_REACH = float(np.float32(4e-37))  # 127 / it is still finite in float32


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, w = call.input(0), call.input(1)
    if len(x.shape) != 4 or len(w.shape) != 4 or w.shape[3] != x.shape[3]:
        raise NotSupportedError("a grouped convolution, or tensors not of four dimensions")
    if (x.dtype, w.dtype, call.output.dtype) != (FLOAT32, INT8, FLOAT32):
        raise NotSupportedError(f"{x.dtype.name} input with {w.dtype.name} weights")
    if call.constant(1) is None or (call.has_input(2) and call.constant(2) is None):
        raise NotSupportedError("weights or bias are not constant")
    if call.numerics == "tflm":
        raise NotSupportedError("hybrid models do not exist in the tflm profile")
    if any(quant_of(w).zero_points):
        raise NotSupportedError("weights with a zero point")
    window = window_of(call, (w.shape[1], w.shape[2]))
    check_padding(window)
    return (
        TensorType((x.shape[0], *window.output_size(x.shape[1], x.shape[2]), w.shape[0]), FLOAT32),
    )


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, w = arrays[0].astype(np.float32), arrays[1]
    kernel = w.reshape(w.shape[0], -1).astype(np.float64)
    scales = np.array(quant_of(call.input(1)).scales, np.float32)
    window = window_of(call, w.shape[1:3])
    low, high = float_activation_range(call.str_attr("activation"))
    results = []
    for batch in x:
        quantized, scale, offset = _quantize(batch, per_channel=len(scales) > 1)
        centred = quantized.astype(np.float64) - offset
        acc = (columns(centred[None], window) @ kernel.T).astype(np.int64).astype(np.float32)
        scaled = acc * scales * scale if len(scales) > 1 else acc * (scale * scales[0])
        results.append(np.clip(scaled + bias_of(call, "float32"), low, high))
    return (np.concatenate(results).astype(np.float32),)


def _quantize(values: Array, *, per_channel: bool) -> tuple[Array, np.float32, int]:
    """int8 values, scale and offset of one batch, in float32 throughout."""
    low, high = values.min(), values.max()
    if per_channel:
        scale, offset = DYNAMIC_SCALE.meaning(low, high), int(DYNAMIC_ZERO_POINT.meaning(low, high))
        inverse, least = np.float32(1) / scale, -128
    else:
        reach = max(abs(low), abs(high))
        if reach == 0:
            return np.zeros(values.shape, np.int8), np.float32(1), 0
        scale, offset = reach / np.float32(_SYMMETRIC_LIMIT), 0
        inverse, least = np.float32(_SYMMETRIC_LIMIT) / reach, -_SYMMETRIC_LIMIT
    moved = np.float32(offset) + values * inverse
    rounded = np.sign(moved) * np.floor(np.abs(moved) + np.float32(0.5))
    return np.clip(rounded, least, 127).astype(np.int8), np.float32(scale), offset


def lower(call: OpCall, b: Kernel) -> None:
    x = call.input(0)
    w = b.input(1)
    scales = quant_of(call.input(1)).scales
    bias = b.constant("bias", bias_of(call, "float32"), FLOAT32)
    table = b.constant("scales", np.array(scales), FLOAT32)
    size = x.elements // x.shape[0]
    window = window_of(call, (w.shape[1], w.shape[2]))
    with b.for_("n", x.shape[0]) as n, b.allocate("quantized", INT8, x.shape[1:]) as quantized:
        low, high = b.reg("low", FLOAT32), b.reg("high", FLOAT32)
        scale = b.reg("scale", FLOAT32)
        offset = b.reg("offset", INT32) if len(scales) > 1 else None
        _find_range(b, n, size, low, high)
        if offset is not None:
            _lower_asymmetric(b, n, quantized, (low, high), scale, offset)
        else:
            _lower_symmetric(b, n, quantized, (low, high), scale)
            b.store(scale, [0], b.load(scale, [0]) * b.load(table, [0]))
        _convolve(call, b, n, quantized, (table, bias, scale, offset), window)


def _find_range(b: Kernel, n: E, size: int, low: Buffer, high: Buffer) -> None:
    """Least and greatest value of batch `n`."""
    with b.window("values", b.input(0), n * size, (size,)) as values:
        b.store(low, [0], b.load(values, [0]))
        b.store(high, [0], b.load(values, [0]))
        with b.for_("i", size) as i, b.let("value", b.load(values, [i])) as value:
            b.store(low, [0], minimum(b.load(low, [0]), value))
            b.store(high, [0], maximum(b.load(high, [0]), value))


def _lower_asymmetric(
    b: Kernel, n: E, quantized: Buffer, ends: tuple[Buffer, Buffer], scale: Buffer, offset: Buffer
) -> None:
    low, high = (b.load(end, [0]) for end in ends)
    b.store(scale, [0], intrinsic("dynamic_scale", [low, high], FLOAT32, FLOAT32))
    b.store(offset, [0], intrinsic("dynamic_zero_point", [low, high], INT32, FLOAT32))
    inverse = _constant(1.0) / b.load(scale, [0])
    _quantize_values(b, n, quantized, inverse, b.load(offset, [0]).cast(FLOAT32), -128)


def _lower_symmetric(
    b: Kernel, n: E, quantized: Buffer, ends: tuple[Buffer, Buffer], scale: Buffer
) -> None:
    low, high = (b.load(end, [0]) for end in ends)
    with (
        b.let("reach", maximum(0.0 - low, high)) as reach,
        # A batch of zeros stays zeros under any finite factor.
        b.let("divisor", maximum(reach, _LEAST_REACH)) as divisor,
    ):
        b.store(scale, [0], reach / float(_SYMMETRIC_LIMIT))
        inverse = _constant(float(_SYMMETRIC_LIMIT)) / divisor
        _quantize_values(b, n, quantized, inverse, None, -_SYMMETRIC_LIMIT)


def _quantize_values(
    b: Kernel, n: E, quantized: Buffer, inverse: E, offset: E | None, least: int
) -> None:
    size = quantized.elements
    source = b.window("values", b.input(0), n * size, (size,))
    target = b.window("flat", quantized, 0, (size,), access="w")
    with (
        b.let("inverse", inverse) as factor,
        source as values,
        target as flat,
        b.for_("i", size) as i,
    ):
        moved = b.load(values, [i]) * factor
        if offset is not None:
            moved = offset + moved
        rounded = intrinsic("round_f32", [moved], FLOAT32, FLOAT32)
        clamped = minimum(maximum(rounded, float(least)), 127.0)
        b.store(flat, [i], clamped.cast(INT32).cast(INT8))


def _convolve(
    call: OpCall,
    b: Kernel,
    n: E,
    quantized: Buffer,
    factors: tuple[Buffer, Buffer, Buffer, Buffer | None],
    window: Window,
) -> None:
    table, bias, scale, offset = factors
    w = b.input(1)
    _, height, width, channels = call.output.shape
    with b.for_("oy", height) as oy, b.for_("ox", width) as ox, b.for_("oc", channels) as oc:
        acc = b.reg("acc", INT32)
        b.store(acc, [0], 0)
        with (
            window.taps(b, OutputIndex(n, oy, ox)) as (ky, kx, iy, ix),
            b.for_("ic", w.shape[3]) as ic,
        ):
            value = b.load_i32(quantized, [iy, ix, ic])
            if offset is not None:
                value = value - b.load(offset, [0])
            product = value * b.load_i32(w, [oc, ky, kx, ic])
            b.store(acc, [0], b.load(acc, [0]) + product)
        scaled = b.load(acc, [0]).cast(FLOAT32)
        if offset is not None:
            scaled = scaled * b.load(table, [oc])
        result = scaled * b.load(scale, [0]) + b.load(bias, [oc])
        b.store(b.y, [n, oy, ox, oc], activated(result, call.str_attr("activation")))


def _constant(value: float) -> E:
    return E(immediate(value, FLOAT32))


def cases() -> Iterator[Case]:
    """conv2d's float grid with int8 weights, of one scale and of one a channel."""
    for index, case in enumerate(conv_cases("CONV_2D")):
        if not case.name.endswith("float32") or case.inputs[1] is None:
            continue
        rng = np.random.Generator(np.random.PCG64([index, 7]))
        shape = case.inputs[1].shape
        weights = rng.integers(-127, 128, shape).astype(np.int8)
        for name, count in (("tensor", 1), ("channel", shape[0])):
            scales = tuple(float(np.float32(s)) for s in rng.uniform(0.002, 0.02, count))
            axis = 0 if count > 1 else None
            w = CaseTensor(shape, "int8", scales, (0,) * count, axis, weights)
            inputs = (case.inputs[0], w, case.inputs[2])
            yield Case(f"hybrid_{name}_{case.name}", "CONV_2D", inputs, case.outputs, case.options)


OPDEF = OpDef(
    name="hybrid_conv2d",
    infer=infer,
    reference=reference,
    lower=lower,
    imports={},
    cases=cases,
    dtypes=("float32 with int8 weights",),
    numerics={"litert": NumericsCell(None, "int32, scaled in float32", "HybridConv")},
    macs=macs,
)
