"""Straight steps of a program as loops over lanes; see `lane_loops.py`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.dtypes import INT16, INT32, UINT32, DType
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.kernels.isa.instruction import RegisterClass
from firmwright.kernels.lane_exprs import (
    PRIMARY,
    PRODUCT,
    SUM,
    CText,
    c_expression,
    converted,
)
from firmwright.kernels.lane_formulas import (
    Formula,
    LaneResult,
    Place,
    lane_results,
)
from firmwright.kernels.program import (
    Address,
    Argument,
    Index,
    PointerOperand,
    Step,
    VirtualRegister,
)

LANE = "n"
"""The C variable of a lane."""
_SAME_LANE = Place("", 1, 0)


@dataclass(frozen=True, slots=True)
class LaneStep:
    """One result of a step: its target, and the operands of its formulas by name."""

    target: VirtualRegister | Address
    result: LaneResult
    operands: Mapping[str, Argument]

    @property
    def trips(self) -> int:
        """The iterations of a loop that computes one lane of each set in each."""
        return self.result.lanes // len(self.result.formulas)

    @property
    def writes_same_lane(self) -> bool:
        return len(self.result.formulas) == 1 and not self.result.is_sum

    def is_written_where_used(self, in_bytes: frozenset[str]) -> bool:
        """Return whether the lanes are elements of memory, or a predicate."""
        if isinstance(self.target, Address) or not self.writes_same_lane:
            return False
        if self.target.place.kind is RegisterClass.PREDICATE:
            return True
        (formula,) = self.result.formulas
        expr = formula.expr
        while isinstance(expr, tir.Cast):
            expr = expr.value
        if self.target.is_operand or not isinstance(expr, tir.Var):
            return False
        given = self.operands.get(formula.places[expr.name].operand)
        return isinstance(given, Address) and given.pointer.name not in in_bytes

    def reads(self) -> Iterator[tuple[VirtualRegister, Place]]:
        """Yield the registers that the result depends on, with their lanes."""
        start = self.result.start
        for formula in (*self.result.formulas, *((start,) if start else ())):
            for place in formula.places.values():
                given = self.operands.get(place.operand)
                if isinstance(given, VirtualRegister):
                    yield given, place


def lane_steps(step: Step, moved: dict[PointerOperand, int]) -> list[LaneStep]:
    """Return the results of a step, whose pointers have moved by some elements."""

    def placed(given: Argument) -> Argument:
        if not isinstance(given, Address):
            return given
        distance = moved.get(given.pointer, 0)
        moved[given.pointer] = distance + given.advance
        return Address(given.pointer, given.index + distance)

    numbers = tuple(given for given in step.operands if isinstance(given, int))
    names = [operand.name for operand in step.instr.operands]
    operands = dict(zip(names, map(placed, step.operands), strict=True))
    found = []
    results = lane_results(step.instr, numbers)
    for target, result in zip(step.results, results, strict=True):
        to = placed(target)
        assert isinstance(to, VirtualRegister | Address)
        found.append(LaneStep(to, result, operands))
    return found


@dataclass(slots=True)
class LaneLoop:
    """Results that one loop over lanes computes; with one iteration, it is none."""

    trips: int
    steps: list[LaneStep] = field(default_factory=list)

    def takes(self, step: LaneStep) -> bool:
        """Return whether the loop can compute one more result.

        It then reads no lane that an earlier or a later iteration writes.
        """
        if step.trips != self.trips:
            return False
        return self.trips == 1 or not any(_conflicts(x, step) for x in self.steps)


def _conflicts(earlier: LaneStep, step: LaneStep) -> bool:
    """Return whether a loop must not compute both, as one reads other lanes."""
    if isinstance(earlier.target, Address):
        return True
    both_sums = earlier.result.is_sum and step.result.is_sum
    if earlier.target == step.target:
        return not (both_sums or (earlier.writes_same_lane and step.writes_same_lane))
    for value, place in step.reads():
        if value == earlier.target:
            return not (place.is_same_lane and earlier.writes_same_lane)
    for value, place in earlier.reads():
        if value == step.target:
            return not (place.is_same_lane and step.writes_same_lane)
    return False


@dataclass(slots=True)
class LaneNames:
    """The C of values.

    `sums` are variables of uint32_t, and `changed` are set more than once.
    """

    sums: frozenset[VirtualRegister]
    changed: frozenset[VirtualRegister]
    in_bytes: frozenset[str]
    index: str = "i"
    texts: dict[VirtualRegister, str] = field(default_factory=dict)
    arrays: set[VirtualRegister] = field(default_factory=set)
    where_used: dict[VirtualRegister, LaneStep] = field(default_factory=dict)
    count: int = 0

    def knows(self, value: VirtualRegister) -> bool:
        return value.is_operand or value in self.texts

    def define(self, value: VirtualRegister) -> str:
        if not self.knows(value):
            self.texts[value] = value.name or f"t{self.count}"
            self.count += not value.name
        return self.text(value)

    def text(self, value: VirtualRegister) -> str:
        return value.name if value.is_operand else self.texts[value]

    def dtype(self, value: VirtualRegister) -> DType:
        return UINT32 if value in self.sums else value.place.dtype

    def is_array(self, value: VirtualRegister) -> bool:
        return value in self.arrays or (value.is_operand and value.place.lanes > 1)


@dataclass(frozen=True, slots=True)
class LaneBlock:
    """The loops of a block; `moved` are the distances of its pointers in elements."""

    loops: tuple[LaneLoop, ...]
    where_used: Mapping[VirtualRegister, LaneStep]
    moved: Mapping[PointerOperand, int]
    arrays: frozenset[VirtualRegister]


def lane_block(
    block: Sequence[Step], uses: Mapping[VirtualRegister, int], in_bytes: frozenset[str]
) -> LaneBlock:
    """Return the loops of steps, given the uses of values in the whole program."""
    moved: dict[PointerOperand, int] = {}
    every = [item for step in block for item in lane_steps(step, moved)]
    memory = [item for item in every if item.is_written_where_used(in_bytes)]
    where_used = _where_used(block, memory, uses)
    loops: list[LaneLoop] = []
    for item in every:
        if item.target in where_used:
            continue
        if not loops or not loops[-1].takes(item):
            loops.append(LaneLoop(item.trips))
        loops[-1].steps.append(item)
    arrays = frozenset(_arrays(block, loops, uses))
    return LaneBlock(tuple(loops), where_used, moved, arrays)


def _where_used(
    block: Sequence[Step],
    candidates: Sequence[LaneStep],
    uses: Mapping[VirtualRegister, int],
) -> dict[VirtualRegister, LaneStep]:
    """Return the values that are written where they are used.

    All of their uses are in the block, before it stores anything.
    """
    found: dict[VirtualRegister, LaneStep] = {}
    inside = Counter[VirtualRegister]()
    for step in block:
        inside.update(
            item for item in step.operands if isinstance(item, VirtualRegister)
        )
        if any(isinstance(result, Address) for result in step.results):
            break
    for item in candidates:
        target = item.target
        if isinstance(target, VirtualRegister) and inside[target] == uses[target]:
            found[target] = item
    return found


def _arrays(
    block: Sequence[Step],
    loops: Sequence[LaneLoop],
    uses: Mapping[VirtualRegister, int],
) -> Iterator[VirtualRegister]:
    """Yield the vectors that other loops or other lanes need."""
    inside = Counter(
        item
        for step in block
        for item in step.operands
        if isinstance(item, VirtualRegister)
    )
    for loop in loops:
        for step in loop.steps:
            target = step.target
            if isinstance(target, Address) or target.place.lanes == 1:
                continue
            is_local = inside[target] == uses[target] and step.writes_same_lane
            others = [x for each in loops if each is not loop for x in each.steps]
            elsewhere = {value for x in others for value, _ in x.reads()}
            elsewhere |= {
                value
                for x in loop.steps
                for value, place in x.reads()
                if not place.is_same_lane
            }
            if not is_local or target in elsewhere:
                yield target


@dataclass(frozen=True, slots=True)
class LanePrinter:
    """Printer of the loops of a block."""

    names: LaneNames

    def loop(self, loop: LaneLoop) -> list[str]:
        before = [line for step in loop.steps for line in self._before(step)]
        body = [line for step in loop.steps for line in self._statements(step)]
        if loop.trips == 1:
            return [*before, *body]
        head = f"for (int32_t {LANE} = 0; {LANE} < {loop.trips}; ++{LANE}) {{"
        return [*before, head, *("    " + line for line in body), "}"]

    def _before(self, step: LaneStep) -> Iterator[str]:
        """Yield the declarations of an array, and the start of a sum."""
        target, start = step.target, step.result.start
        if isinstance(target, Address):
            return
        if target in self.names.arrays and not self.names.knows(target):
            dtype, lanes = target.place.dtype, target.place.lanes
            yield f"{dtype.c_type} {self.names.define(target)}[{lanes}];"
        if step.result.is_sum:
            declaration = "" if self.names.knows(target) else "uint32_t "
            text = self.names.define(target)
            value = self._c(start, step, UINT32) if start else "0"
            if value != text:
                yield f"{declaration}{text} = {value};"

    def _statements(self, step: LaneStep) -> Iterator[str]:
        target, sets = step.target, len(step.result.formulas)
        for number, formula in enumerate(step.result.formulas):
            if step.result.is_sum:
                assert isinstance(target, VirtualRegister)
                value = self._c(formula, step, UINT32)
                yield f"{self.names.text(target)} += {value};"
                continue
            place = Place("", sets if step.trips > 1 else 0, number)
            if isinstance(target, Address):
                value = self._c(formula, step, target.pointer.dtype)
                yield f"{_element(target, place, self.names.index)} = {value};"
            elif not self._is_kept(step, formula, target, place):
                yield self._assignment(step, formula, target, place)

    def _is_kept(
        self, step: LaneStep, formula: Formula, target: VirtualRegister, place: Place
    ) -> bool:
        """Return whether a lane of a register that is updated stays as it was."""
        if not isinstance(formula.expr, tir.Var):
            return False
        lane = formula.places[formula.expr.name]
        is_same = step.operands.get(lane.operand) == target
        return is_same and replace(lane, operand="") == place

    def _assignment(
        self, step: LaneStep, formula: Formula, target: VirtualRegister, place: Place
    ) -> str:
        is_new = not self.names.knows(target)
        text = self.names.define(target)
        dtype = self.names.dtype(target)
        value = self._c(formula, step, dtype)
        if self.names.is_array(target):
            text += f"[{_affine(place)}]"
        elif is_new:
            const = "" if target in self.names.changed else "const "
            text = f"{const}{dtype.c_type} {text}"
        return f"{text} = {value};"

    def _c(self, formula: Formula, step: LaneStep, dtype: DType) -> str:
        """Return the C of a formula that is assigned to a variable of `dtype`."""
        expr = formula.expr
        if isinstance(expr, tir.IntImm):
            return str(expr.value)
        if isinstance(expr, tir.Cast) and expr.value.dtype == dtype:
            expr = expr.value
        value = self._formula(replace(formula, expr=expr), step, _SAME_LANE)
        return converted(value, dtype).text

    def _formula(self, formula: Formula, step: LaneStep, lane: Place) -> CText:
        """Return the C of a formula for lane `lane` of its result."""

        def variable(var: tir.Var) -> CText:
            place = formula.places[var.name]
            factor = place.factor * lane.factor
            offset = place.factor * lane.offset + place.offset
            composed = Place(place.operand, factor, offset)
            if not place.operand:
                return CText(_affine(composed), INT32, _affine_precedence(composed))
            return self._variable(step.operands[place.operand], composed)

        return c_expression(formula.expr, variable)

    def _variable(self, given: Argument, place: Place) -> CText:
        match given:
            case Address():
                if given.pointer.name in self.names.in_bytes:
                    return _element_of_bytes(given, place, self.names.index)
                text = _element(given, place, self.names.index)
                return CText(text, given.pointer.dtype)
            case VirtualRegister() if given in self.names.where_used:
                step = self.names.where_used[given]
                return self._formula(step.result.formulas[0], step, place)
            case VirtualRegister():
                text = self.names.text(given)
                if self.names.is_array(given):
                    text += f"[{_affine(place)}]"
                return CText(text, self.names.dtype(given))
        raise InternalError(f"a formula cannot have {given} as operand")


def _affine_precedence(place: Place) -> int:
    if place.factor and place.offset:
        return SUM
    return PRODUCT if place.factor > 1 else PRIMARY


def _affine(place: Place) -> str:
    return _sum_text([(place.factor, LANE), (place.offset, "")])


def _element_of_bytes(address: Address, place: Place, index: str) -> CText:
    """Return the C of an element of two bytes, the low one first."""
    pointer = address.pointer
    if pointer.dtype != INT16:
        raise InternalError(f"elements of {pointer.name} are not two bytes")
    at = address.index
    if at.distance.factor:
        raise InternalError(f"a distance of {pointer.name} is not one of bytes")
    doubled = replace(address, index=Index(2 * at.stride, 2 * at.offset))
    low = Place("", 2 * place.factor, 2 * place.offset)
    high = replace(low, offset=low.offset + 1)
    text = f"{_element(doubled, high, index)} * 256"
    return CText(f"{text} + (uint8_t){_element(doubled, low, index)}", INT32, SUM)


def _element(address: Address, place: Place, index: str) -> str:
    at = address.index
    terms = [(at.stride, index), (at.distance.factor, at.distance.immediate)]
    terms += [(place.factor, LANE), (at.offset + place.offset, "")]
    return f"{address.pointer.name}[{_sum_text(terms)}]"


def _sum_text(terms: Sequence[tuple[int, str]]) -> str:
    """Return the C of the sum of products of numbers and variables."""
    texts = []
    for factor, name in terms:
        if factor and name:
            texts.append(name if factor == 1 else f"{factor} * {name}")
        elif factor:
            texts.append(str(factor))
    return " + ".join(texts) or "0"
