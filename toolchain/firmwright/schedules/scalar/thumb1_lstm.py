"""lstm of int8 on Armv6-M: the gates of two units are the eight rows of a tile."""

from dataclasses import dataclass
from functools import partial

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.lstm import Index, UnitBuilder, emit_steps
from firmwright.ops.lstm_layer import (
    GATES,
    HIDDEN_STATE,
    INPUT_WEIGHTS,
    RECURRENT_WEIGHTS,
    rows_of_units,
)
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.computed_channels import computed_channels, raw_layer
from firmwright.schedules.gemm import Correction, GroupOperands
from firmwright.schedules.scalar.gemm_tiles import stored_offset
from firmwright.schedules.scalar.thumb1_conv2d_fully_connected import (
    ROWS,
    WEIGHT_OFFSET,
    Thumb1Tile,
)
from firmwright.schedules.schedule_factories import for_inputs_of, thumb1_schedule

# Both products of a group are computed before its units are updated. Sums are in
# memory, so a loop over the units of a group has one copy of their code:
#
#     rows of the weights    | i f g o | i f g o | i f g o | i f g o | ...
#     units                  |    0    |    1    |    2    |    3    |
#     groups                 |         0         |         1         |

_UNITS = ROWS // len(GATES)
"""The units of a group."""


@dataclass(frozen=True, slots=True)
class _GateProduct:
    """The sums of the gates of a group of units: weights times a column."""

    b: Kernel
    tile: Thumb1Tile
    weights: tir.Buffer
    bias: tir.Buffer
    column: tir.Buffer
    sums: tir.Buffer
    correct: Correction

    def multiply(self, group: ArithExpr) -> None:
        size = ROWS * self.tile.taps
        operands = GroupOperands(
            self.weights, group * size, size, self.bias, group * ROWS, ROWS
        )
        self.tile.multiply(self.b, operands, self.column, self.sums)

    def sum_of(self, place: ArithExpr, gate: int) -> ArithExpr:
        """Return the sum of a gate of a unit of the group that was multiplied last."""
        total = self.b.load(self.sums, [place * len(GATES) + gate])
        return self.correct(total, gate, 0)


def _gate_product(
    op: OpCall, b: Kernel, first: int, x: tir.Buffer, row: ArithExpr
) -> _GateProduct:
    """Return the product of row `row` of `x` and the weights from input `first` on."""
    layer = raw_layer(*rows_of_units(op, first))
    rows = computed_channels(b, layer, lambda computed: ROWS)
    tile = Thumb1Tile(rows.taps, stored_offset(rows, WEIGHT_OFFSET))
    view = b.view("column", x, row * rows.taps, (1, rows.taps))
    column, correct = tile.prepare(b, view)
    assert correct is not None  # weights are stored with an offset
    layout = tile.contract.layout
    return _GateProduct(
        b=b,
        tile=tile,
        weights=b.constant("weights", layout.pack(rows.weights), layout.element),
        bias=b.constant("bias", rows.bias, INT32),
        column=column,
        sums=b.allocate("sums", INT32, (ROWS,)),
        correct=correct,
    )


def _emit_units(op: OpCall, b: Kernel, at: Index, n: ArithExpr) -> None:
    """Emit the units of batch `n` for row `at` of the input, a group at a time."""
    layer, x = UnitBuilder(op, b), b.input(0)
    units = op.input(HIDDEN_STATE).shape[1]
    of_x = _gate_product(op, b, INPUT_WEIGHTS, x, at[0] * x.shape[1] + at[1])
    of_hidden = _gate_product(op, b, RECURRENT_WEIGHTS, b.outputs[1], n)
    with Nest() as enter:
        group = enter(b.for_("group", divide_up(units, _UNITS)))
        of_x.multiply(group)
        of_hidden.multiply(group)
        place = enter(b.for_("place", _UNITS))
        unit = b.let("unit", group * _UNITS + place)
        if units % _UNITS:
            enter(b.if_(unit < units))
        steps: list[ArithExpr] = []
        for gate in range(len(GATES)):
            x_steps = layer.input_steps(of_x.sum_of(place, gate), gate)
            acc = of_hidden.sum_of(place, gate)
            steps.append(layer.gate_steps(acc, gate, x_steps))
        layer.finish(steps, [n, unit], [*at, unit])


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    emit_steps(op, b, partial(_emit_units, op, b))


SCHEDULES = (
    thumb1_schedule(
        "thumb1.lstm.groups", "lstm", configs=for_inputs_of(INT8), build=_build
    ),
)
