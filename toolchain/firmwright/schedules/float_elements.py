"""float32 functions of elements for any instruction set with vectors.

Every element is rounded as in the default loops. Operators of two tensors and formulas
are chains (float_chains.py).
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, DType
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    ExprLike,
    immediate,
    maximum,
    minimum,
)
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    Operand,
    immediates,
    inputs,
    pointers,
)
from firmwright.kernels.elementwise import Compute, ElementLoop, element_intrinsics
from firmwright.kernels.isa.instruction import Instr
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.float_chains import (
    Chain,
    ChainOp,
    ChainStep,
    OperandPlace,
    find_chain,
    find_rows,
)
from firmwright.schedules.helium_floats.accumulate_f32 import (
    ACTIVATION_CODES,
    activated,
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


def number_loop(
    op: ChainOp,
    spread: Instr,
    combine: Instr,
    activate: Callable[[VectorBuilder, VirtualRegister], VirtualRegister],
) -> ElementLoop:
    """Return the loop of an operation of a tensor and the number `number`.

    `spread` makes a vector of a number.
    """

    def compute(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
        (x,) = lanes
        number = k(spread, k.number("number", FLOAT32))
        operands = (number, x) if op is ChainOp.SUB_FROM else (x, number)
        return activate(k, k.named("value", combine, *operands))

    return single_loop(compute)


def pair_of(op: ChainOp) -> str:
    """Return the operator of two tensors that computes an operation."""
    return "sub" if op is ChainOp.SUB_FROM else op.name.lower()


def single_loop(compute: Compute) -> ElementLoop:
    """Return the loop of a function of one tensor."""
    return ElementLoop((_X,), _Y, FLOAT32, compute)


@dataclass(frozen=True, slots=True)
class FloatElements:
    """The elementwise operators of an instruction set, with the prefix `family`.

    `text` prints a loop. `conversion` is the micro-kernel that converts int32, if there
    is one.
    """

    family: str
    feature: str
    lanes: int
    text: Callable[[ElementLoop], str]
    macros: tuple[str, ...] = ()
    conversion: str = ""

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

    def number(self, op: ChainOp, loop: ElementLoop) -> tuple[Intrinsic, ...]:
        """Return the micro-kernel of an operation of a tensor and a number."""
        return element_intrinsics(
            self._number_name(op),
            (
                *pointers(FLOAT32, x=1),
                *pointers(FLOAT32, "w", y=1),
                *inputs(FLOAT32, "number"),
                *immediates("activation", "count"),
            ),
            partial(_number_element, op),
            f"{_name(op)} of a number, for each of `count` elements.",
            self.feature,
            self.text(loop),
            lambda args: (
                10
                + divide_up(args[4], self.lanes)
                * (5 + activation_instructions(args[3]))
            ),
            self.macros,
        )

    def _number_name(self, op: ChainOp) -> str:
        return f"{self.family}_{_name(op)}_number_f32"

    def schedules(
        self, name: str, singles: Sequence[str]
    ) -> Iterator[Schedule[ScheduleConfig]]:
        """Yield the schedules of chains, then those of functions of one tensor."""
        needed = frozenset({self.feature})
        for op in (*PAIRS, "expression"):
            yield Schedule(
                f"{name}.{op}.floats",
                op,
                needed,
                self._chain_configs,
                self._build_chain,
            )
        configs = for_inputs_of(FLOAT32)
        for op in singles:
            yield Schedule(
                f"{name}.{op}.floats", op, needed, configs, self._build_single
            )

    def _build_chain(self, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
        chain = find_chain(op)
        assert chain is not None
        rows = find_rows(op, chain)
        assert rows is not None
        operands = list(map(partial(_operand, b, rows.size), chain.steps, rows.places))
        steps = list(zip(chain.steps, operands, strict=True))
        scale = 1.0
        if chain.converts and _is_scale(chain.steps[0]):
            scale = float(chain.steps[0].operand)
            del steps[0]
        with b.for_("row", op.output.elements // rows.size) as row:
            at = row * rows.size
            x = b.pointer(b.input(int(chain.start)), at, rows.size)
            y = b.pointer(b.y, at, rows.size, "w")
            if chain.converts:
                number = tir.FloatImm(scale, FLOAT32)
                b.evaluate(self.conversion, [y, x, number, 0, rows.size])
                x = b.pointer(b.y, at, rows.size)
            for step, operand in steps:
                ends: list[ExprLike] = [y, ACTIVATION_CODES[step.activation], rows.size]
                self._emit(step.op, x, operand(row), ends, b)
                x = b.pointer(b.y, at, rows.size)
        if _reads_in_order(op, chain, rows.places):
            b.state_elementwise()

    def _chain_configs(self, op: OpCall) -> Sequence[ScheduleConfig]:
        chain = find_chain(op)
        if chain is None or (chain.converts and not self.conversion):
            return ()
        return (NO_CONFIG,) if find_rows(op, chain) is not None else ()

    def _emit(
        self,
        op: ChainOp,
        x: tir.AccessPtr,
        operand: ExprLike,
        ends: Sequence[ExprLike],
        b: Kernel,
    ) -> None:
        y, *settings = ends
        if not isinstance(operand, tir.AccessPtr):
            b.evaluate(self._number_name(op), [x, y, operand, *settings])
            return
        pair = [operand, x] if op is ChainOp.SUB_FROM else [x, operand]
        b.evaluate(f"{self.family}_{pair_of(op)}_f32", [*pair, *ends])

    def _build_single(self, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
        count = op.output.elements
        ends = b.pointer(b.input(0), 0, count), b.pointer(b.y, 0, count, "w")
        b.evaluate(f"{self.family}_{op.op}_f32", [*ends, count])
        b.state_elementwise()


def _name(op: ChainOp) -> str:
    return op.name.lower()


def _pair_element(op: str, a: ArithExpr, b: ArithExpr, **x: ArithExpr) -> ArithExpr:
    return activated(PAIRS[op](a, b), x["activation"])


def _number_element(op: ChainOp, x: ArithExpr, **given: ArithExpr) -> ArithExpr:
    number = given["number"]
    operands = (number, x) if op is ChainOp.SUB_FROM else (x, number)
    return activated(PAIRS[pair_of(op)](*operands), given["activation"])


def _is_scale(step: ChainStep) -> bool:
    """Return whether a step is a product with a number of the formula."""
    is_number = not isinstance(step.operand, int)
    return is_number and step.op is ChainOp.MUL and step.activation == "none"


def _reads_in_order(op: OpCall, chain: Chain, places: Sequence[OperandPlace]) -> bool:
    """Return whether no element of an input is read after a result from its place on.

    The first step overwrites what later ones would read.
    """
    variable: list[OperandPlace] = []
    for step, place in zip(chain.steps, places, strict=True):
        if isinstance(step.operand, int) and op.constant(step.operand) is None:
            variable.append(place)
    if len(chain.steps) == 1 and not chain.converts:
        return variable in ([], [OperandPlace.WHOLE])
    return not variable


def _operand(
    b: Kernel, size: int, step: ChainStep, place: OperandPlace
) -> Callable[[ArithExpr], ExprLike]:
    """Return the operand of a step for a row, a pointer or a number."""
    if not isinstance(step.operand, int):
        literal = tir.FloatImm(float(step.operand), FLOAT32)
        return lambda row: literal
    index = step.operand
    source = b.input(index)
    match place:
        case OperandPlace.WHOLE:
            return lambda row: b.pointer(source, row * size, size)
        case OperandPlace.ROW:
            constant = b.call.constant(index)
            if constant is not None:
                copies = size // source.elements
                values = np.tile(constant.array().reshape(-1), copies)
                source = b.constant("row", values, FLOAT32)
            return lambda row: b.pointer(source, 0, size)
        case OperandPlace.NUMBER:
            number = _element(b, source, 0)
            return lambda row: number
    return lambda row: _element(b, source, row)


def _element(b: Kernel, source: tir.Buffer, at: ArithExpr | int) -> ArithExpr:
    elements = b.view("elements", source, 0, (source.elements,))
    return b.let("number", b.load(elements, [at]))


def dequantize(**x: ArithExpr) -> ArithExpr:
    """Return an element `x` minus the zero point, times the scale."""
    return (x["x"].cast(INT32) - x["zero_point"]).cast(FLOAT32) * x["scale"]


def dequantize_operands(dtype: DType) -> tuple[Operand, ...]:
    """Return the operands of a micro-kernel that dequantizes elements of `dtype`."""
    return (
        *pointers(FLOAT32, "w", y=1),
        *pointers(dtype, x=1),
        *inputs(FLOAT32, "scale"),
        *immediates("zero_point", "count"),
    )


def build_dequantize(name: str, op: OpCall, b: Kernel) -> None:
    """Call the micro-kernel `name` for all elements."""
    quant, count = per_tensor_quant(op.input(0)), op.output.elements
    ends = [b.pointer(b.y, 0, count, "w"), b.pointer(b.input(0), 0, count)]
    scale = immediate(float(np.float32(quant.scale)), FLOAT32)
    b.evaluate(name, [*ends, scale, quant.zero_point, count])
    b.state_elementwise()


def hard_swish(x: ArithExpr) -> ArithExpr:
    return x * minimum(6.0, maximum(0.0, x + 3.0)) / 6.0


def relu(x: ArithExpr) -> ArithExpr:
    return maximum(0.0, x)


def relu6(x: ArithExpr) -> ArithExpr:
    return minimum(6.0, maximum(0.0, x))
