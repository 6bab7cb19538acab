"""Functions of one byte by vectors: a gather looks up bytes in a table of 256.

The table has the results in the order of unsigned bytes, so that the stored inputs are
the offsets of the gather.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import INT8, UINT8, Array
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import ElementLoop
from firmwright.kernels.isa.instruction import Instr
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig

_ENTRIES = 256
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


def lookup_loop(gather: Instr) -> ElementLoop:
    """Return the loop of an instruction that loads bytes at offsets from an address."""

    def look_up(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
        return k(gather, k.pointer("table", UINT8)[0], lanes[0])

    x, y = PointerOperand("x", UINT8), PointerOperand("y", UINT8, "w")
    return ElementLoop((x,), y, UINT8, look_up)


@dataclass(frozen=True, slots=True)
class ByteTables:
    """The lookups of an instruction set: `instructions` for each vector of `lanes`.

    `text` prints the loop of the instruction `gather`.
    """

    prefix: str
    feature: str
    gather: Instr
    text: Callable[[ElementLoop], str]
    lanes: int
    instructions: int
    macros: tuple[str, ...] = ()

    @property
    def _name(self) -> str:
        return f"{self.prefix}_look_up_bytes"

    def intrinsic(self) -> Intrinsic:
        return Intrinsic(
            self._name,
            (
                *pointers(UINT8, "w", y=1),
                *pointers(UINT8, x=1, table=_ENTRIES),
                *immediates("count"),
            ),
            _meaning,
            "for (int32_t i = 0; i < count; ++i) {\n    y[i] = table[x[i]];\n}",
            "Looks up `count` bytes in a table.",
            requires=self.feature,
            text={"gnu": self.text(lookup_loop(self.gather))},
            definitions=self.macros,
            count=lambda args: 12 + divide_up(args[-1], self.lanes) * self.instructions,
        )

    def schedules(
        self, family: str, more: Sequence[str] = ()
    ) -> tuple[Schedule[ScheduleConfig], ...]:
        """Return the schedules, also of the operators `more`."""
        needed = frozenset({self.feature})
        return tuple(
            Schedule(f"{family}.{op}.bytes", op, needed, _configs, self._build)
            for op in (*_OPS, *more)
        )

    def _build(self, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
        table, count = b.constant("table", _table(op), UINT8), op.output.elements
        ends: list[tir.AccessPtr] = []
        for buffer in (b.y, b.input(0)):
            access: tir.AccessMode = "w" if buffer == b.y else "r"
            run = b.view("run", buffer, 0, (count,), dtype=UINT8, access=access)
            ends.append(b.pointer(run, 0, count, access))
        b.evaluate(self._name, [*ends, b.pointer(table, 0, _ENTRIES), count])


def _meaning(y: Array, x: Array, table: Array, count: int) -> Array:
    index = np.asarray(x)[: int(count)].astype(np.int64)
    results: Array = np.take_along_axis(np.asarray(table), index, 0)
    return results


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    x, y = op.input(0), op.output
    is_byte = {x.dtype, y.dtype} <= {INT8, UINT8}
    return (NO_CONFIG,) if is_byte and x.shape == y.shape else ()


def _table(op: OpCall) -> Array:
    """Return the results of all bytes, in the order of unsigned ones."""
    values = np.arange(_ENTRIES).astype(np.uint8).view(op.input(0).dtype.np)
    x, y = (replace(kind, shape=(_ENTRIES,)) for kind in (op.input(0), op.output))
    call = replace(op, inputs=(x, *op.inputs[1:]), outputs=(y,))
    others = [constant.array() for constant in op.constants if constant is not None]
    (results,) = op_table()[op.op].reference(call, [values, *others])
    return np.asarray(results).astype(op.output.dtype.np).view(np.uint8)
