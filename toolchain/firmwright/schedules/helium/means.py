"""mean and sum of int8 channels on Helium: sums in lanes, as those of a row of a pool.

Four sums at a time become outputs, if their requantization has no left shift. Others do
as in the default loops.
"""

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.kernel import Kernel
from firmwright.ops.reductions import (
    finish_sums,
    mean_requantization,
    reduced_count,
)
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules.channel_sums import integer_configs
from firmwright.schedules.helium import requantize_values, vector_requantize
from firmwright.schedules.helium.pool2d import ADD_ROW, take_rows


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    x = op.input(0)
    channels = x.shape[-1]
    pixels = x.elements // channels
    sums = b.allocate("sums", INT32, (channels,), 4)
    with b.for_("c", channels) as c:
        b.store(sums, [c], 0)
    values = b.pointer(b.input(0), 0, x.elements)
    window = (1, pixels, x.elements, channels)
    b.evaluate(
        ADD_ROW, [b.pointer(sums, 0, channels, "rw"), values, *window, 0, channels]
    )
    params = mean_requantization(op)
    if op.output.dtype != INT8 or not vector_requantize.supports_requantize(params):
        finish_sums(op, b, sums, b.y)
        return
    offset = -per_tensor_quant(x).zero_point * reduced_count(op)
    numbers = requantize_values.settings(params, offset)
    y, totals = b.pointer(b.y, 0, channels, "w"), b.pointer(sums, 0, channels)
    b.evaluate(requantize_values.name(INT32), [y, totals, *numbers, channels])


SCHEDULES = tuple(
    Schedule(
        f"helium.{name}.channels",
        name,
        frozenset({"mve"}),
        integer_configs,
        _build,
        fold=take_rows,
    )
    for name in ("mean", "sum")
)
