"""lstm of float32: one product for all gates, and exponentials in line.

A column holds the input of a time and then the hidden values, so that the weights of
both are one matrix. Its rows are [gate, unit], with the cell gate last.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.ir import tir
from firmwright.ir.graph.attributes.recurrent import LstmAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum
from firmwright.ops.kernel import Kernel
from firmwright.ops.lstm import copy_state
from firmwright.ops.lstm_layer import (
    BIAS,
    HIDDEN_STATE,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    batch_time_inputs,
    cell_clip,
    weights_at,
)
from firmwright.ops.schedule import Schedule
from firmwright.schedules.fpu.conv2d_fully_connected import (
    SOFT_CONFIG,
    FloatTile,
    FpuConfig,
    Windows,
    copy_row,
    tile_configs,
)
from firmwright.schedules.fpu.expressions import compute_in_line
from firmwright.schedules.fpu.logistic_tanh_softmax import (
    exponential_of,
    logistic_of,
    store_tanh,
)
from firmwright.schedules.fpu.microkernels import (
    ALL_STYLES,
    MultiplyAddStyle,
    schedule_name,
)
from firmwright.schedules.gemm import Gemm, float_gemm

_WEIGHTS = (INPUT_WEIGHTS, RECURRENT_WEIGHTS)
_ORDER = (0, 1, 3, 2)
"""The gates in the order of rows: input, forget, output, cell."""


def _configs(style: MultiplyAddStyle, op: OpCall) -> Sequence[FpuConfig]:
    if op.input(0).dtype != FLOAT32:
        return ()
    if style is None:
        return (SOFT_CONFIG,)
    units = op.input(HIDDEN_STATE).shape[1]
    depth = batch_time_inputs(op)[2] + units
    return tile_configs(len(_ORDER) * units, 1, depth, 0, 1)[:1]


def _plan(
    op: OpCall, b: Kernel, style: MultiplyAddStyle, config: FpuConfig
) -> Gemm[Windows]:
    """Return the product of all gates."""
    weights, biases = [], []
    for gate in _ORDER:
        parts = (weights_at(op, first + gate) for first in _WEIGHTS)
        weights.append(np.concatenate(list(parts), axis=1))
        biases.append(weights_at(op, BIAS + gate))
    matrix = np.concatenate(weights)
    rows, depth = matrix.shape
    tile = FloatTile(style, config.tile, depth)
    packed = b.constant("weights", tile.contract.layout.pack(matrix), FLOAT32)
    bias = b.constant("bias", np.concatenate(biases), FLOAT32)
    return float_gemm(tile, packed, bias, lambda total: total, (rows, 1))


def _build(
    style: MultiplyAddStyle, feature: str, op: OpCall, config: FpuConfig, b: Kernel
) -> None:
    exponential = exponential_of(feature)
    batch, time, inputs = batch_time_inputs(op)
    units = op.input(HIDDEN_STATE).shape[1]
    hidden, depth = b.outputs[1], inputs + units
    gemm = _plan(op, b, style, config)
    column = b.allocate("column", FLOAT32, (depth,))
    gates = b.allocate("gates", FLOAT32, (len(_ORDER) * units,))
    copy_state(op, b)
    with b.for_("n", batch) as n, b.for_("t", time) as t:
        is_time_major = op.attributes(LstmAttrs).time_major
        row = t * batch + n if is_time_major else n * time + t
        copy_row(b, column, n * 0, b.input(0), row * inputs, inputs)
        copy_row(b, column, n * 0 + inputs, hidden, n * units, units)
        gemm.emit(b, Windows(column, 0, depth), 0, gates)
        with b.for_("i", 3 * units) as i:
            b.store(gates, [i], logistic_of(exponential, b, b.load(gates, [i])))
        y = b.view("row", b.y, row * units, (units,), access="w")
        with b.for_("u", units) as u:
            _update(op, b, exponential, gates, [n, u], y)
    b.transform = partial(compute_in_line, feature)


def _update(
    op: OpCall,
    b: Kernel,
    exponential: str,
    gates: tir.Buffer,
    at: Sequence[ArithExpr],
    y: tir.Buffer,
) -> None:
    """Update a unit's cell and hidden value from its activated gates."""
    units = op.input(HIDDEN_STATE).shape[1]
    _, hidden, cells = b.outputs
    u = at[1]
    i, f, o, g = ([u + place * units] for place in range(len(_ORDER)))
    store_tanh(exponential, b, b.load(gates, g), partial(b.store, gates, g))
    retained = b.load(gates, f) * b.load(cells, at)
    cell = retained + b.load(gates, i) * b.load(gates, g)
    limit = cell_clip(op)
    if limit:
        cell = minimum(limit, maximum(-limit, cell))
    value = b.let("cell", cell)
    b.store(cells, at, value)
    store_tanh(exponential, b, value, partial(b.store, gates, g))
    output = b.let("output", b.load(gates, o) * b.load(gates, g))
    b.store(hidden, at, output)
    b.store(y, [u], output)


def _schedules() -> Iterator[Schedule[FpuConfig]]:
    for style, requires in ALL_STYLES:
        (feature,) = requires if style is None else ("fpu",)
        yield Schedule(
            schedule_name(style, "lstm"),
            "lstm",
            requires,
            partial(_configs, style),
            partial(_build, style, feature),
            disable_scheduling=True,
        )


SCHEDULES = tuple(_schedules())
