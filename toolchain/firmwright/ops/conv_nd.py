"""conv_nd and conv_transpose_nd: convolutions over any number of spatial axes, channels first.

    conv_nd: y[n, m, o...] = bias[m] + the sum of
        x[n, c, o * stride + k * dilation - before] * w[m, c, k...]
        over taps inside the input and the channels c of the group of m.
    conv_transpose_nd: y[n, m, o...] = bias[m] + the sum of
        x[n, c, i...] * w[c, m, k...] over i * stride + k * dilation - before = o.

Attributes: `stride`, `dilation`, `before`, `groups`, `outputs` (spatial extents). Elements are not
quantized, and weights may be variable.
Semantics: ONNX's Conv and ConvTranspose.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall, OpDef
from firmwright.ir.tir.builder import ArithExpr, logical_and
from firmwright.ops.kernel import Kernel
from firmwright.ops.window_nd import window_of

_DTYPES = (FLOAT32, INT32)


def _check(call: OpCall, channels: int, filters: int) -> None:
    x, w, groups = call.input(0), call.input(1), call.int_attr("groups")
    if x.dtype not in _DTYPES or w.dtype != x.dtype or len(w.shape) != len(x.shape):
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
    _check(call, w.shape[1], w.shape[0])
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
        acc = b.reg("acc", x.dtype)
        b.store(acc, [0], _initial_sum(call, b, m))
        with window.taps(b, index) as (taps, positions), b.for_("c", w.shape[1]) as c:
            channel = c if groups == 1 else m / filters * w.shape[1] + c
            product = b.load(x, [n, channel, *positions]) * b.load(w, [m, c, *taps])
            b.store(acc, [0], b.load(acc, [0]) + product)
        b.store(b.y, [n, m, *index], b.load(acc, [0]))


# ---- transposed --------------------------------------------------------------------------------


def infer_transposed(call: OpCall) -> tuple[TensorType, ...]:
    x, w = call.input(0), call.input(1)
    groups = call.int_attr("groups")
    if w.shape[0] != x.shape[1]:
        raise NotSupportedError(f"{x.shape[1]} input channels with weights for {w.shape[0]}")
    _check(call, x.shape[1] // max(groups, 1), w.shape[1] * groups)
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
        acc = b.reg("acc", x.dtype)
        b.store(acc, [0], _initial_sum(call, b, m))
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
            b.store(acc, [0], b.load(acc, [0]) + product)
        b.store(b.y, [n, m, *index], b.load(acc, [0]))


def macs(call: OpCall) -> int:
    return call.output.elements * call.input(1).elements // call.input(1).shape[0]


def macs_transposed(call: OpCall) -> int:
    return call.input(0).elements * call.input(1).elements // call.input(1).shape[0]


OPDEFS = (
    OpDef(
        name="conv_nd",
        infer=infer,
        reference=reference,
        lower=lower,
        dtypes=tuple(kind.name for kind in _DTYPES),
        macs=macs,
    ),
    OpDef(
        name="conv_transpose_nd",
        infer=infer_transposed,
        reference=reference_transposed,
        lower=lower_transposed,
        dtypes=tuple(kind.name for kind in _DTYPES),
        macs=macs_transposed,
    ),
)
