"""transpose_conv: input pixels times the kernel, added `stride` pixels apart.

y[oy, ox, oc] = bias + the sum of x[iy, ix, ic] * w[oc, ky, kx, ic] over iy * stride -
before + ky = oy, and likewise for columns. Layouts: x NHWC, w OHWI, bias O. `before`
crops rows and columns at the top and left. Quantization is that of conv2d. Loops
gather: output row oy takes the taps of phase (oy + before) mod stride. Semantics:
TFLite's reference transposed convolution.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.rounding import divide_up
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.layers import TransposeConvAttrs
from firmwright.ir.tir.builder import ArithExpr, logical_and
from firmwright.ops import int16x8
from firmwright.ops.conv2d import Tap, lower_convolution, reference_epilogue
from firmwright.ops.conv_window import OutputPosition
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import (
    check_weights_and_bias,
    per_tensor_quant,
    weight_zero_point,
)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(TransposeConvAttrs)
    x = call.input(0)
    w = call.input(1)
    y = call.output
    has_images = len(x.shape) == len(w.shape) == len(y.shape) == 4
    if not has_images or w.shape[3] != x.shape[3]:
        raise NotSupportedError(
            "transpose_conv needs 4-D tensors with equal input channels"
        )
    stride = attrs.stride
    before = attrs.before
    if not len(stride) == len(before) == 2 or min(stride) < 1:
        raise NotSupportedError(f"the strides {list(stride)}, {list(before)} before")
    check_weights_and_bias(call, 0)
    is_short = int16x8.is_int16x8(call) and not int16x8.has_int64_sum(call)
    if is_short and call.numerics == "tflm":
        raise NotSupportedError(
            "an int16 transposed convolution with a 32-bit bias in TFLM"
        )
    shape = (x.shape[0], *y.shape[1:3], w.shape[0])
    return (TensorType(shape, x.dtype, y.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x = arrays[0].astype(np.float64)
    if call.input(0).dtype != FLOAT32:
        x = x - per_tensor_quant(call.input(0)).zero_point
    weights = arrays[1].astype(np.float64) - weight_zero_point(call)
    return (reference_epilogue(call, _scattered(call, x, weights)),)


def _scattered(call: OpCall, x: Array, w: Array) -> Array:
    attrs = call.attributes(TransposeConvAttrs)
    (down, right), (above, left) = attrs.stride, attrs.before
    batch, height, width, _ = call.output.shape
    rows = max((x.shape[1] - 1) * down + w.shape[1], above + height)
    cols = max((x.shape[2] - 1) * right + w.shape[2], left + width)
    total = np.zeros((batch, rows, cols, w.shape[0]))
    for ky in range(w.shape[1]):
        for kx in range(w.shape[2]):
            ends = ky + x.shape[1] * down, kx + x.shape[2] * right
            total[:, ky : ends[0] : down, kx : ends[1] : right] += x @ w[:, ky, kx].T
    return total[:, above : above + height, left : left + width]


@contextmanager
def taps(call: OpCall, b: Kernel, at: OutputPosition) -> Iterator[Tap]:
    """Open loops over input pixels that add to an output; yield (ky, kx, iy, ix)."""
    with ExitStack() as stack:
        ky, iy = _tap(call, b, stack, 0, at.oy)
        kx, ix = _tap(call, b, stack, 1, at.ox)
        yield ky, kx, iy, ix


def _tap(
    call: OpCall, b: Kernel, stack: ExitStack, axis: int, out: ArithExpr
) -> tuple[ArithExpr, ArithExpr]:
    attrs = call.attributes(TransposeConvAttrs)
    stride = attrs.stride[axis]
    before = attrs.before[axis]
    size = call.input(1).shape[1 + axis]
    length = call.input(0).shape[1 + axis]
    outputs = call.output.shape[1 + axis]
    k_name, i_name = ("ky", "iy") if axis == 0 else ("kx", "ix")
    count = divide_up(size, stride)
    shifted = out + before
    j = stack.enter_context(b.for_(f"j{k_name[1]}", count))
    k = b.let(k_name, shifted % stride + j * stride) if stride > 1 else j
    i = b.let(i_name, shifted / stride - j)
    guards = []
    if size % stride:
        guards.append(k < size)
    if before // stride < count - 1:
        guards.append(i >= 0)
    if (outputs - 1 + before) // stride >= length:
        guards.append(i < length)
    if guards:
        stack.enter_context(b.if_(logical_and(*guards)))
    return k, i


def macs(call: OpCall) -> int:
    channels, rows, cols, _ = call.input(1).shape
    return call.input(0).elements * rows * cols * channels


OPDEF = OpDef(
    "transpose_conv",
    infer,
    reference,
    partial(lower_convolution, taps=taps),
    macs=macs,
)
