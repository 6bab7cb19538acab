"""svdf of int8 on RISC-V vectors: filters, then units in lanes.

The state is int8 or int16. Sums of products with one of int16 wrap around, as those of
the definition do.
"""

from collections.abc import Sequence
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT16, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.ops.svdf import (
    folded_feature_biases,
    folded_unit_biases,
    state_and_output_requant,
)
from firmwright.schedules.epilogue import accumulator_bounds
from firmwright.schedules.rvv import requantize_values
from firmwright.schedules.rvv.conv2d_fully_connected import choose_loop, longest_group
from firmwright.schedules.rvv.endings import BYTES, NOMINAL_LANES
from firmwright.schedules.rvv.layer_endings import ending_by_word, supports_requantize
from firmwright.schedules.rvv.sums import VectorSums
from firmwright.schedules.rvv.window_kernel import ending_text
from firmwright.schedules.svdf import (
    FeatureStep,
    SvdfSteps,
    UnitStep,
    emit_steps,
    move_vectors,
    unit_size,
)

_STATE = 4
_C = read_sections(__file__)

# `rvv_units_GROUP`: a tap is an element of each unit, `taps` bytes apart, times its
# weight. The products of GROUP successive taps are added in 16 bits, which they fit.
# `rvv_units_int16` adds the product of each tap, of 32 bits.


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if op.input(0).dtype != INT8:
        return ()
    to_state, to_output = state_and_output_requant(op)
    is_byte = op.input(_STATE).dtype == INT8
    fits = supports_requantize(to_state) if is_byte else _fits_left_shift(op, to_state)
    return (NO_CONFIG,) if fits and supports_requantize(to_output) else ()


def _fits_left_shift(op: OpCall, to_state: Requantization) -> bool:
    """Return whether features fit 32 bits when they are shifted to the left."""
    matrix = op.constant_array(1).astype(np.int64)
    low, high = accumulator_bounds(folded_feature_biases(op), matrix)
    most = max(int(high.max()), -int(low.min()))
    return most << max(to_state.shifts[0], 0) <= INT32.max


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    is_byte = op.input(_STATE).dtype == INT8
    features = _byte_features(op, b) if is_byte else _half_features(op, b)
    name = f"rvv_copy_{op.input(_STATE).dtype.name}"
    filters = op.input(1).shape[0]
    steps = SvdfSteps(partial(move_vectors, name), features, _unit_step(op, b), filters)
    emit_steps(op, b, steps)


def _byte_features(op: OpCall, b: Kernel) -> FeatureStep:
    """Return the second step, whose products are requantized in their vectors."""
    to_state = ending_by_word(BYTES, state_and_output_requant(op)[0])
    assert to_state is not None
    flat = op.constant_array(1).astype(np.int64)
    filters, depth = flat.shape
    weights = b.constant("weights", flat.T, INT8)
    q, s = to_state.tables(b, folded_feature_biases(op), 1)
    name = choose_loop(BYTES, flat, 1, 1).name

    def emit(n: ArithExpr, newest: tir.Buffer) -> None:
        operands = [
            b.pointer(weights, 0, weights.elements),
            b.pointer(b.input(0), n * depth, depth),
            b.pointer(q, 0, q.elements),
            b.pointer(s, 0, s.elements),
            b.pointer(newest, 0, filters, "w"),
        ]
        numbers = (depth, 1, depth, depth, 1, filters)
        b.evaluate(name, [*operands, *numbers, *to_state.settings])

    return emit


def _half_features(op: OpCall, b: Kernel) -> FeatureStep:
    """Return the second step, whose products are requantized to int16 afterwards."""
    flat = op.constant_array(1).astype(np.int64)
    product = VectorSums.plan(b, flat, folded_feature_biases(op), INT8)
    settings = requantize_values.settings(state_and_output_requant(op)[0], 0)
    name = requantize_values.name(INT32, INT16)
    count = len(flat)

    def emit(n: ArithExpr, newest: tir.Buffer) -> None:
        sums = b.allocate("sums", INT32, (count,))
        product.emit(b, b.input(0), [n], sums)
        ends = b.pointer(newest, 0, count, "w"), b.pointer(sums, 0, count)
        b.evaluate(name, [*ends, *settings, count])

    return emit


def _unit_step(op: OpCall, b: Kernel) -> UnitStep:
    layer = ending_by_word(BYTES, state_and_output_requant(op)[1])
    assert layer is not None
    taps, dtype = unit_size(op), op.input(_STATE).dtype
    flat = op.constant_array(2).astype(np.int64).reshape(-1, taps)
    count = len(flat)
    name = _name(dtype, 2 if dtype == INT8 and _fits_pairs(flat, taps) else 1)
    weights = b.constant("time_weights", flat.T, dtype)
    bias = folded_unit_biases(op).astype(np.uint32).view(np.int32)
    q, s = layer.tables(b, bias, 1)

    def emit(n: ArithExpr, state: tir.Buffer) -> None:
        operands = [
            b.pointer(weights, 0, weights.elements),
            b.pointer(state, n * (count * taps), count * taps),
            b.pointer(q, 0, q.elements),
            b.pointer(s, 0, s.elements),
            b.pointer(b.y, n * count, count, "w"),
        ]
        b.evaluate(name, [*operands, taps, count, *layer.settings])

    return emit


def _fits_pairs(flat: Array, taps: int) -> bool:
    return taps % 2 == 0 and longest_group(flat, taps) > 1


def _name(dtype: DType, group: int) -> str:
    return f"rvv_units_{group}" if dtype == INT8 else f"rvv_units_{dtype.name}"


def _meaning(w: Array, x: Array, q: Array, s: Array, y: Array, *rest: Array) -> Array:
    taps, channels = map(int, rest[:2])
    lanes = np.asarray(x).shape[1:]
    values = np.asarray(x, np.int64)[: taps * channels].reshape(channels, taps, *lanes)
    weights = np.asarray(w, np.int64)[: taps * channels].reshape(taps, channels, *lanes)
    sums = (values * weights.swapaxes(0, 1)).sum(axis=1)
    bias, multiplier = np.reshape(q, (2, channels, *lanes)).astype(np.int64)
    total = (sums + bias).astype(np.uint32).astype(np.int32)
    right = np.reshape(s, (channels, *lanes)).astype(np.int32)
    factors = [multiplier.astype(np.int32)]
    return BYTES.results(total, factors, right, rest[2:])


def _count(group: int, args: Sequence[int]) -> int:
    """Return the instructions for all units with vectors of 128 bits."""
    taps, channels = args[5:7]
    each = 6 + 5 / group
    return divide_up(channels, NOMINAL_LANES) * round(36 + taps * each)


def _intrinsic(dtype: DType, group: int) -> Intrinsic:
    assert BYTES.element is not None
    more = indent(_C["more"], " " * 8) if group > 1 else ""
    section = "text" if dtype == INT8 else "text_int16"
    given = {"group": group, "more": more} if dtype == INT8 else {}
    finish = ending_text(BYTES, [("sum0", "y + at")], 8)
    return Intrinsic(
        _name(dtype, group),
        (
            *pointers(dtype, w=1, x=1),
            *pointers(INT32, q=2),
            *pointers(UINT16, s=1),
            *pointers(INT8, "w", y=1),
            *immediates("taps", "channels", *BYTES.settings),
        ),
        _meaning,
        fill_text(_C["portable"], result=BYTES.portable()),
        "Products of units with their weights, requantized.",
        requires="rvv",
        text={"gnu": fill_text(_C[section], finish=finish, **given)},
        calls=(BYTES.element.name,),
        count=partial(_count, group),
    )


INTRINSICS = (_intrinsic(INT8, 1), _intrinsic(INT8, 2), _intrinsic(INT16, 1))
SCHEDULES = (Schedule("rvv.svdf.units", "svdf", frozenset({"rvv"}), _configs, _build),)
