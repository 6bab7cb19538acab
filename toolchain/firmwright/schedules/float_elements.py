"""float32 add, sub, mul and hard_swish of any instruction set with vectors.

Every element is rounded as in the default loops.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from firmwright.base.dtypes import FLOAT32
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import Compute, ElementLoop, element_intrinsics
from firmwright.kernels.program import PointerOperand
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.helium_floats.accumulate_f32 import (
    activated,
    activation_code,
    activation_instructions,
)
from firmwright.schedules.schedule_factories import for_inputs_of

_A, _B, _X = (PointerOperand(name, FLOAT32) for name in "abx")
_Y = PointerOperand("y", FLOAT32, "w")
PAIRS: dict[str, Callable[[ArithExpr, ArithExpr], ArithExpr]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}


def pair_loop(compute: Compute) -> ElementLoop:
    """Return the loop of an operator of two tensors of equal shape."""
    return ElementLoop((_A, _B), _Y, FLOAT32, compute)


def single_loop(compute: Compute) -> ElementLoop:
    """Return the loop of a function of one tensor."""
    return ElementLoop((_X,), _Y, FLOAT32, compute)


@dataclass(frozen=True, slots=True)
class FloatElements:
    """The elementwise operators of an instruction set, with the prefix `family`.

    `text` prints a loop.
    """

    family: str
    feature: str
    lanes: int
    text: Callable[[ElementLoop], str]
    macros: tuple[str, ...] = ()

    def pair(self, op: str, loop: ElementLoop) -> tuple[Intrinsic, ...]:
        """Return the micro-kernel of an operator of two tensors."""
        return element_intrinsics(
            f"{self.family}_{op}_f32",
            (
                *pointers(FLOAT32, a=1, b=1),
                *pointers(FLOAT32, "w", y=1),
                *immediates("activation", "count"),
            ),
            partial(_pair_element, op),
            f"{op} of `count` elements.",
            self.feature,
            self.text(loop),
            lambda args: (
                10
                + divide_up(args[4], self.lanes)
                * (6 + activation_instructions(args[3]))
            ),
            self.macros,
        )

    def single(
        self,
        op: str,
        element: Callable[[ArithExpr], ArithExpr],
        loop: ElementLoop,
        instructions: int,
    ) -> tuple[Intrinsic, ...]:
        """Return the micro-kernel of a function, `instructions` for each vector."""
        return element_intrinsics(
            f"{self.family}_{op}_f32",
            (
                *pointers(FLOAT32, x=1),
                *pointers(FLOAT32, "w", y=1),
                *immediates("count"),
            ),
            element,
            f"{op} of `count` elements.",
            self.feature,
            self.text(loop),
            lambda args: 10 + divide_up(args[2], self.lanes) * instructions,
            self.macros,
        )

    def schedules(
        self, name: str, singles: Sequence[str]
    ) -> Iterator[Schedule[ScheduleConfig]]:
        """Yield the schedules of pairs, then those of functions of one tensor."""
        needed = frozenset({self.feature})
        for op in PAIRS:
            yield Schedule(
                f"{name}.{op}.floats", op, needed, _pair_configs, self._build_pair
            )
        configs = for_inputs_of(FLOAT32)
        for op in singles:
            yield Schedule(
                f"{name}.{op}.floats", op, needed, configs, self._build_single
            )

    def _build_pair(self, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
        count = op.output.elements
        pair = [b.pointer(b.input(index), 0, count) for index in (0, 1)]
        y = b.pointer(b.y, 0, count, "w")
        name = f"{self.family}_{op.op}_f32"
        b.evaluate(name, [*pair, y, activation_code(op), count])

    def _build_single(self, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
        count = op.output.elements
        ends = b.pointer(b.input(0), 0, count), b.pointer(b.y, 0, count, "w")
        b.evaluate(f"{self.family}_{op.op}_f32", [*ends, count])


def _pair_element(op: str, a: ArithExpr, b: ArithExpr, **x: ArithExpr) -> ArithExpr:
    return activated(PAIRS[op](a, b), x["activation"])


def _pair_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    for kind in (op.input(0), op.input(1)):
        if kind.dtype != FLOAT32 or kind.shape != op.output.shape:
            return ()
    return (NO_CONFIG,)


def hard_swish(x: ArithExpr) -> ArithExpr:
    return x * minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0
