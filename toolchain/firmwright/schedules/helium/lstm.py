"""lstm of int8 on Helium: products of all gates, then functions of vectors of units.

The rows of weights are [gate, unit], with the cell gate last, so that one function
takes the sums of the three others. At each time,

    x_steps = W x
    gates   = x_steps + R hidden
    gates   = logistic(i, f, o), tanh(g)
    cells   = f cells + i g
    hidden  = o tanh(cells)
"""

from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import INT8, INT16, UINT16, Array
from firmwright.ir import tir
from firmwright.ir.graph.attributes.recurrent import LstmAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.gate_functions import GATE_BITS, GateFunction
from firmwright.ops.kernel import Kernel
from firmwright.ops.logistic_tanh import sigmoid_table
from firmwright.ops.lstm import copy_state
from firmwright.ops.lstm_layer import (
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
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.block_gemm import BlockGemm
from firmwright.schedules.helium.dot_product_kernels import DotProductKernel
from firmwright.schedules.helium.gate_functions import GateVectors
from firmwright.schedules.helium.im2col import copy_bytes
from firmwright.schedules.helium.lstm_gates import GATES_OF_HIDDEN, GATES_OF_X
from firmwright.schedules.helium.lstm_units import (
    FRACTION_BITS,
    HIDDEN_KERNEL,
    cell_kernel,
    cell_shift,
)
from firmwright.schedules.schedule_factories import helium_schedule

_ORDER = (0, 1, 3, 2)
"""The gates in the order of rows: input, forget, output, cell."""
_ROWS = GATES_OF_X.channels


def _configs(op: OpCall) -> tuple[ScheduleConfig, ...]:
    is_integer = op.input(0).dtype == INT8
    return (NO_CONFIG,) if is_integer and hidden_factor(op)[1] < 0 else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    batch, time, inputs = batch_time_inputs(op)
    units = op.input(HIDDEN_STATE).shape[1]
    _, hidden, _ = b.outputs
    shape = (-(-len(_ORDER) * units // _ROWS), _ROWS)
    x_steps, gates = (b.allocate(name, INT16, shape) for name in ("x_steps", "gates"))
    of_x = _product(op, b, GATES_OF_X, x_steps, None)
    of_hidden = _product(op, b, GATES_OF_HIDDEN, gates, x_steps)
    end = _Units(op, b, gates)
    copy_state(op, b)
    with b.for_("n", batch) as n, b.for_("t", time) as t:
        is_time_major = op.attributes(LstmAttrs).time_major
        row = t * batch + n if is_time_major else n * time + t
        zero = n * 0
        of_x.emit(b, [b.pointer(b.input(0), row * inputs, inputs)], [zero])
        of_hidden.emit(b, [b.pointer(hidden, n * units, units)], [zero])
        end.emit(n, row)
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
    for gate in _ORDER:
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
    most = max(gate_factors(op, gate)[is_recurrent][1] for gate in _ORDER)
    settings = [most, _ROWS]
    if is_recurrent:
        settings.insert(0, int(uses_tflm_arithmetic(op)))
    return replace(microkernel.gemm(b, filled, given, settings), output=to)


def _fill(rows: Array, count: int) -> Array:
    """Return rows with rows of zeros, `count` in all."""
    return np.pad(rows, ((0, count - len(rows)), (0, 0)))


class _Units:
    """Emits the functions of all units at a time, from the sums of gates."""

    def __init__(self, op: OpCall, b: Kernel, gates: tir.Buffer) -> None:
        self._op, self._b, self._gates = op, b, gates
        self._units = op.input(HIDDEN_STATE).shape[1]
        self._table: tir.Buffer | None = None
        if uses_tflm_arithmetic(op):
            self._table = b.constant("sigmoid", sigmoid_table(), UINT16)

    def emit(self, n: ArithExpr, row: ArithExpr) -> None:
        """Update the cells of batch `n`, and write row `row` of the output."""
        op, b, units = self._op, self._b, self._units
        cells = b.outputs[2]
        i, f, o, g = (self._gate(place) for place in range(len(_ORDER)))
        of_batch = b.pointer(cells, n * units, units)
        self._activate(self._gate(0, 3, "w"), self._gate(0, 3), GATE_BITS, tanh=False)
        self._activate(self._gate(3, access="w"), g, GATE_BITS, tanh=True)
        limit = int(cell_clip(op))
        low, high = (-limit, limit) if limit else (INT16.min, INT16.max)
        twice = uses_tflm_arithmetic(op)
        shift = cell_shift(-FRACTION_BITS - cell_bits(op), twice=twice)
        b.evaluate(
            cell_kernel(twice=twice),
            [
                b.pointer(cells, n * units, units, "rw"),
                i,
                f,
                g,
                shift,
                low,
                high,
                units,
            ],
        )
        self._activate(self._gate(3, access="w"), of_batch, cell_bits(op), tanh=True)
        zero_point = per_tensor_quant(op.input(HIDDEN_STATE)).zero_point
        y = b.pointer(b.y, row * units, units, "w")
        b.evaluate(HIDDEN_KERNEL, [o, g, y, *hidden_factor(op), zero_point, units])

    def _gate(
        self, place: int, count: int = 1, access: tir.AccessMode = "r"
    ) -> tir.AccessPtr:
        """Return a pointer to the values of `count` gates, in the order of rows."""
        units = self._units
        return self._b.pointer(self._gates, place * units, count * units, access)

    def _activate(
        self, y: tir.AccessPtr, x: tir.AccessPtr, bits: int, *, tanh: bool
    ) -> None:
        b, table, count = self._b, self._table, x.extent
        if table is None:
            b.evaluate(GateVectors(GateFunction(bits, tanh)).name, [y, x, count])
            return
        places = [y, x, b.pointer(table, 0, table.elements)]
        scale = [3 << (bits - GATE_BITS), 0]
        name = "tanh" if tanh else "logistic"
        b.evaluate(f"mve_{name}_int16", [*places, *scale, count])


SCHEDULES = (
    helium_schedule("helium.lstm.gates", "lstm", configs=_configs, build=_build),
)
