"""lstm of int8 on the DSP extension: both products of a step by the int8 GEMM."""

import numpy as np

from firmwright.base.dtypes import INT8, INT16, Array
from firmwright.ir import tir
from firmwright.ir.graph.attributes.recurrent import LstmAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel
from firmwright.ops.lstm import UnitBuilder, copy_state
from firmwright.ops.lstm_layer import (
    GATES,
    HIDDEN_STATE,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    batch_time_inputs,
    folded_biases,
    weights_at,
)
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.cortex_m_dsp.vector_product import VectorProduct
from firmwright.schedules.schedule_factories import dsp_schedule, for_inputs_of

# A step copies x and the hidden values to columns padded to words, if needed,
# multiplies each by the weights of all gates, and then updates the units. Rows of
# weights are in the order [unit, gate], so that the gate of each of a block's eight
# rows is known; the units are even.


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    batch, time, _ = batch_time_inputs(op)
    units = op.input(HIDDEN_STATE).shape[1]
    layer = UnitBuilder(op, b)
    hidden = b.outputs[1]
    rows = len(GATES) * (units + units % 2)
    x_steps, steps = (b.allocate(name, INT16, (rows,)) for name in ("x_steps", "steps"))
    of_x = _product(op, b, layer, INPUT_WEIGHTS, None)
    of_hidden = _product(op, b, layer, RECURRENT_WEIGHTS, x_steps)
    copy_state(op, b)
    with b.for_("n", batch) as n, b.for_("t", time) as t:
        at = [t, n] if op.attributes(LstmAttrs).time_major else [n, t]
        of_x.emit(b, b.input(0), at, x_steps)
        of_hidden.emit(b, hidden, [n], steps)
        with b.for_("u", units) as u:
            first = u * len(GATES)
            gates = [b.load_i32(steps, [first + i]) for i in range(len(GATES))]
            layer.finish(gates, [n, u], [*at, u])
            b.store(hidden, [n, u], b.load(b.y, [*at, u]))


def _product(
    op: OpCall, b: Kernel, layer: UnitBuilder, first: int, x_steps: tir.Buffer | None
) -> VectorProduct:
    """Return the product with the weights of all gates, which begin at input `first`.

    It converts sums to gate steps; `x_steps` are added to those of the hidden values.
    """
    of_gates: list[Array] = []
    biases: list[Array] = []
    for gate in range(len(GATES)):
        of_gates.append(weights_at(op, first + gate))
        of_input, of_hidden = folded_biases(op, gate)
        biases.append(of_input if x_steps is None else of_hidden)
    weights = np.stack(of_gates, axis=1)
    pad = (0, len(weights) % 2), (0, 0), (0, 0)
    bias = np.pad(np.stack(biases, axis=1), pad[:2]).reshape(-1)

    def convert(acc: ArithExpr, index: ArithExpr, place: int) -> ArithExpr:
        gate = place % len(GATES)
        if x_steps is None:
            return layer.input_steps(acc, gate).cast(INT16)
        return layer.gate_steps(acc, gate, b.load_i32(x_steps, [index])).cast(INT16)

    kernel = np.pad(weights, pad).reshape(-1, weights.shape[2])
    name = "bias" if x_steps is None else "recurrent_bias"
    return VectorProduct(b, kernel, bias, convert, name)


SCHEDULES = (
    dsp_schedule("dsp.lstm.steps", "lstm", configs=for_inputs_of(INT8), build=_build),
)
