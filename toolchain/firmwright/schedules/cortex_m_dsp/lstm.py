"""lstm of int8 on the DSP extension: both products of a step by the int8 GEMM."""

from collections.abc import Sequence
from dataclasses import dataclass

from firmwright.base.dtypes import INT8, INT16
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.attributes.recurrent import LstmAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate, minimum
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.lstm import UnitBuilder, copy_state
from firmwright.ops.lstm_layer import (
    GATES,
    HIDDEN_STATE,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    batch_time_inputs,
    rows_of_units,
)
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.cortex_m_dsp.vector_product import (
    PairProduct,
    VectorProduct,
)
from firmwright.schedules.schedule_factories import dsp_schedule

# A step copies x and the hidden values to columns padded to words, if needed,
# multiplies each by the weights of all gates, and then updates the units. Rows of
# weights are in the order [unit, gate], so that the gate of each of a block's eight
# rows is known; the units are even. Two steps may share the loads of the weights of x:
# these have twice as many columns. If the steps are odd, the last two are a pair, of
# which the first is not used.


@dataclass(frozen=True, slots=True)
class LstmConfig(ScheduleConfig):
    """The configuration of a layer: the steps whose products with x are together."""

    steps: int = 1


def _configs(op: OpCall) -> Sequence[LstmConfig]:
    if op.input(0).dtype != INT8:
        return ()
    _, time, _ = batch_time_inputs(op)
    return (LstmConfig(2), LstmConfig()) if time > 1 else (LstmConfig(),)


def _build(op: OpCall, config: LstmConfig, b: Kernel) -> None:
    batch, time, _ = batch_time_inputs(op)
    units = op.input(HIDDEN_STATE).shape[1]
    is_time_major = op.attributes(LstmAttrs).time_major
    hidden, together = b.outputs[1], config.steps
    gates = _Gates(op, b, together)
    copy_state(op, b)
    with Nest() as enter:
        n = enter(b.for_("n", batch))
        block = enter(b.for_("t", divide_up(time, together)))
        first = t = block * together
        row = ArithExpr(immediate(0, INDEX))
        if time % together:
            first = b.let("first", minimum(first, time - together))
        gates.multiply_x(n, first)
        if together > 1:
            row = enter(b.for_("step", together))
            t = b.let("time", first + row)
            if time % together:
                enter(b.if_(t >= block * together))
        at = [t, n] if is_time_major else [n, t]
        gates.multiply_hidden(n, row)
        with b.for_("u", units) as u:
            place = u * len(GATES)
            sums = [b.load_i32(gates.sums, [place + i]) for i in range(len(GATES))]
            gates.layer.finish(sums, [n, u], [*at, u])
            b.store(hidden, [n, u], b.load(b.y, [*at, u]))


class _Gates:
    """Emits the sums of all gates, in int16 steps, for some steps `together`."""

    def __init__(self, op: OpCall, b: Kernel, together: int) -> None:
        self._op, self._b = op, b
        self.layer = UnitBuilder(op, b)
        units = op.input(HIDDEN_STATE).shape[1]
        rows = len(GATES) * (units + units % 2)
        self._x_steps = b.allocate("x_steps", INT16, (together, rows))
        self.sums = b.allocate("steps", INT16, (rows,))
        self._row = ArithExpr(immediate(0, INDEX))
        of_x, of_hidden = (
            rows_of_units(op, first) for first in (INPUT_WEIGHTS, RECURRENT_WEIGHTS)
        )
        self._of_x: PairProduct | VectorProduct
        if together > 1:
            self._of_x = PairProduct(b, b.input(0), *of_x, self._convert_x)
        else:
            self._of_x = VectorProduct(b, *of_x, self._convert_x)
        self._of_hidden = VectorProduct(b, *of_hidden, self._convert_hidden)

    def multiply_x(self, n: ArithExpr, t: ArithExpr) -> None:
        """Compute the products of x of batch `n` from time `t` on."""
        attrs, x = self._op.attributes(LstmAttrs), self._b.input(0)
        batch, time, inputs = batch_time_inputs(self._op)
        if isinstance(self._of_x, VectorProduct):
            at = [t, n] if attrs.time_major else [n, t]
            self._of_x.emit(self._b, x, at, self._x_steps)
            return
        start = t * batch + n if attrs.time_major else n * time + t
        distance = batch if attrs.time_major else 1
        offsets = [(start + distance * step) * inputs for step in range(2)]
        self._of_x.emit(self._b, offsets, self._x_steps)

    def multiply_hidden(self, n: ArithExpr, row: ArithExpr) -> None:
        """Compute the sums of gates of batch `n`, with the products `row` of x."""
        self._row = row
        self._of_hidden.emit(self._b, self._b.outputs[1], [n], self.sums)

    def _convert_x(self, acc: ArithExpr, index: ArithExpr, place: int) -> ArithExpr:
        return self.layer.input_steps(acc, place % len(GATES)).cast(INT16)

    def _convert_hidden(
        self, acc: ArithExpr, index: ArithExpr, place: int
    ) -> ArithExpr:
        x_steps = self._b.load_i32(self._x_steps, [self._row, index])
        return self.layer.gate_steps(acc, place % len(GATES), x_steps).cast(INT16)


SCHEDULES = (dsp_schedule("dsp.lstm.steps", "lstm", configs=_configs, build=_build),)
