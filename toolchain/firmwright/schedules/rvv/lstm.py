"""lstm of integers on RISC-V vectors: the gates of all units in lanes.

A step has two products of a matrix and a vector, which leave 32-bit sums of all gates
in the order of schedules/lstm_units.py. In LiteRT's arithmetic of int8, functions
of vectors of units follow; otherwise units are updated one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.attributes.recurrent import LstmAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel
from firmwright.ops.lstm import Index, UnitBuilder, copy_state, sum_dtype
from firmwright.ops.lstm_layer import (
    GATES,
    HIDDEN_STATE,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    batch_time_inputs,
    folded_biases,
    gate_factors,
    hidden_factor,
    uses_tflm_arithmetic,
    weights_at,
)
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.lstm_units import (
    GATE_ROWS,
    UnitKernels,
    UnitVectors,
    call_gate_function,
)
from firmwright.schedules.rvv.lstm_units import (
    CELL_KERNEL,
    GATE_KERNEL,
    HIDDEN_KERNEL,
)
from firmwright.schedules.rvv.sums import VectorSums


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    fits = op.input(0).dtype in (INT8, INT16) and sum_dtype(op) == INT32
    return (NO_CONFIG,) if fits else ()


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of batch `n`: row `row` of the output, at `at`, and the sums of gates."""

    n: ArithExpr
    at: Index
    row: ArithExpr
    totals: Sequence[tir.Buffer]


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    batch, time, _ = batch_time_inputs(op)
    units = op.input(HIDDEN_STATE).shape[1]
    hidden = b.outputs[1]
    products = [_product(op, b, first) for first in (INPUT_WEIGHTS, RECURRENT_WEIGHTS)]
    shape = (len(GATES), units)
    totals = [b.allocate(name, INT32, shape) for name in ("x_sums", "sums")]
    has_vectors = op.input(0).dtype == INT8 and not uses_tflm_arithmetic(op)
    if has_vectors and hidden_factor(op)[1] < 0:
        gates = b.allocate("gates", INT16, shape)
        activate = partial(call_gate_function, "rvv", b)
        kernels = UnitKernels(CELL_KERNEL, HIDDEN_KERNEL, activate)
        update = _AllUnits(UnitVectors(op, b, gates, kernels)).update
    else:
        update = _SingleUnits(op, b).update
    copy_state(op, b)
    with b.for_("n", batch) as n, b.for_("t", time) as t:
        is_time_major = op.attributes(LstmAttrs).time_major
        at = [t, n] if is_time_major else [n, t]
        row = t * batch + n if is_time_major else n * time + t
        sources: list[tuple[tir.Buffer, Index]] = [(b.input(0), at), (hidden, [n])]
        for product, (x, place), total in zip(products, sources, totals, strict=True):
            product.emit(b, x, place, total)
        update(_Step(n, at, row, totals))


def _product(op: OpCall, b: Kernel, first: int) -> VectorSums:
    """Return the product with all gates' weights, which begin at input `first`."""
    weights: list[Array] = []
    biases: list[Array] = []
    for gate in GATE_ROWS:
        weights.append(weights_at(op, first + gate))
        biases.append(folded_biases(op, gate)[first == RECURRENT_WEIGHTS])
    flat, bias = np.concatenate(weights), np.concatenate(biases)
    return VectorSums.plan(b, flat, bias, op.input(0).dtype)


@dataclass(frozen=True, slots=True)
class _SingleUnits:
    """Updates units one by one."""

    op: OpCall
    b: Kernel

    def update(self, step: _Step) -> None:
        b, layer = self.b, UnitBuilder(self.op, self.b)
        with b.for_("u", self.op.input(HIDDEN_STATE).shape[1]) as u:
            gates = []
            for gate in range(len(GATES)):
                row = GATE_ROWS.index(gate)
                of_x, of_hidden = (b.load(total, [row, u]) for total in step.totals)
                x_steps = layer.input_steps(of_x, gate)
                gates.append(layer.gate_steps(of_hidden, gate, x_steps))
            layer.finish(gates, [step.n, u], [*step.at, u])
            b.store(b.outputs[1], [step.n, u], b.load(b.y, [*step.at, u]))


@dataclass(frozen=True, slots=True)
class _AllUnits:
    """Updates all units at a time."""

    vectors: UnitVectors

    def update(self, step: _Step) -> None:
        vectors = self.vectors
        op, b, units = vectors.op, vectors.b, vectors.units
        for place, gate in enumerate(GATE_ROWS):
            sums = [b.pointer(total, place * units, units) for total in step.totals]
            factors = [number for pair in gate_factors(op, gate) for number in pair]
            y = vectors.gate(place, access="w")
            b.evaluate(GATE_KERNEL, [*sums, y, *factors, units])
        vectors.emit(step.n, step.row)
        source = b.pointer(b.y, step.row * units, units)
        to = b.pointer(b.outputs[1], step.n * units, units, "w")
        b.evaluate("rvv_copy_int8", [to, source, units])


SCHEDULES = (Schedule("rvv.lstm.gates", "lstm", frozenset({"rvv"}), _configs, _build),)
