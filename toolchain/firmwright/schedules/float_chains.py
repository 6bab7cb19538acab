"""Chains of float32 sums, differences and products, one vector loop for each.

A chain begins with an input of as many elements as the result, which may be int32. Each
step combines what is computed so far with one more operand, and may apply an
activation:

    max(a * b + c, 0.0)      y = a * b
                             y = y + c, activation relu

    max(a, 0.0) + b          y = a * 1, activation relu
                             y = y + b

The elements are computed row by row. In a row, an operand has the elements of the row
(it is a tensor of the shape of the result, or the same in each row) or a single number
(the same in all rows, or one for each row):

    result [2, 3, 4]    rows   operand [4]: its elements    operand [2, 3, 1]: a number
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, DType
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.attributes.values import ExpressionAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.expression_language import Number, evaluate

_STEPS_MAX = 4
_COPIED = 64
"""The most elements of a constant that is several times a row."""


class ChainOp(Enum):
    """An operation of the computed value and an operand, in this order."""

    ADD = auto()
    SUB = auto()
    MUL = auto()
    SUB_FROM = auto()
    """The operand minus the computed value."""


_OPS = {"add": ChainOp.ADD, "sub": ChainOp.SUB, "mul": ChainOp.MUL}
_SWAPPED = {
    ChainOp.ADD: ChainOp.ADD,
    ChainOp.MUL: ChainOp.MUL,
    ChainOp.SUB: ChainOp.SUB_FROM,
    ChainOp.SUB_FROM: ChainOp.SUB,
}

Source: TypeAlias = int | np.float32
"""The number of an input, or a number of the formula."""


@dataclass(frozen=True, slots=True)
class ChainStep:
    """An operation with its other operand, and the activation of its result."""

    op: ChainOp
    operand: Source
    activation: str = "none"


@dataclass(frozen=True, slots=True)
class Chain:
    """Where a chain begins, and its steps; if it `converts`, it begins with int32."""

    start: Source
    steps: tuple[ChainStep, ...] = ()
    converts: bool = False

    @property
    def is_operand(self) -> bool:
        """Whether the chain is only a number, or the elements of a float tensor."""
        return not self.steps and not self.converts

    def then(self, op: ChainOp, operand: Source) -> "Chain":
        """Return the chain with one more step."""
        return replace(self, steps=(*self.steps, ChainStep(op, operand)))

    def activated(self, activation: str) -> "Chain":
        """Return the chain with an activation of its last step."""
        *steps, last = self.steps
        return replace(self, steps=(*steps, replace(last, activation=activation)))


# ---- chains of formulas --------------------------------------------------------------


class _NotAChain(Exception):
    """The formula has other operations, or operands that are computed themselves."""


class _ChainAlgebra:
    """Makes chains of the operations of a formula (expression_language.py)."""

    def binary(self, op: tir.BinaryOp, a: Chain | Number, b: Chain | Number) -> Chain:
        if op in ("max", "min") and isinstance(b, Chain) and not isinstance(a, Chain):
            return _limited(op, b, a)
        left, right = _leaf(a), _leaf(b)
        if op not in _OPS:
            raise _NotAChain
        if right.is_operand:
            return left.then(_OPS[op], right.start)
        if left.is_operand:
            return right.then(_SWAPPED[_OPS[op]], left.start)
        raise _NotAChain

    def logical_not(self, a: Chain | Number) -> Chain:
        raise _NotAChain

    def where(
        self, condition: Chain | Number, a: Chain | Number, b: Chain | Number
    ) -> Chain:
        raise _NotAChain

    def function(self, name: str, args: Sequence[Chain | Number]) -> Chain:
        raise _NotAChain

    def cast(self, value: Chain | Number, dtype: DType) -> Chain:
        if dtype != FLOAT32:
            raise _NotAChain
        if not isinstance(value, Chain):
            return _leaf(value)
        if not value.is_operand:
            raise _NotAChain
        return replace(value, converts=True)

    def bitwise_not(self, a: Chain | Number) -> Chain:
        raise _NotAChain

    def of_bits(self, value: Chain, dtype: DType) -> Chain:
        raise _NotAChain

    def bind(self, name: str, value: Chain | Number) -> Chain | Number:
        return value


def _leaf(value: Chain | Number) -> Chain:
    return value if isinstance(value, Chain) else Chain(np.float32(value))


def _limited(op: tir.BinaryOp, chain: Chain, limit: Number) -> Chain:
    if not chain.steps:
        chain = chain.then(ChainOp.MUL, np.float32(1))
    match op, chain.steps[-1].activation, limit:
        case "max", "none", 0:
            return chain.activated("relu")
        case "min", "relu", 6:
            return chain.activated("relu6")
    raise _NotAChain


def _chain_of_formula(op: OpCall) -> Chain | None:
    attrs = op.attributes(ExpressionAttrs)
    inputs = [Chain(index) for index in range(len(op.inputs))]
    try:
        chain = evaluate(attrs.formula, inputs, _ChainAlgebra())
    except _NotAChain:
        return None
    return chain if isinstance(chain, Chain) and not attrs.perms else None


def find_chain(op: OpCall) -> Chain | None:
    """Return the chain of a call, if it has one and an operand can begin it."""
    if op.op == "expression":
        chain = _chain_of_formula(op)
    else:
        activation = op.attributes(ActivationAttrs).activation
        chain = Chain(0, (ChainStep(_OPS[op.op], 1, activation),))
    if chain is None or not 0 < len(chain.steps) <= _STEPS_MAX:
        return None
    if not _has_types(op, chain):
        return None
    first = chain.steps[0]
    if not _is_whole(op, chain.start) and not chain.converts:
        swapped = replace(first, op=_SWAPPED[first.op], operand=chain.start)
        chain = replace(chain, start=first.operand, steps=(swapped, *chain.steps[1:]))
    return chain if _is_whole(op, chain.start) else None


def _has_types(op: OpCall, chain: Chain) -> bool:
    """Return whether operands are floats, and the chain converts int32."""
    sources = [step.operand for step in chain.steps]
    floats = sources if chain.converts else [chain.start, *sources]
    kinds = [op.input(each) for each in floats if isinstance(each, int)]
    if any(kind.dtype != FLOAT32 for kind in (*kinds, op.output)):
        return False
    return not chain.converts or _dtype(op, chain.start) == INT32


def _dtype(op: OpCall, source: Source) -> DType:
    return op.input(source).dtype if isinstance(source, int) else FLOAT32


def _is_whole(op: OpCall, source: Source) -> bool:
    return _elements(op, source) == op.output.elements and isinstance(source, int)


# ---- rows ----------------------------------------------------------------------------


class OperandPlace(Enum):
    """Where the elements of an operand are, for a row of the result."""

    WHOLE = auto()
    """As those of the result."""
    ROW = auto()
    """The same in each row."""
    NUMBER = auto()
    """One number for all rows."""
    NUMBER_OF_ROW = auto()


@dataclass(frozen=True, slots=True)
class ChainRows:
    """The elements of a row, and the place of the operand of each step."""

    size: int
    places: tuple[OperandPlace, ...]


def find_rows(op: OpCall, chain: Chain) -> ChainRows | None:
    """Return rows that fit the operands of a chain, if there are."""
    places = [_place(op, step.operand) for step in chain.steps]
    elements = op.output.elements
    numbers: set[int] = set()
    variable: set[int] = set()
    constant: set[int] = set()
    for step, place in zip(chain.steps, places, strict=True):
        if place is None:
            return None
        if place is OperandPlace.NUMBER_OF_ROW:
            numbers.add(elements // _elements(op, step.operand))
        if place is OperandPlace.ROW:
            is_constant = op.constant(int(step.operand)) is not None
            sizes = constant if is_constant else variable
            sizes.add(_elements(op, step.operand))
    size = _row_size(elements, numbers | variable, constant)
    if size is None:
        return None
    return ChainRows(size, tuple(place for place in places if place is not None))


def _row_size(elements: int, fixed: set[int], constant: set[int]) -> int | None:
    """Return the elements of a row: `fixed`, or a multiple of those of constants."""
    least = math.lcm(*constant) if constant else 1
    if fixed:
        (size, *others) = fixed
        return size if not others and size % least == 0 else None
    if not constant:
        return elements
    multiples = [n for n in range(least, _COPIED + 1, least) if elements % n == 0]
    return max(multiples, default=least)


def _elements(op: OpCall, source: Source) -> int:
    return op.input(source).elements if isinstance(source, int) else 1


def _place(op: OpCall, source: Source) -> OperandPlace | None:
    if _is_whole(op, source):
        return OperandPlace.WHOLE
    if not isinstance(source, int) or _elements(op, source) == 1:
        return OperandPlace.NUMBER
    shape = op.output.shape
    own = (1,) * (len(shape) - len(op.input(source).shape)) + op.input(source).shape
    moving = [axis for axis, n in enumerate(own) if n > 1]
    if own[moving[0] :] == shape[moving[0] :]:
        return OperandPlace.ROW
    after = moving[-1] + 1
    return OperandPlace.NUMBER_OF_ROW if own[:after] == shape[:after] else None
