"""logistic and tanh of int16 on Helium: four values gather their table entries."""

import numpy as np

from firmwright.base.dtypes import INT16, UINT16, Array
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops.kernel import Kernel
from firmwright.ops.logistic_tanh import (
    lookup_sigmoid_array,
    sigmoid_table,
    step_multiplier,
)
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.schedule_factories import for_inputs_of, helium_schedule

_C = read_sections(__file__)
_NUMBERS = {
    "logistic": {
        "bits": 9,
        "most": 0x1FFFC00,
        "above": 512,
        "below": 0x20001FF,
        "right": 10,
    },
    "tanh": {
        "bits": 8,
        "most": 0xFFFF00,
        "above": 128 - (1 << 23),
        "below": 0x80007F,
        "right": 8,
    },
}


def _lookup(op: str) -> Intrinsic:
    def meaning(
        y: Array, x: Array, table: Array, multiplier: Array, shift: Array, count: Array
    ) -> Array:
        raised = np.asarray(x)[:count].astype(np.int64) * multiplier + (1 << shift >> 1)
        return lookup_sigmoid_array(raised >> shift, op == "tanh").astype(np.int16)

    return Intrinsic(
        f"mve_{op}_int16",
        (
            *pointers(INT16, "w", y=1),
            *pointers(INT16, x=1),
            *pointers(UINT16, table=257),
            *immediates("multiplier", "shift", "count"),
        ),
        meaning,
        fill_text(_C["portable"], **_NUMBERS[op]),
        f"{op} of `count` values.",
        requires="mve",
        text={"gnu": fill_text(_C["text"], **_NUMBERS[op])},
        definitions=(KEEP_STORES,),
        count=lambda args: 20 + divide_up(args[5], 4) * 22,
    )


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    table = b.constant("sigmoid", sigmoid_table(), UINT16)
    count = op.output.elements
    x = b.pointer(b.input(0), 0, count)
    y = b.pointer(b.y, 0, count, "w")
    places = [y, x, b.pointer(table, 0, table.elements)]
    b.evaluate(f"mve_{op.op}_int16", [*places, *step_multiplier(op), count])


INTRINSICS = tuple(map(_lookup, _NUMBERS))
SCHEDULES = tuple(
    helium_schedule(
        f"helium.{op}.int16", op, configs=for_inputs_of(INT16), build=_build
    )
    for op in _NUMBERS
)
