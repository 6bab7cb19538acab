"""add and sub of int8 with one element for each channel."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum
from firmwright.ops.kernel import Kernel
from firmwright.ops.rescaled_sum import linear_sum, rescaled_sum
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.channel_rows import channel_input, compute_channels

_SIGNS = {"add": 1, "sub": -1}


def _configs(sign: int, op: OpCall) -> Sequence[ScheduleConfig]:
    has_channels = op.input(0).dtype == INT8 and channel_input(op) is not None
    return (NO_CONFIG,) if has_channels and linear_sum(op, sign) is not None else ()


def _build(sign: int, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    index, linear = channel_input(op), linear_sum(op, sign)
    assert index is not None
    assert linear is not None
    # Loaded as in the default loops: saturation is one instruction if ranges are open.
    factors = linear.c, linear.a, linear.b
    table = b.constant("factors", np.array(factors), INT32)
    first, *others = (b.let("factor", b.load(table, [i])) for i in range(len(factors)))
    output = rescaled_sum(op).output

    def bind(element: ArithExpr) -> Callable[[ArithExpr], ArithExpr]:
        start = b.let("start", element * others[index] + first)

        def compute(x: ArithExpr) -> ArithExpr:
            y = b.let("total", x * others[1 - index] + start) >> linear.shift
            return minimum(maximum(y, output.clamp_min), output.clamp_max).cast(INT8)

        return compute

    compute_channels(b, index, bind)


def _schedules() -> Iterator[Schedule[ScheduleConfig]]:
    for op, sign in _SIGNS.items():
        yield Schedule(
            f"scalar.{op}.channels",
            op,
            frozenset({"offsets"}),
            partial(_configs, sign),
            partial(_build, sign),
        )


SCHEDULES = tuple(_schedules())
