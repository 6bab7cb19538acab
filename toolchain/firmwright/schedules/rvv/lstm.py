"""lstm of integers on RISC-V vectors: the gates of all units in lanes.

A step has two products of a matrix and a vector, which leave 32-bit sums of all gates
in the order [gate, unit], the cell gate last. In LiteRT's arithmetic of int8, functions
of vectors of units follow; otherwise units are updated one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.attributes.recurrent import LstmAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.gate_functions import GATE_BITS, GateFunction
from firmwright.ops.kernel import Kernel
from firmwright.ops.lstm import Index, UnitBuilder, copy_state, sum_dtype
from firmwright.ops.lstm_layer import (
    GATES,
    HIDDEN_STATE,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    batch_time_inputs,
    cell_bits,
    cell_clip,
    folded_biases,
    gate_factors,
    hidden_factor,
    uses_tflm_arithmetic,
    weights_at,
)
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.helium.lstm_units import FRACTION_BITS
from firmwright.schedules.rvv.lstm_units import (
    CELL_KERNEL,
    GATE_KERNEL,
    HIDDEN_KERNEL,
)
from firmwright.schedules.rvv.sigmoid16 import gate_function_name
from firmwright.schedules.rvv.sums import VectorSums

_ORDER = (0, 1, 3, 2)
"""The gates in the order of rows: input, forget, output, cell."""


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
        update = _UnitVectors(op, b, b.allocate("gates", INT16, shape)).update
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
    for gate in _ORDER:
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
                row = _ORDER.index(gate)
                of_x, of_hidden = (b.load(total, [row, u]) for total in step.totals)
                x_steps = layer.input_steps(of_x, gate)
                gates.append(layer.gate_steps(of_hidden, gate, x_steps))
            layer.finish(gates, [step.n, u], [*step.at, u])
            b.store(b.outputs[1], [step.n, u], b.load(b.y, [*step.at, u]))


@dataclass(frozen=True, slots=True)
class _UnitVectors:
    """Updates all units at a time, with the functions of `lstm_units`."""

    op: OpCall
    b: Kernel
    gates: tir.Buffer

    @property
    def units(self) -> int:
        return self.gates.shape[1]

    def update(self, step: _Step) -> None:
        op, b, units = self.op, self.b, self.units
        first = step.n * units
        for place, gate in enumerate(_ORDER):
            sums = [b.pointer(total, place * units, units) for total in step.totals]
            factors = [number for pair in gate_factors(op, gate) for number in pair]
            y = self._gate(place, access="w")
            b.evaluate(GATE_KERNEL, [*sums, y, *factors, units])
        i, f, o, g = (self._gate(place) for place in range(len(_ORDER)))
        logistic = GateFunction(GATE_BITS, is_tanh=False)
        self._activate(logistic, self._gate(0, 3, "w"), self._gate(0, 3))
        tanh_of_gate = GateFunction(GATE_BITS, is_tanh=True)
        self._activate(tanh_of_gate, self._gate(3, access="w"), g)
        limit = int(cell_clip(op))
        low, high = (-limit, limit) if limit else (INT16.min, INT16.max)
        cells = b.pointer(b.outputs[2], first, units, "rw")
        shift = -FRACTION_BITS - cell_bits(op)
        b.evaluate(CELL_KERNEL, [cells, i, f, g, shift, low, high, units])
        of_batch = b.pointer(b.outputs[2], first, units)
        tanh_of_cell = GateFunction(cell_bits(op), is_tanh=True)
        self._activate(tanh_of_cell, self._gate(3, access="w"), of_batch)
        zero_point = per_tensor_quant(op.input(HIDDEN_STATE)).zero_point
        y = b.pointer(b.y, step.row * units, units, "w")
        b.evaluate(HIDDEN_KERNEL, [o, g, y, *hidden_factor(op), zero_point, units])
        source = b.pointer(b.y, step.row * units, units)
        to = b.pointer(b.outputs[1], first, units, "w")
        b.evaluate("rvv_copy_int8", [to, source, units])

    def _gate(
        self, place: int, count: int = 1, access: tir.AccessMode = "r"
    ) -> tir.AccessPtr:
        """Return a pointer to the values of `count` gates, in the order of rows."""
        units = self.units
        return self.b.pointer(self.gates, place * units, count * units, access)

    def _activate(
        self, function: GateFunction, y: tir.AccessPtr, x: tir.AccessPtr
    ) -> None:
        self.b.evaluate(gate_function_name(function), [y, x, x.extent])


SCHEDULES = (Schedule("rvv.lstm.gates", "lstm", frozenset({"rvv"}), _configs, _build),)
