"""Functions of one int8 on Helium: a gather looks up sixteen bytes in a table of 256.

The table has the results in the order of unsigned bytes, so that the stored inputs are
the offsets of the gather.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import INT8, UINT8, Array
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import ElementLoop, helium_text
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES

_ENTRIES = 256
_LANES = 16
_OPS = (
    "byte_table",
    "elu",
    "gelu",
    "hard_swish",
    "leaky_relu",
    "logistic",
    "relu",
    "relu6",
    "rsqrt",
    "tanh",
)


def _look_up(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
    gather = MVE_MEMORY.rows["vldrbq_gather_offset_u8"]
    return k(gather, k.pointer("table", UINT8)[0], lanes[0])


LOOKUP_LOOP = ElementLoop(
    (PointerOperand("x", UINT8),), PointerOperand("y", UINT8, "w"), UINT8, _look_up
)


def _meaning(y: Array, x: Array, table: Array, count: int) -> Array:
    index = np.asarray(x)[: int(count)].astype(np.int64)
    results: Array = np.take_along_axis(np.asarray(table), index, 0)
    return results


LOOKUP = Intrinsic(
    "mve_look_up_bytes",
    (
        *pointers(UINT8, "w", y=1),
        *pointers(UINT8, x=1, table=_ENTRIES),
        *immediates("count"),
    ),
    _meaning,
    "for (int32_t i = 0; i < count; ++i) {\n    y[i] = table[x[i]];\n}",
    "Looks up `count` bytes in a table.",
    requires="mve",
    text={"gnu": helium_text(LOOKUP_LOOP)},
    definitions=(KEEP_STORES,),
    count=lambda args: 12 + divide_up(args[-1], _LANES) * 5,
)
INTRINSICS = (LOOKUP,)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    x, y = op.input(0), op.output
    fits = x.dtype == y.dtype == INT8 and x.shape == y.shape
    return (NO_CONFIG,) if fits else ()


def _table(op: OpCall) -> Array:
    """Return the results of all bytes, in the order of unsigned ones."""
    values = np.arange(_ENTRIES).astype(np.uint8).view(np.int8)
    x, y = (replace(kind, shape=(_ENTRIES,)) for kind in (op.input(0), op.output))
    call = replace(op, inputs=(x, *op.inputs[1:]), outputs=(y,))
    others = [constant.array() for constant in op.constants if constant is not None]
    (results,) = op_table()[op.op].reference(call, [values, *others])
    return np.asarray(results).astype(np.int8).view(np.uint8)


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    table, count = b.constant("table", _table(op), UINT8), op.output.elements
    ends: list[tir.AccessPtr] = []
    for buffer in (b.y, b.input(0)):
        access: tir.AccessMode = "w" if buffer == b.y else "r"
        run = b.view("run", buffer, 0, (count,), dtype=UINT8, access=access)
        ends.append(b.pointer(run, 0, count, access))
    b.evaluate(LOOKUP.name, [*ends, b.pointer(table, 0, _ENTRIES), count])


SCHEDULES = tuple(
    Schedule(f"helium.{op}.bytes", op, frozenset({"mve"}), _configs, _build)
    for op in _OPS
)
