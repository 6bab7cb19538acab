"""lstm of integers on RISC-V vectors: the gates of all units in lanes."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.attributes.recurrent import LstmAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.kernel import Kernel
from firmwright.ops.lstm import Index, UnitBuilder, copy_state, sum_dtype
from firmwright.ops.lstm_layer import (
    GATES,
    HIDDEN_STATE,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    batch_time_inputs,
    folded_biases,
    weights_at,
)
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.rvv.sums import VectorSums

# A step has two products of a matrix and a vector, which leave 32-bit sums of all gates
# in the order [gate, unit]. Units are then updated one by one.


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    fits = op.input(0).dtype in (INT8, INT16) and sum_dtype(op) == INT32
    return (NO_CONFIG,) if fits else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    batch, time, _ = batch_time_inputs(op)
    units = op.input(HIDDEN_STATE).shape[1]
    layer = UnitBuilder(op, b)
    hidden = b.outputs[1]
    products = [_product(op, b, first) for first in (INPUT_WEIGHTS, RECURRENT_WEIGHTS)]
    totals = [
        b.allocate(name, INT32, (len(GATES), units)) for name in ("x_sums", "sums")
    ]
    copy_state(op, b)
    with b.for_("n", batch) as n, b.for_("t", time) as t:
        at = [t, n] if op.attributes(LstmAttrs).time_major else [n, t]
        sources: list[tuple[tir.Buffer, Index]] = [(b.input(0), at), (hidden, [n])]
        for product, (x, place), total in zip(products, sources, totals, strict=True):
            product.emit(b, x, place, total)
        with b.for_("u", units) as u:
            gates = []
            for gate in range(len(GATES)):
                of_x, of_hidden = (b.load(total, [gate, u]) for total in totals)
                steps = layer.input_steps(of_x, gate)
                gates.append(layer.gate_steps(of_hidden, gate, steps))
            layer.finish(gates, [n, u], [*at, u])
            b.store(hidden, [n, u], b.load(b.y, [*at, u]))


def _product(op: OpCall, b: Kernel, first: int) -> VectorSums:
    """Return the product with all gates' weights, which begin at input `first`."""
    weights: list[Array] = []
    biases: list[Array] = []
    for gate in range(len(GATES)):
        weights.append(weights_at(op, first + gate))
        biases.append(folded_biases(op, gate)[first == RECURRENT_WEIGHTS])
    flat, bias = np.concatenate(weights), np.concatenate(biases)
    return VectorSums.plan(b, flat, bias, op.input(0).dtype)


SCHEDULES = (Schedule("rvv.lstm.gates", "lstm", frozenset({"rvv"}), _configs, _build),)
