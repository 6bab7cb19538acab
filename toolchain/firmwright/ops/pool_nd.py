"""pool_nd: maximum, mean or norm in a window over any number of axes, channels first.

Attributes: `kind` (max, average, norm), `size`, `stride`, `dilation`, `before`, `outputs`. Means
have `padded`: the padding before and after each axis that counts as elements; if empty, only input
elements count. Norms have `order` p: the result is the p-th root of the sum of |x|^p. Elements
outside the input are ignored.
Semantics: ONNX's MaxPool, AveragePool and LpPool.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, UINT8, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall, OpDef
from firmwright.ir.tir.builder import maximum
from firmwright.ops.expression_language import evaluate_in_numpy, lower_expression
from firmwright.ops.kernel import Kernel
from firmwright.ops.window_nd import WindowNd, window_of

_EXTREMES = (FLOAT32, INT8, UINT8)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, kind = call.input(0), call.str_attr("kind")
    if x.dtype != FLOAT32 and not (kind == "max" and x.dtype in _EXTREMES):
        raise NotSupportedError(f"a {kind} pool of {x.dtype.name}")
    window = _window(call)
    return (TensorType((*x.shape[:2], *window.outputs), x.dtype, call.output.quantization),)


def _window(call: OpCall) -> WindowNd:
    return window_of(call, call.ints_attr("size"), call.ints_attr("outputs"))


def _least(kind: DType) -> float:
    return float("-inf") if kind.is_float else kind.min


def _power_formula(call: OpCall) -> str:
    return {1: "abs(a)", 2: "a * a"}.get(call.int_attr("order"), f"pow(abs(a), {_order(call)})")


def _order(call: OpCall) -> float:
    return float(call.int_attr("order"))


def _root_formula(call: OpCall) -> str:
    return {1: "a", 2: "sqrt(a)"}.get(call.int_attr("order"), f"pow(a, {1 / _order(call)!r})")


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


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, window, kind = arrays[0], _window(call), call.str_attr("kind")
    shape = (*x.shape[:2], *window.outputs)
    if kind == "max":
        best = np.full(shape, _least(call.input(0).dtype), x.dtype)
        for _, patch in window.patches(x, _least(call.input(0).dtype)):
            best = np.maximum(best, patch)
        return (best,)
    total = np.zeros(shape)
    for _, patch in window.patches(x, 0):
        total += patch if kind == "average" else evaluate_in_numpy(_power_formula(call), [patch])
    if kind == "norm":
        return (evaluate_in_numpy(_root_formula(call), [total.astype(np.float32)]),)
    for axis, count in enumerate(_tap_counts(call, window)):
        spread = [1] * len(shape)
        spread[axis + 2] = -1
        total = total / count.reshape(spread)
    return (total.astype(np.float32),)


def lower(call: OpCall, b: Kernel) -> None:
    x, window, kind = b.input(0), _window(call), call.str_attr("kind")
    factors = []
    if kind == "average":
        for axis, counts in enumerate(_tap_counts(call, window)):
            name = f"counts{axis}"
            factors.append(b.constant(name, counts.astype(np.float32), FLOAT32))
    with ExitStack() as stack:
        n = stack.enter_context(b.for_("n", x.shape[0]))
        c = stack.enter_context(b.for_("c", x.shape[1]))
        index = stack.enter_context(b.loops("o", window.outputs))
        acc = b.reg("acc", x.dtype)
        b.store(acc, [0], _least(x.dtype) if kind == "max" else 0.0)
        with window.taps(b, index) as (_, positions):
            item = b.load(x, [n, c, *positions])
            if kind == "max":
                b.store(acc, [0], maximum(b.load(acc, [0]), item))
            elif kind == "average":
                b.store(acc, [0], b.load(acc, [0]) + item)
            else:
                with lower_expression(b, _power_formula(call), [item]) as power:
                    b.store(acc, [0], b.load(acc, [0]) + power)
        result = b.load(acc, [0])
        for axis, table in enumerate(factors):
            result = result / b.load(table, [index[axis]])
        if kind == "norm":
            with lower_expression(b, _root_formula(call), [result]) as root:
                b.store(b.y, [n, c, *index], root)
        else:
            b.store(b.y, [n, c, *index], result)


OPDEF = OpDef(
    name="pool_nd",
    infer=infer,
    reference=reference,
    lower=lower,
    dtypes=tuple(kind.name for kind in _EXTREMES),
)
