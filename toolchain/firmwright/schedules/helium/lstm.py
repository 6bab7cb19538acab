"""lstm of int8 on Helium: products of all gates, then functions of vectors of units.

The rows of weights are those of gates (schedules/lstm_units.py). At each time,

    x_steps = W x
    gates   = x_steps + R hidden
"""

from dataclasses import replace
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, UINT16, Array
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.attributes.recurrent import LstmAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.gate_functions import GateFunction
from firmwright.ops.kernel import Kernel
from firmwright.ops.logistic_tanh import sigmoid_table
from firmwright.ops.lstm import copy_state
from firmwright.ops.lstm_layer import (
    HIDDEN_STATE,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    batch_time_inputs,
    cell_bits,
    folded_biases,
    gate_factors,
    hidden_factor,
    sigmoid_steps,
    uses_tflm_arithmetic,
    weights_at,
)
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.block_gemm import BlockGemm
from firmwright.schedules.helium.dot_product_kernels import DotProductKernel
from firmwright.schedules.helium.im2col import copy_bytes
from firmwright.schedules.helium.lstm_gates import GATES_OF_HIDDEN, GATES_OF_X
from firmwright.schedules.helium.lstm_units import HIDDEN_KERNEL, cell_kernel
from firmwright.schedules.lstm_units import (
    GATE_ROWS,
    UnitKernels,
    UnitVectors,
    call_gate_function,
)
from firmwright.schedules.schedule_factories import helium_schedule

_ROWS = GATES_OF_X.channels


def _configs(op: OpCall) -> tuple[ScheduleConfig, ...]:
    if op.input(0).dtype != INT8 or hidden_factor(op)[1] >= 0:
        return ()
    # With fewer bits, the product of two gates is saturated before it is added.
    return (NO_CONFIG,) if cell_bits(op) >= 0 else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    batch, time, inputs = batch_time_inputs(op)
    units = op.input(HIDDEN_STATE).shape[1]
    _, hidden, _ = b.outputs
    shape = (divide_up(len(GATE_ROWS) * units, _ROWS), _ROWS)
    x_steps, gates = (b.allocate(name, INT16, shape) for name in ("x_steps", "gates"))
    of_x = _product(op, b, GATES_OF_X, x_steps, None)
    of_hidden = _product(op, b, GATES_OF_HIDDEN, gates, x_steps)
    units_of_step = UnitVectors(op, b, gates, _unit_kernels(op, b))
    copy_state(op, b)
    with b.for_("n", batch) as n, b.for_("t", time) as t:
        is_time_major = op.attributes(LstmAttrs).time_major
        row = t * batch + n if is_time_major else n * time + t
        zero = n * 0
        of_x.emit(b, [b.pointer(b.input(0), row * inputs, inputs)], [zero])
        of_hidden.emit(b, [b.pointer(hidden, n * units, units)], [zero])
        units_of_step.emit(n, row)
        copy_bytes(b, hidden, n * units, b.y, row * units, units)


def _product(
    op: OpCall,
    b: Kernel,
    microkernel: DotProductKernel,
    to: tir.Buffer,
    x_steps: tir.Buffer | None,
) -> BlockGemm:
    """Return the product of all gates with x or, given `x_steps`, the hidden values."""
    is_recurrent = x_steps is not None
    first = RECURRENT_WEIGHTS if is_recurrent else INPUT_WEIGHTS
    weights, columns = [], []
    for gate in GATE_ROWS:
        matrix = weights_at(op, first + gate)
        bias = folded_biases(op, gate)[is_recurrent]
        factor = gate_factors(op, gate)[is_recurrent]
        weights.append(matrix)
        columns.append([bias, *(np.full(len(matrix), part) for part in factor)])
    rows = to.elements
    filled = _fill(np.concatenate(weights), rows)
    table = _fill(np.concatenate([np.stack(each, axis=1) for each in columns]), rows)
    parameters = microkernel.blocks(rows).table(*table.T)
    given: dict[str, Array | tir.Buffer] = {"parameters": parameters}
    if x_steps is not None:
        given["x_steps"] = x_steps
    most = max(gate_factors(op, gate)[is_recurrent][1] for gate in GATE_ROWS)
    settings = [most, _ROWS]
    if is_recurrent:
        settings.insert(0, int(uses_tflm_arithmetic(op)))
    return replace(microkernel.gemm(b, filled, given, settings), output=to)


def _fill(rows: Array, count: int) -> Array:
    """Return rows with rows of zeros, `count` in all."""
    return np.pad(rows, ((0, count - len(rows)), (0, 0)))


def _unit_kernels(op: OpCall, b: Kernel) -> UnitKernels:
    """Return the micro-kernels of units; TFLM's functions have a table."""
    twice = uses_tflm_arithmetic(op)
    activate = partial(call_gate_function, "mve", b)
    if twice:
        table = b.constant("sigmoid", sigmoid_table(), UINT16)
        activate = partial(_look_up, b, table)
    return UnitKernels(cell_kernel(twice=twice), HIDDEN_KERNEL, activate, twice)


def _look_up(
    b: Kernel,
    table: tir.Buffer,
    function: GateFunction,
    y: tir.AccessPtr,
    x: tir.AccessPtr,
) -> None:
    places = [y, x, b.pointer(table, 0, table.elements)]
    scale = sigmoid_steps(function.integer_bits)
    name = "tanh" if function.is_tanh else "logistic"
    b.evaluate(f"mve_{name}_int16", [*places, *scale, x.extent])


SCHEDULES = (
    helium_schedule("helium.lstm.gates", "lstm", configs=_configs, build=_build),
)
