"""svdf: each unit sums `rank` filters over the features of the last steps.

Inputs: x [batch, inputs], feature weights [filters, inputs], time weights [filters,
steps], optional bias [units], state [batch, filters * steps]. A run shifts each
filter's state by one step, appends feature weights times x, and sums state times time
weights over each unit's steps and filters. int8: the first product is requantized to
the state (int16, or int8 in TFLM), the second, in wrapping 32 bits, to the output; both
round twice, and the activation is the output's range. The zero point of the state is
added after clamping and wraps; zero points of weights are ignored. Floats with int8
weights: the input is quantized at run time (dynamic_range.py) for the first product,
and the state is float. Semantics: TFLite's reference SVDF.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, UINT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization, Rounding
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.recurrent import SvdfAttrs
from firmwright.ir.tir.builder import ArithExpr, Register
from firmwright.ops import dynamic_range
from firmwright.ops.dynamic_range import FloatRow, QuantizedRow
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import (
    Requantization,
    apply_activation,
    make_requantization,
    per_tensor_quant,
)

_BIAS, _STATE = 3, 4
_UNROLL = (8, 5, 7, 4, 3, 2)
_HYBRID = (FLOAT32, INT8, INT8, FLOAT32)
_SUPPORTED_TYPES = (
    (INT8, INT8, INT16, INT16),
    (INT8, INT8, INT8, INT8),
    (FLOAT32,) * 4,
    _HYBRID,
)
"""Types of x, feature weights, time weights and state."""


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, feature, time, state = (call.input(index) for index in (0, 1, 2, _STATE))
    kinds = tuple(kind.dtype for kind in (x, feature, time, state))
    if kinds not in _SUPPORTED_TYPES or call.output.dtype != x.dtype:
        raise NotSupportedError(f"an svdf of {', '.join(kind.name for kind in kinds)}")
    if call.constant(1) is None or call.constant(2) is None:
        raise NotSupportedError("weights that are not constant")
    batch = x.shape[0]
    rank = call.attributes(SvdfAttrs).rank
    filters = feature.shape[0]
    steps = time.shape[-1]
    fits = x.shape[1:] == feature.shape[1:] and time.shape[:1] == feature.shape[:1]
    if not fits or filters % rank:
        raise NotSupportedError(f"{filters} filters of rank {rank} with {steps} steps")
    if state.shape != (batch, filters * steps):
        raise NotSupportedError(f"state of shape {list(state.shape)}")
    if call.has_input(_BIAS) and (
        call.constant(_BIAS) is None or call.input(_BIAS).shape != (filters // rank,)
    ):
        raise NotSupportedError("a bias that is not one constant for each unit")
    if dynamic_range.is_hybrid(call):
        dynamic_range.check_hybrid(call, None, (1, 2))
    if x.dtype == INT8:
        for kind in (x, feature, time, state, call.output):
            per_tensor_quant(kind)
    y = TensorType((batch, filters // rank), x.dtype, call.output.quantization)
    return (y, TensorType(state.shape, state.dtype, call.outputs[1].quantization))


def macs(call: OpCall) -> int:
    return call.input(0).shape[0] * (call.input(1).elements + call.input(2).elements)


def state_zero_point(call: OpCall) -> int:
    state = call.input(_STATE)
    if state.dtype == FLOAT32 or (call.numerics != "tflm" and state.dtype == INT16):
        return 0
    return per_tensor_quant(state).zero_point


def state_and_output_requant(call: OpCall) -> tuple[Requantization, Requantization]:
    x, feature, time, state = (_scale(call, index) for index in (0, 1, 2, _STATE))
    first = x * feature / state
    second = state * time / per_tensor_quant(call.output).scale
    clamped = replace(call.input(_STATE), quantization=Quantization((state,), (0,)))
    return (
        make_requantization([first], Rounding.TWICE, clamped, "none"),
        make_requantization([second], Rounding.TWICE, call.output, "none"),
    )


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(SvdfAttrs)
    batch = call.input(0).shape[0]
    filters = call.input(1).shape[0]
    rank = attrs.rank
    is_float = call.input(0).dtype == FLOAT32
    dtype = np.float64 if is_float else np.int64
    x, feature, time = (np.asarray(array, dtype) for array in arrays[:3])
    bias = np.zeros(filters // rank, dtype)
    if call.has_input(_BIAS):
        bias = arrays[_BIAS].astype(dtype)
    history = arrays[-1].reshape(batch, filters, -1)
    if not is_float:
        x = x - per_tensor_quant(call.input(0)).zero_point
    features: Array = np.asarray(x @ feature.T)
    if dynamic_range.is_hybrid(call):
        features = _hybrid_features(call, arrays)
        time = np.asarray(time * np.float32(_scale(call, 2)))
    if not is_float:
        to_state, to_output = state_and_output_requant(call)
        features = to_state.apply(features, INT32) + state_zero_point(call)
    newest = features[:, :, None].astype(history.dtype)
    state = np.concatenate([history[:, :, 1:], newest], axis=2)
    products = (state.astype(dtype) - state_zero_point(call)) * time
    total = products.sum(axis=2).reshape(batch, -1, rank).sum(axis=2) + bias
    new_state = state.reshape(batch, -1)
    if is_float:
        return apply_activation(total, attrs.activation), new_state
    return to_output.apply(total.astype(np.int32), INT8), new_state


def _hybrid_features(call: OpCall, arrays: Sequence[Array]) -> Array:
    rows = []
    for row in arrays[0]:
        quantized, scale, offset = dynamic_range.quantize_array(
            row, asymmetric=bool(call.attributes(SvdfAttrs).asymmetric)
        )
        sums = arrays[1].astype(np.int64) @ (quantized.astype(np.int64) - offset)
        rows.append(sums.astype(np.float32) * (scale * np.float32(_scale(call, 1))))
    return np.array(rows, np.float32)


def _scale(call: OpCall, index: int) -> float:
    return per_tensor_quant(call.input(index)).scale


def lower(call: OpCall, b: Kernel) -> None:
    inputs = call.input(0).shape[1]
    bias = _feature_bias(call, b)

    def start(n: ArithExpr) -> Callable[[ArithExpr], ArithExpr]:
        source = _FeatureSource(b.input(0), [n])
        if dynamic_range.is_hybrid(call):
            quantized = b.allocate("quantized", INT8, (inputs,))
            row = dynamic_range.quantize_row(
                b,
                FloatRow(b.input(0), n * inputs, inputs),
                quantized,
                weight_scale=_scale(call, 1),
                asymmetric=bool(call.attributes(SvdfAttrs).asymmetric),
            )
            source = _FeatureSource(quantized, [], row)
        return partial(_feature, call, b, source, bias)

    _emit_units(call, b, start)


def _emit_units(
    call: OpCall,
    b: Kernel,
    start: Callable[[ArithExpr], Callable[[ArithExpr], ArithExpr]],
) -> None:
    """Emit all but the first product, whose features come from `start`.

    `start(batch)` returns a function from filter to feature.
    """
    batch, (filters, steps) = call.input(0).shape[0], call.input(2).shape
    rank = call.attributes(SvdfAttrs).rank
    is_float = call.input(0).dtype == FLOAT32
    shape = (batch, filters, steps)
    before, after = b.views("before after", shape, b.input(_STATE), b.outputs[1])
    bias = unit_bias(call, b)
    with b.for_("n", batch) as n:
        feature = start(n)
        with b.for_("unit", filters // rank) as unit:
            first = 0 if bias is None else b.load(bias, [unit])
            total = b.register("total", FLOAT32 if is_float else UINT32, first)
            with b.for_("r", rank) as r:
                f = b.let("filter", unit * rank + r)
                with b.unrolled("t", steps - 1, *_UNROLL) as t:
                    old = b.let("older", b.load(before, [n, f, t + 1]))
                    b.store(after, [n, f, t], old)
                    _accumulate(call, b, total, old, [f, t])
                newest = b.let("newest", feature(f))
                b.store(after, [n, f, steps - 1], newest)
                _accumulate(call, b, total, newest, [f, steps - 1])
            b.store(b.y, [n, unit], _finish_output(call, total.value))


@dataclass(frozen=True, slots=True)
class _FeatureSource:
    """The features of a batch, indexed by `at` and position.

    `row` is the quantization of the features of a hybrid layer.
    """

    buffer: tir.Buffer
    at: Sequence[ArithExpr]
    row: QuantizedRow | None = None


def folded_feature_biases(call: OpCall) -> Array:
    """Return the first product's start values, which include the zero point of x."""
    totals = call.constant_array(1).sum(axis=1, dtype=np.int64)
    bias: Array = -per_tensor_quant(call.input(0)).zero_point * totals
    return bias


def _feature_bias(call: OpCall, b: Kernel) -> tir.Buffer | None:
    is_float = call.input(0).dtype == FLOAT32
    if is_float or not (bias := folded_feature_biases(call)).any():
        return None
    return b.constant("feature_bias", bias, INT32)


def folded_unit_biases(call: OpCall) -> Array:
    """Return the start values of units, which include the zero point of the state."""
    rank = call.attributes(SvdfAttrs).rank
    filter_sums = call.constant_array(2).sum(axis=1, dtype=np.int64)
    totals = filter_sums.reshape(-1, rank).sum(axis=1)
    units: Array = -state_zero_point(call) * totals
    if call.has_input(_BIAS):
        units = units + call.constant_array(_BIAS).astype(np.int64)
    return units


def unit_bias(call: OpCall, b: Kernel) -> tir.Buffer | None:
    """Return the start values of units, modulo 2^32; None if they are zero."""
    if call.input(0).dtype == FLOAT32:
        return b.input(_BIAS) if call.has_input(_BIAS) else None
    units = folded_unit_biases(call)
    if not units.any():
        return None
    return b.constant("unit_bias", units.astype(np.uint32), UINT32)


def _feature(
    call: OpCall,
    b: Kernel,
    source: _FeatureSource,
    bias: tir.Buffer | None,
    f: ArithExpr,
) -> ArithExpr:
    is_float = source.buffer.dtype == FLOAT32
    row = source.row
    start = 0 if bias is None else b.load(bias, [f])
    acc = b.register("acc", FLOAT32 if is_float else INT32, start)
    with b.unrolled("i", source.buffer.shape[-1], *_UNROLL) as i:
        item = b.load(source.buffer, [*source.at, i])
        weight = b.load(b.input(1), [f, i])
        if not is_float:
            zero_point = 0 if row is None else row.zero_point
            item = item.cast(INT32) - zero_point
            weight = weight.cast(INT32)
        acc.add(item * weight)
    if row is None:
        return _requantize_state(call, acc.value)
    return acc.value.cast(FLOAT32) * row.scale.value


def _accumulate(
    call: OpCall,
    b: Kernel,
    total: Register,
    x: ArithExpr,
    at: Sequence[ArithExpr | int],
) -> None:
    weight = b.load(b.input(2), at)
    if dynamic_range.is_hybrid(call):
        weight = weight.cast(FLOAT32) * _scale(call, 2)
    if total.buffer.dtype == FLOAT32:
        product = x * weight
    else:
        product = (x.cast(INT32) * weight.cast(INT32)).cast(UINT32)
    total.add(product)


def _requantize_state(call: OpCall, acc: ArithExpr) -> ArithExpr:
    if call.input(0).dtype == FLOAT32:
        return acc
    kind = call.input(_STATE).dtype
    steps = state_and_output_requant(call)[0].lower(acc, kind)
    zero_point = state_zero_point(call)
    return steps if not zero_point else (steps.cast(INT32) + zero_point).cast(kind)


def _finish_output(call: OpCall, total: ArithExpr) -> ArithExpr:
    if call.input(0).dtype == FLOAT32:
        return apply_activation(total, call.attributes(SvdfAttrs).activation)
    return state_and_output_requant(call)[1].lower(total.cast(INT32), INT8)


def _litert_gap(call: OpCall) -> str:
    if call.input(_STATE).dtype != INT8:
        return ""
    return "LiteRT has no SVDF with an int8 state"


OPDEF = OpDef("svdf", infer, reference, lower, macs=macs, litert_gap=_litert_gap)
