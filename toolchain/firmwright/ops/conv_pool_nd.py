"""conv_nd, conv_transpose_nd and pool_nd: windows over any number of spatial axes, channels first.

    conv_nd: y[n, m, o...] = bias[m] + sum of x[n, c, o * stride + k * dilation - before] *
        w[m, c, k...] over taps inside the input and the channels c of the group of m.
    conv_transpose_nd: y[n, m, o...] = bias[m] + sum of x[n, c, i...] * w[c, m, k...] over
        i * stride + k * dilation - before = o.

Attributes: `stride`, `dilation`, `before`, `outputs` (spatial extents); `groups` of convolutions;
`kind` (max, average, sum) and `size` of pools. Elements outside the input are ignored, but if
`padded` (before and after each axis) is given, averages count that padding as zeros. Averages and
sums are of the float32 formula `term` of the elements, and give the formula `final` of the result
(expression_language.py; `a` if omitted). Convolutions are not quantized, and their weights need not
be constant. 2-D images with constant weights use conv2d.py and pooling.py, which are faster.
Semantics: ONNX's Conv, ConvTranspose, MaxPool, AveragePool and LpPool.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT8, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, OpDef, TensorType
from firmwright.ir.tir.builder import ArithExpr, Builder, logical_and, maximum
from firmwright.ops.expression_language import evaluate_in_numpy, lower_expression, result_dtype
from firmwright.ops.kernel import Kernel


@dataclass(frozen=True, slots=True)
class WindowNd:
    """A window with size, stride, dilation and leading padding for each spatial axis.

    `inputs` and `outputs` are the spatial extents; they determine the trailing padding.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @contextmanager
    def taps(
        self, b: Builder, outputs: Sequence[ArithExpr]
    ) -> Iterator[tuple[list[ArithExpr], list[ArithExpr]]]:
        """Open loops over taps inside the input; yield window position and input position."""
        with ExitStack() as stack:
            taps, positions = [], []
            for axis, out in enumerate(outputs):
                k = stack.enter_context(b.for_(f"k{axis}", self.size[axis]))
                position = out * self.stride[axis] + k * self.dilation[axis] - self.before[axis]
                i = stack.enter_context(b.let(f"p{axis}", position))
                if self._exceeds_input(axis):
                    inside = logical_and(i >= 0, i < self.inputs[axis])
                    stack.enter_context(b.if_(inside))
                taps.append(k)
                positions.append(i)
            yield taps, positions

    def _exceeds_input(self, axis: int) -> bool:
        reach = (self.size[axis] - 1) * self.dilation[axis]
        last = (self.outputs[axis] - 1) * self.stride[axis] - self.before[axis] + reach
        return self.before[axis] > 0 or last >= self.inputs[axis]

    def patches(self, x: Array, outside: float) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Yield each tap and the elements of x [n, c, ...] that it reads for all outputs."""
        for tap in itertools.product(*map(range, self.size)):
            patch = x
            for axis, k in enumerate(tap):
                positions = (
                    np.arange(self.outputs[axis]) * self.stride[axis]
                    + k * self.dilation[axis]
                    - self.before[axis]
                )
                inside = (positions >= 0) & (positions < self.inputs[axis])
                patch = np.take(patch, np.where(inside, positions, 0), axis=axis + 2)
                shape = [1] * patch.ndim
                shape[axis + 2] = len(positions)
                patch = np.where(inside.reshape(shape), patch, np.asarray(outside, patch.dtype))
            yield tap, patch


def window_of(call: OpCall, size: Sequence[int], outputs: Sequence[int]) -> WindowNd:
    window = WindowNd(
        tuple(size),
        call.ints_attr("stride"),
        call.ints_attr("dilation"),
        call.ints_attr("before"),
        call.input(0).shape[2:],
        tuple(outputs),
    )
    rank = len(window.inputs)
    rows = (window.size, window.stride, window.dilation, window.before, window.outputs)
    if rank < 1 or any(len(row) != rank for row in rows):
        raise NotSupportedError(f"window attributes that do not match {rank} axes")
    if min(*window.size, *window.stride, *window.dilation, *window.outputs) < 1:
        raise NotSupportedError("a window, stride, dilation or output below 1")
    if min(window.before) < 0:
        raise NotSupportedError("negative padding")
    return window


_CONV_DTYPES = (FLOAT32, INT32)


def _check_conv(call: OpCall, channels: int, filters: int) -> None:
    x, w, groups = call.input(0), call.input(1), call.int_attr("groups")
    if x.dtype not in _CONV_DTYPES or w.dtype != x.dtype or len(w.shape) != len(x.shape):
        raise NotSupportedError(f"a convolution of {x.dtype.name} with {w.dtype.name} weights")
    if groups < 1 or x.shape[1] % groups or filters % groups or channels * groups != x.shape[1]:
        raise NotSupportedError(f"{groups} groups of {x.shape[1]} channels and {filters} filters")
    if call.has_input(2) and call.input(2).elements != filters:
        raise NotSupportedError(f"{call.input(2).elements} bias elements for {filters} filters")


def _bias(call: OpCall, arrays: Sequence[Array]) -> Array | float:
    if not call.has_input(2):
        return 0
    spread = [1] * len(call.input(0).shape)
    spread[1] = -1
    return arrays[2].reshape(spread).astype(np.float64)


def _weights_at(w: Array, rows: slice, tap: Sequence[int]) -> Array:
    position: tuple[Any, ...] = (rows, slice(None), *tap)
    return np.asarray(w[position])


def _initial_sum(call: OpCall, b: Kernel, m: ArithExpr) -> ArithExpr | float:
    if call.has_input(2):
        return b.load(b.input(2), [m])
    return 0.0 if call.input(0).dtype == FLOAT32 else 0


# ---- forward -----------------------------------------------------------------------------------


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, w = call.input(0), call.input(1)
    _check_conv(call, w.shape[1], w.shape[0])
    window = window_of(call, w.shape[2:], call.ints_attr("outputs"))
    return (TensorType((x.shape[0], w.shape[0], *window.outputs), x.dtype),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, w, groups = arrays[0].astype(np.float64), arrays[1], call.int_attr("groups")
    window = window_of(call, w.shape[2:], call.ints_attr("outputs"))
    total: Array = np.zeros((x.shape[0], w.shape[0], *window.outputs))
    count, filters = x.shape[1] // groups, w.shape[0] // groups
    for tap, patch in window.patches(x, 0):
        for group in range(groups):
            rows = slice(group * filters, (group + 1) * filters)
            part = patch[:, group * count : (group + 1) * count]
            total[:, rows] += np.einsum("nc...,mc->nm...", part, _weights_at(w, rows, tap))
    return ((total + _bias(call, arrays)).astype(call.output.dtype.np),)


def lower(call: OpCall, b: Kernel) -> None:
    x, w, groups = b.input(0), b.input(1), call.int_attr("groups")
    window = window_of(call, w.shape[2:], call.ints_attr("outputs"))
    filters = w.shape[0] // groups
    with ExitStack() as stack:
        n = stack.enter_context(b.for_("n", x.shape[0]))
        m = stack.enter_context(b.for_("m", w.shape[0]))
        index = stack.enter_context(b.loops("o", window.outputs))
        acc = b.register("acc", x.dtype, _initial_sum(call, b, m))
        with window.taps(b, index) as (taps, positions), b.for_("c", w.shape[1]) as c:
            channel = c if groups == 1 else m / filters * w.shape[1] + c
            product = b.load(x, [n, channel, *positions]) * b.load(w, [m, c, *taps])
            acc.add(product)
        b.store(b.y, [n, m, *index], acc.value)


# ---- transposed --------------------------------------------------------------------------------


def infer_transposed(call: OpCall) -> tuple[TensorType, ...]:
    x, w = call.input(0), call.input(1)
    groups = call.int_attr("groups")
    if w.shape[0] != x.shape[1]:
        raise NotSupportedError(f"{x.shape[1]} input channels with weights for {w.shape[0]}")
    _check_conv(call, x.shape[1] // max(groups, 1), w.shape[1] * groups)
    window = window_of(call, w.shape[2:], call.ints_attr("outputs"))
    return (TensorType((x.shape[0], w.shape[1] * groups, *window.outputs), x.dtype),)


def reference_transposed(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, w, groups = arrays[0].astype(np.float64), arrays[1], call.int_attr("groups")
    window = window_of(call, w.shape[2:], call.ints_attr("outputs"))
    reach = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(window.inputs, window.stride, window.size, window.dilation,
                              strict=True)
    ]  # fmt: skip
    extents = [
        max(full, first + out)
        for full, first, out in zip(reach, window.before, window.outputs, strict=True)
    ]
    total: Array = np.zeros((x.shape[0], w.shape[1] * groups, *extents))
    count = x.shape[1] // groups
    for tap in np.ndindex(*window.size):
        positions = tuple(
            slice(k * d, k * d + (n - 1) * s + 1, s)
            for k, d, n, s in zip(tap, window.dilation, window.inputs, window.stride, strict=True)
        )
        for group in range(groups):
            rows = slice(group * count, (group + 1) * count)
            columns = slice(group * w.shape[1], (group + 1) * w.shape[1])
            total[(slice(None), columns, *positions)] += np.einsum(
                "nc...,cm->nm...", x[:, rows], _weights_at(w, rows, tap)
            )
    cut = tuple(slice(f, f + n) for f, n in zip(window.before, window.outputs, strict=True))
    sums = total[(slice(None), slice(None), *cut)] + _bias(call, arrays)
    return (sums.astype(call.output.dtype.np),)


def lower_transposed(call: OpCall, b: Kernel) -> None:
    x, w, groups = b.input(0), b.input(1), call.int_attr("groups")
    window = window_of(call, w.shape[2:], call.ints_attr("outputs"))
    count = x.shape[1] // groups
    with ExitStack() as stack:
        n = stack.enter_context(b.for_("n", x.shape[0]))
        m = stack.enter_context(b.for_("m", w.shape[1] * groups))
        index = stack.enter_context(b.loops("o", window.outputs))
        acc = b.register("acc", x.dtype, _initial_sum(call, b, m))
        with ExitStack() as inner:
            taps, positions = [], []
            for axis, out in enumerate(index):
                k = inner.enter_context(b.for_(f"k{axis}", window.size[axis]))
                shifted = out + window.before[axis] - k * window.dilation[axis]
                s = inner.enter_context(b.let(f"s{axis}", shifted))
                inner.enter_context(b.if_(logical_and(s >= 0, (s % window.stride[axis]).equal(0))))
                i = inner.enter_context(b.let(f"p{axis}", s / window.stride[axis]))
                inner.enter_context(b.if_(logical_and(i >= 0, i < window.inputs[axis])))
                taps.append(k)
                positions.append(i)
            c = inner.enter_context(b.for_("c", count))
            column = m if groups == 1 else m % w.shape[1]
            channel = c if groups == 1 else m / w.shape[1] * count + c
            product = b.load(x, [n, channel, *positions]) * b.load(w, [channel, column, *taps])
            acc.add(product)
        b.store(b.y, [n, m, *index], acc.value)


_EXTREMES = (FLOAT32, INT8, UINT8)


def infer_pool(call: OpCall) -> tuple[TensorType, ...]:
    x, kind = call.input(0), call.str_attr("kind")
    types = {"max": x.dtype, "average": FLOAT32, "sum": FLOAT32}
    element = result_dtype(_formula(call, "term"), [ArithExpr(tir.Var("a", x.dtype))])
    if x.dtype not in _EXTREMES or element != types.get(kind):
        raise NotSupportedError(f"a {kind} pool of {x.dtype.name}")
    dtype = result_dtype(_formula(call, "final"), [ArithExpr(tir.Var("a", element))])
    window = _pool_window(call)
    return (TensorType((*x.shape[:2], *window.outputs), dtype, call.output.quantization),)


def _formula(call: OpCall, name: str) -> str:
    return call.str_attr(name) if name in call.attrs else "a"


def _pool_window(call: OpCall) -> WindowNd:
    return window_of(call, call.ints_attr("size"), call.ints_attr("outputs"))


def _least(kind: DType) -> float:
    return float("-inf") if kind.is_float else kind.min


def _tap_counts(call: OpCall, window: WindowNd) -> list[Array]:
    """Return, for each axis, the number of counted taps at every output position."""
    padded = call.ints_attr("padded")
    counts: list[Array] = []
    for axis, size in enumerate(window.size):
        low, high = 0, window.inputs[axis]
        if padded:
            low, high = -padded[2 * axis], high + padded[2 * axis + 1]
        steps = np.arange(window.outputs[axis])[:, None] * window.stride[axis]
        positions = steps + np.arange(size) * window.dilation[axis] - window.before[axis]
        counts.append(((positions >= low) & (positions < high)).sum(axis=1))
    return counts


def reference_pool(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, window, kind = arrays[0], _pool_window(call), call.str_attr("kind")
    shape = (*x.shape[:2], *window.outputs)
    if kind == "max":
        best = np.full(shape, _least(call.input(0).dtype), x.dtype)
        for _, patch in window.patches(x, _least(call.input(0).dtype)):
            best = np.maximum(best, patch)
        return (best,)
    total = np.zeros(shape, np.float32)
    for _, patch in window.patches(evaluate_in_numpy(_formula(call, "term"), [x]), 0):
        total += patch
    if kind == "average":
        total /= reduce(np.multiply.outer, _tap_counts(call, window)).astype(np.float32)
    return (evaluate_in_numpy(_formula(call, "final"), [total]),)


def lower_pool(call: OpCall, b: Kernel) -> None:
    x, window, kind = b.input(0), _pool_window(call), call.str_attr("kind")
    factors = []
    if kind == "average":
        for axis, counts in enumerate(_tap_counts(call, window)):
            name = f"counts{axis}"
            factors.append(b.constant(name, counts.astype(np.float32), FLOAT32))
    with ExitStack() as stack:
        n = stack.enter_context(b.for_("n", x.shape[0]))
        c = stack.enter_context(b.for_("c", x.shape[1]))
        index = stack.enter_context(b.loops("o", window.outputs))
        is_max = kind == "max"
        acc = b.register("acc", x.dtype if is_max else FLOAT32, _least(x.dtype) if is_max else 0.0)
        with window.taps(b, index) as (_, positions):
            item = b.load(x, [n, c, *positions])
            if is_max:
                acc.set(maximum(acc.value, item))
            else:
                with lower_expression(b, _formula(call, "term"), [item]) as term:
                    acc.add(term)
        result = acc.value
        if factors:
            pairs = zip(factors, index, strict=True)
            result = result / reduce(mul, (b.load(table, [i]) for table, i in pairs))
        with lower_expression(b, _formula(call, "final"), [result]) as final:
            b.store(b.y, [n, c, *index], final)


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        name="conv_nd",
        infer=infer,
        reference=reference,
        lower=lower,
        dtypes=tuple(kind.name for kind in _CONV_DTYPES),
        macs=lambda call: call.output.elements * call.input(1).elements // call.input(1).shape[0],
        numerics="neither",
    ),
    OpDef(
        name="conv_transpose_nd",
        infer=infer_transposed,
        reference=reference_transposed,
        lower=lower_transposed,
        dtypes=tuple(kind.name for kind in _CONV_DTYPES),
        macs=lambda call: call.input(0).elements * call.input(1).elements // call.input(1).shape[0],
        numerics="neither",
    ),
    OpDef(
        name="pool_nd",
        infer=infer_pool,
        reference=reference_pool,
        lower=lower_pool,
        dtypes=tuple(kind.name for kind in _EXTREMES),
        numerics="neither",
    ),
)
