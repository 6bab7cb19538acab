"""lstm with the weights of all gates side by side."""

import numpy as np

from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel
from firmwright.ops.lstm import Index, UnitLoops, emit_steps
from firmwright.ops.lstm_layer import (
    GATES,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    weights_at,
)
from firmwright.ops.schedule import NO_CONFIG, Schedule

_UNROLL = 4


class _PackedLoops(UnitLoops):
    """Reads the weights of a gate's products from one table [unit, column, gate]."""

    def __init__(self, call: OpCall, b: Kernel) -> None:
        super().__init__(call, b)
        self.packed: dict[int, tir.Buffer] = {}
        for first in (INPUT_WEIGHTS, RECURRENT_WEIGHTS):
            gates = [weights_at(call, first + gate) for gate in range(len(GATES))]
            dtype = call.input(first).dtype
            self.packed[first] = b.constant("weights", np.stack(gates, axis=2), dtype)

    def accumulate(
        self, sums: tir.Buffer, x: tir.Buffer, at: Index, first: int, u: ArithExpr
    ) -> None:
        b, size = self.b, x.shape[-1]

        def add(i: ArithExpr | int) -> None:
            table = self.packed[first]
            row = [b.load(table, [u, i, gate]) for gate in range(len(GATES))]
            self.add_products(sums, b.load(x, [*at, i]), row)

        with b.unrolled("i", size - size % _UNROLL, _UNROLL) as i:
            add(i)
        for last in range(size - size % _UNROLL, size):
            add(last)


def lower_packed(op: OpCall, b: Kernel) -> None:
    emit_steps(op, b, _PackedLoops(op, b).units)


SCHEDULES = (
    Schedule(
        "scalar.lstm.packed",
        "lstm",
        frozenset(),
        lambda op: (NO_CONFIG,),
        lambda op, config, b: lower_packed(op, b),
    ),
)
