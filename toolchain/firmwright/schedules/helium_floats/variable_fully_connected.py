"""variable_fully_connected of floats on Helium, as a product of two matrices.

Vectors are of outputs, whose weights are `depth` elements apart, or of rows of the
input if there is one output.
"""

from collections.abc import Sequence

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.helium_floats.products import HELIUM_RUNS
from firmwright.schedules.schedule_factories import helium_float_schedule


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    is_plain = op.attributes(ActivationAttrs).activation == "none"
    fits = is_plain and op.input(0).dtype == op.input(1).dtype == FLOAT32
    return (NO_CONFIG,) if fits else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    outputs, depth = op.input(1).shape
    rows = op.output.elements // outputs
    name = HELIUM_RUNS.name(FLOAT32)
    x, w = (b.pointer(b.input(n), 0, op.input(n).elements) for n in (0, 1))

    def emit(row: ArithExpr | int, count: int) -> None:
        y = b.pointer(b.y, row * outputs, count * outputs, "rw")
        factors = b.pointer(b.input(0), row * depth, count * depth)
        numbers = [outputs, depth, 1, 1, depth, 0, count, depth, outputs]
        b.evaluate(name, [y, factors, w, *numbers])

    if outputs > 1:
        HELIUM_RUNS.in_row_blocks(b, rows, outputs, emit)
    else:
        numbers = [0, 0, 1, 1, depth, 0, 1, depth, rows]
        b.evaluate(name, [b.pointer(b.y, 0, rows, "rw"), w, x, *numbers])
    if op.has_input(2):
        y = b.view("sums", b.y, 0, (rows, outputs), access="rw")
        bias = b.view("bias", b.input(2), 0, (outputs,))
        with b.loops("i j", (rows, outputs)) as (i, j):
            b.store(y, [i, j], b.load(y, [i, j]) + b.load(bias, [j]))


SCHEDULES = (
    helium_float_schedule(
        "helium.variable_fully_connected.products",
        "variable_fully_connected",
        configs=_configs,
        build=_build,
    ),
)
