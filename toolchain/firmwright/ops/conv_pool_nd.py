"""conv_nd, conv_transpose_nd and pool_nd: windows over any number of spatial axes.

Channels come before the spatial axes.

    conv_nd: y[n, m, o...] = bias[m] + sum of x[n, c, o * stride + k * dilation -
        before] * w[m, c, k...] over taps inside the input and the channels c of the
        group of m.
    conv_transpose_nd: y[n, m, o...] = bias[m] + sum of x[n, c, i...] * w[c, m, k...]
        over i * stride + k * dilation - before = o.

Attributes: `stride`, `dilation`, `before`, `outputs` (spatial extents); `groups` of
convolutions; `kind` (max, average, sum) and `size` of pools. Elements outside the input
are ignored, but if `padded` (before and after each axis) is given, averages count that
padding as zeros. Averages and sums are of the formula `term` of the elements, in
float32 or, of float64, in float64, and give the formula `final` of the result
(expression_language.py; `a` if omitted). Convolutions are not quantized; their weights
need not be constant. 2-D images with constant weights use conv2d.py and pooling.py.
Semantics: ONNX's Conv, ConvTranspose,
MaxPool, AveragePool and LpPool.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import mul
from types import EllipsisType

import numpy as np

from firmwright.base.dtypes import FLOAT32, FLOAT64, INT8, INT32, UINT8, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.layers import (
    ConvNdAttrs,
    PoolNdAttrs,
    WindowNdAttrs,
)
from firmwright.ir.tir.builder import ArithExpr, Builder, logical_and, maximum
from firmwright.ops.expression_language import (
    evaluate_in_numpy,
    lower_expression,
    result_dtype,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef


@dataclass(frozen=True, slots=True)
class WindowNd:
    """A window with a size for each spatial axis.

    Tap k of output o is at position o * stride + k * step + first. Input element i is
    at position i * spread; there is none at positions between.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    step: tuple[int, ...]
    first: tuple[int, ...]
    spread: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @contextmanager
    def taps(
        self, b: Builder, outputs: Sequence[ArithExpr]
    ) -> Iterator[tuple[list[ArithExpr], list[ArithExpr]]]:
        """Open loops over taps inside the input; yield window and input position."""
        with ExitStack() as stack:
            taps, inputs = [], []
            for axis, out in enumerate(outputs):
                k = stack.enter_context(b.for_(f"k{axis}", self.size[axis]))
                position = out * self.stride[axis] + k * self.step[axis]
                i = b.let(f"p{axis}", position + self.first[axis])
                spread = self.spread[axis]
                end = self.inputs[axis] * self.spread[axis]
                if self._exceeds_input(axis):
                    stack.enter_context(b.if_(logical_and(i >= 0, i < end)))
                if spread > 1:
                    stack.enter_context(b.if_((i % spread).equal(0)))
                taps.append(k)
                inputs.append(i if spread == 1 else i / spread)
            yield taps, inputs

    @property
    def without_last_axis(self) -> WindowNd:
        return WindowNd(
            size=self.size[:-1],
            stride=self.stride[:-1],
            step=self.step[:-1],
            first=self.first[:-1],
            spread=self.spread[:-1],
            inputs=self.inputs[:-1],
            outputs=self.outputs[:-1],
        )

    def positions(self, axis: int, tap: Array | int) -> Array:
        outputs = np.arange(self.outputs[axis]) * self.stride[axis]
        return np.add.outer(outputs, tap * self.step[axis] + self.first[axis])

    def _exceeds_input(self, axis: int) -> bool:
        positions = self.positions(axis, np.arange(self.size[axis]))
        end = self.inputs[axis] * self.spread[axis]
        return bool(positions.min() < 0 or positions.max() >= end)

    def patches(
        self, x: Array, outside: float
    ) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Yield each tap with the elements of x [n, c, ...] that it reads.

        There is one element for each output.
        """
        missing = np.asarray(outside, x.dtype)
        for tap in itertools.product(*map(range, self.size)):
            patch = x
            for axis, k in enumerate(tap):
                index, rest = np.divmod(self.positions(axis, k), self.spread[axis])
                inside = (index >= 0) & (index < self.inputs[axis]) & (rest == 0)
                patch = np.take(patch, np.where(inside, index, 0), axis=axis + 2)
                shape = [1] * patch.ndim
                shape[axis + 2] = len(index)
                patch = np.where(inside.reshape(shape), patch, missing)
            yield tap, patch


def window_of(call: OpCall, size: Sequence[int]) -> WindowNd:
    attrs = call.attributes(WindowNdAttrs)
    stride = attrs.stride
    dilation = attrs.dilation
    before = attrs.before
    outputs = attrs.outputs
    inputs = call.input(0).shape[2:]
    rank = len(inputs)
    ranks = {len(row) for row in (size, stride, dilation, before, outputs)}
    if rank < 1 or ranks != {rank}:
        raise NotSupportedError(f"window attributes that do not match {rank} axes")
    if min(*size, *stride, *dilation, *outputs) < 1:
        raise NotSupportedError("a window, stride, dilation or output below 1")
    if min(before) < 0:
        raise NotSupportedError("negative padding")
    one = (1,) * rank
    less = tuple(-n for n in before)
    if _is_transposed(call):
        step = tuple(-n for n in dilation)
        return WindowNd(tuple(size), one, step, before, stride, inputs, outputs)
    return WindowNd(tuple(size), stride, dilation, less, one, inputs, outputs)


def _is_transposed(call: OpCall) -> bool:
    return call.op == "conv_transpose_nd"


_CONV_DTYPES = (FLOAT32, FLOAT64, INT32)


def _filters_per_group(call: OpCall) -> int:
    w = call.input(1)
    groups = call.attributes(ConvNdAttrs).groups
    return w.shape[1] if _is_transposed(call) else w.shape[0] // max(groups, 1)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x = call.input(0)
    w = call.input(1)
    groups = call.attributes(ConvNdAttrs).groups
    if (
        x.dtype not in _CONV_DTYPES
        or w.dtype != x.dtype
        or len(w.shape) != len(x.shape)
    ):
        raise NotSupportedError(
            f"a convolution of {x.dtype.name} with {w.dtype.name} weights"
        )
    filters = _filters_per_group(call) * groups
    if _is_transposed(call):
        fits = x.shape[1] == w.shape[0]
    else:
        fits = (x.shape[1], filters) == (w.shape[1] * groups, w.shape[0])
    if groups < 1 or x.shape[1] % groups or not fits:
        shape = "x".join(map(str, w.shape))
        raise NotSupportedError(
            f"{groups} groups of {x.shape[1]} channels with {shape} weights"
        )
    if call.has_input(2) and call.input(2).elements != filters:
        raise NotSupportedError(
            f"{call.input(2).elements} bias elements for {filters} filters"
        )
    window = window_of(call, w.shape[2:])
    return (TensorType((x.shape[0], filters, *window.outputs), x.dtype),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x = arrays[0].astype(np.float64)
    w = arrays[1]
    groups = call.attributes(ConvNdAttrs).groups
    n = x.shape[0]
    count = x.shape[1] // groups
    filters = _filters_per_group(call)
    window = window_of(call, w.shape[2:])
    weights = w.reshape(groups, -1, *w.shape[1:])
    product = "ngc...,gmc->ngm..."
    if _is_transposed(call):
        weights = weights.swapaxes(1, 2)
    total: Array = np.zeros((n, groups, filters, *window.outputs))
    for tap, patch in window.patches(x, 0):
        part = patch.reshape(n, groups, count, *window.outputs)
        at: tuple[EllipsisType | int, ...] = (..., *tap)
        total += np.einsum(product, part, weights[at])
    if call.has_input(2):
        total = total + arrays[2].reshape(groups, filters, *(1,) * len(window.outputs))
    return (total.reshape(call.output.shape).astype(call.output.dtype.np),)


def lower(call: OpCall, b: Kernel) -> None:
    x = b.input(0)
    w = b.input(1)
    groups = call.attributes(ConvNdAttrs).groups
    window = window_of(call, w.shape[2:])
    filters = _filters_per_group(call)
    count = x.shape[1] // groups
    extents = (x.shape[0], filters * groups)
    with b.loops("n m", extents) as (n, m), b.loops("o", window.outputs) as index:
        acc = b.register("acc", x.dtype, 0.0 if x.dtype.is_float else 0)
        with window.taps(b, index) as (taps, positions), b.for_("c", count) as c:
            channel = c if groups == 1 else m / filters * count + c
            filter_ = m if groups == 1 else m % filters
            rows = [channel, filter_] if _is_transposed(call) else [m, c]
            acc.add(b.load(x, [n, channel, *positions]) * b.load(w, [*rows, *taps]))
        total = acc.value + b.load(b.input(2), [m]) if call.has_input(2) else acc.value
        b.store(b.y, [n, m, *index], total)


_EXTREMES = (FLOAT32, FLOAT64, INT8, UINT8)


def infer_pool(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(PoolNdAttrs)
    x, kind = call.input(0), attrs.kind
    wide = _sum_dtype(call)
    types = {"max": x.dtype, "average": wide, "sum": wide}
    element = result_dtype(attrs.term or "a", [ArithExpr(tir.Var("a", x.dtype))])
    if x.dtype not in _EXTREMES or element != types.get(kind):
        raise NotSupportedError(f"a {kind} pool of {x.dtype.name}")
    dtype = result_dtype(attrs.final or "a", [ArithExpr(tir.Var("a", element))])
    shape = (*x.shape[:2], *_pool_window(call).outputs)
    return (TensorType(shape, dtype, call.output.quantization),)


def _sum_dtype(call: OpCall) -> DType:
    return FLOAT64 if call.input(0).dtype == FLOAT64 else FLOAT32


def _pool_window(call: OpCall) -> WindowNd:
    return window_of(call, call.attributes(PoolNdAttrs).size)


def _least(kind: DType) -> float:
    return float("-inf") if kind.is_float else kind.min


def _tap_counts(call: OpCall, window: WindowNd) -> list[Array]:
    padded = call.attributes(PoolNdAttrs).padded
    counts: list[Array] = []
    for axis, size in enumerate(window.size):
        low, high = 0, window.inputs[axis]
        if padded:
            low = -padded[2 * axis]
            high = high + padded[2 * axis + 1]
        positions = window.positions(axis, np.arange(size))
        counts.append(((positions >= low) & (positions < high)).sum(axis=1))
    return counts


def reference_pool(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(PoolNdAttrs)
    x = arrays[0]
    window = _pool_window(call)
    kind = attrs.kind
    shape = (*x.shape[:2], *window.outputs)
    if kind == "max":
        best = np.full(shape, _least(call.input(0).dtype), x.dtype)
        for _, patch in window.patches(x, _least(call.input(0).dtype)):
            best = np.fmax(best, patch)
        return (best,)
    wide = _sum_dtype(call).np
    total = np.zeros(shape, wide)
    for _, patch in window.patches(evaluate_in_numpy(attrs.term or "a", [x]), 0):
        total += patch
    if kind == "average":
        total /= reduce(np.multiply.outer, _tap_counts(call, window)).astype(wide)
    return (evaluate_in_numpy(attrs.final or "a", [total]),)


def lower_pool(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(PoolNdAttrs)
    x = b.input(0)
    window = _pool_window(call)
    kind, wide = attrs.kind, _sum_dtype(call)
    factors = []
    if kind == "average":
        for axis, counts in enumerate(_tap_counts(call, window)):
            name = f"counts{axis}"
            factors.append(b.constant(name, counts.astype(wide.np), wide))
    with b.loops("n c", x.shape[:2]) as (n, c), b.loops("o", window.outputs) as index:
        is_max = kind == "max"
        dtype, start = (x.dtype, _least(x.dtype)) if is_max else (wide, 0.0)
        acc = b.register("acc", dtype, start)
        with window.taps(b, index) as (_, positions):
            item = b.load(x, [n, c, *positions])
            if is_max:
                acc.set(maximum(item, acc.value))
            else:
                acc.add(lower_expression(b, attrs.term or "a", [item]))
        result = acc.value
        if factors:
            counts_by_axis: list[ArithExpr] = []
            for table, i in zip(factors, index, strict=True):
                counts_by_axis.append(b.load(table, [i]))
            result = result / reduce(mul, counts_by_axis)
        b.store(b.y, [n, c, *index], lower_expression(b, attrs.final or "a", [result]))


def _macs(call: OpCall) -> int:
    # One product for each output element or, transposed, each input element and tap.
    walked = call.input(0) if _is_transposed(call) else call.output
    return walked.elements * call.input(1).elements // call.input(1).shape[0]


OPDEFS: tuple[OpDef, ...] = (
    OpDef("conv_nd", infer, reference, lower, macs=_macs),
    OpDef("conv_transpose_nd", infer, reference, lower, macs=_macs),
    OpDef("pool_nd", infer_pool, reference_pool, lower_pool),
)
