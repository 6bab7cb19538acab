"""svdf with a state of int8 on RISC-V vectors: filters, then units in lanes."""

from collections.abc import Sequence
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT16, Array
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.ops.svdf import (
    folded_feature_biases,
    folded_unit_biases,
    state_and_output_requant,
)
from firmwright.schedules.rvv.conv2d_fully_connected import choose_loop, longest_group
from firmwright.schedules.rvv.endings import (
    BYTES,
    NOMINAL_LANES,
    LayerEnding,
    ending_by_word,
)
from firmwright.schedules.rvv.window_kernel import ending_text
from firmwright.schedules.svdf import (
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


def _endings(op: OpCall) -> tuple[LayerEnding | None, LayerEnding | None]:
    """Return the endings of features and of units, None for those without vectors."""
    to_state, to_output = state_and_output_requant(op)
    return ending_by_word(BYTES, to_state), ending_by_word(BYTES, to_output)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if not op.input(0).dtype == op.input(_STATE).dtype == INT8:
        return ()
    return () if None in _endings(op) else (NO_CONFIG,)


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    to_state, to_output = _endings(op)
    assert to_state is not None
    assert to_output is not None
    flat = op.constant_array(1).astype(np.int64)
    filters, depth = flat.shape
    weights = b.constant("weights", flat.T, INT8)
    q, s = to_state.tables(b, folded_feature_biases(op), 1)
    name = choose_loop(BYTES, flat, 1, 1).name

    def features(n: ArithExpr, newest: tir.Buffer) -> None:
        operands = [
            b.pointer(weights, 0, weights.elements),
            b.pointer(b.input(0), n * depth, depth),
            b.pointer(q, 0, q.elements),
            b.pointer(s, 0, s.elements),
            b.pointer(newest, 0, filters, "w"),
        ]
        numbers = (depth, 1, depth, depth, 1, filters)
        b.evaluate(name, [*operands, *numbers, *to_state.settings])

    move_down = partial(move_vectors, "rvv_copy_int8")
    units = _unit_step(op, b, to_output)
    emit_steps(op, b, SvdfSteps(move_down, features, units, filters))


def _unit_step(op: OpCall, b: Kernel, layer: LayerEnding) -> UnitStep:
    taps = unit_size(op)
    flat = op.constant_array(2).astype(np.int64).reshape(-1, taps)
    group = 2 if taps % 2 == 0 and longest_group(flat, taps) > 1 else 1
    count = len(flat)
    weights = b.constant("time_weights", flat.T, INT8)
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
        b.evaluate(f"rvv_units_{group}", [*operands, taps, count, *layer.settings])

    return emit


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


def _intrinsic(group: int) -> Intrinsic:
    assert BYTES.element is not None
    finish = ending_text(BYTES, [("sum0", "y + at")], 8)
    more = indent(_C["more"], " " * 8) if group > 1 else ""
    return Intrinsic(
        f"rvv_units_{group}",
        (
            *pointers(INT8, w=1, x=1),
            *pointers(INT32, q=2),
            *pointers(UINT16, s=1),
            *pointers(INT8, "w", y=1),
            *immediates("taps", "channels", *BYTES.settings),
        ),
        _meaning,
        fill_text(_C["portable"], result=BYTES.portable),
        "Products of units with their weights, requantized.",
        requires="rvv",
        text={"gnu": fill_text(_C["text"], group=group, more=more, finish=finish)},
        calls=(BYTES.element.name,),
        count=partial(_count, group),
    )


INTRINSICS = (_intrinsic(1), _intrinsic(2))
SCHEDULES = (Schedule("rvv.svdf.units", "svdf", frozenset({"rvv"}), _configs, _build),)
