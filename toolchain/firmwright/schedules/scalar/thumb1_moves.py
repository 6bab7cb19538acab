"""Data movement operators on Armv6-M: runs of words, four at a time."""

from firmwright.base.dtypes import UINT32, Array
from firmwright.base.text_sections import read_sections
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.ops.strided_copy import MOVES, CopyAxis
from firmwright.schedules.schedule_factories import thumb1_schedule

_TIME_MAX = 0.9
_C = read_sections(__file__)
_Place = tuple[tir.Buffer, ArithExpr]


def _copy(b: Kernel, target: _Place, source: _Place, axis: CopyAxis) -> None:
    y = b.pointer(*target, axis.extent, "w")
    x = b.pointer(*source, axis.extent)
    b.evaluate("thumb1_copy_words", [y, x, axis.extent])


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    b.copy_words = _copy
    op_table()[op.op].lower(op, b)


def _meaning(y: Array, x: Array, count: int) -> Array:
    return x[:count]


INTRINSICS = (
    Intrinsic(
        "thumb1_copy_words",
        (
            *pointers(UINT32, "w", y=1),
            *pointers(UINT32, x=1),
            *immediates("count"),
        ),
        _meaning,
        _C["copy_portable"],
        "Copies `count` words, in ascending order.",
        requires="thumb1",
        text={"gnu": _C["copy"]},
        count=lambda args: 5 + args[-1] // 4 * 4 + args[-1] % 4 * 3,
    ),
)
SCHEDULES = tuple(
    thumb1_schedule(
        f"thumb1.{op}.words",
        op,
        configs=lambda op: (NO_CONFIG,),
        build=_build,
        time_max=_TIME_MAX,
    )
    for op in MOVES
)
