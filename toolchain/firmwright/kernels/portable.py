"""Programs as portable C: the semantics of each instruction, in the same order.

Loads and stores are C expressions; every other instruction is a call of the intrinsic
that has its name (`instruction_intrinsics.py`), such as `c0 = smlad(t1, t2, c0);`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.kernels.isa.instruction import Instr
from firmwright.kernels.program import (
    Address,
    Argument,
    Index,
    Program,
    Step,
    Value,
    steps,
)


def called_instructions(program: Program) -> tuple[Instr, ...]:
    """Return the instructions that `portable_text` calls as intrinsics."""
    found = [step.instr for step in steps(program.body) if step.instr.memory is None]
    return tuple(dict.fromkeys(instr for instr in found if not is_copy(instr)))


def is_copy(instr: Instr) -> bool:
    """Return whether an instruction copies a register."""
    if instr.memory or len(instr.results) > 1 or len(instr.operands) > 1:
        return False
    ((lane,),) = instr.expressions({})
    return isinstance(lane, tir.Var)


def portable_text(program: Program) -> str:
    """Return C statements over the operands of a program."""
    lines: list[str] = []
    names = _Names()
    for node in program.body:
        if isinstance(node, Step):
            lines += _step(node, names)
            continue
        inner = replace(names, names=dict(names.names))
        body = [f"    {line}" for step in node.body for line in _step(step, inner)]
        lines += [f"for (int32_t i = 0; i < {node.count}; ++i) {{", *body, "}"]
    return "\n".join(lines)


@dataclass(slots=True)
class _Names:
    """The C variables of the temporaries in a block, in the order of definition.

    A temporary that an instruction updates has one variable for each of its values.
    """

    names: dict[Value, str] = field(default_factory=dict)
    locals: set[Value] = field(default_factory=set)
    count: int = 0

    def of(self, value: Value) -> str:
        return value.name or self.names[value]

    def define(self, value: Value) -> str:
        """Return the text that begins an assignment to `value`."""
        c_type = value.place.dtype.c_type
        if value.is_operand or value in self.locals:
            return value.name
        if value.is_local:
            self.locals.add(value)
            return f"{c_type} {value.name}"
        self.names[value] = f"t{self.count}"
        self.count += 1
        return f"const {c_type} {self.names[value]}"


def _step(step: Step, names: _Names) -> list[str]:
    instr = step.instr
    if instr.memory is None:
        arguments = ", ".join(_argument(given, names) for given in step.operands)
        (result,) = step.results
        assert isinstance(result, Value)
        if is_copy(instr):
            return [f"{names.define(result)} = {arguments};"]
        return [f"{names.define(result)} = @{instr.name}({arguments});"]
    if isinstance(step.results[0], Address):
        return _store(step.results[0], step.operands, names)
    (address,) = step.operands
    assert isinstance(address, Address)
    lines = []
    for element, result in enumerate(step.results):
        assert isinstance(result, Value)
        lines.append(f"{names.define(result)} = {_element(address, element)};")
    return lines


def _store(address: Address, operands: Sequence[Argument], names: _Names) -> list[str]:
    lines = []
    for element, operand in enumerate(operands):
        lines.append(f"{_element(address, element)} = {_argument(operand, names)};")
    return lines


def _argument(given: Argument, names: _Names) -> str:
    if isinstance(given, Value):
        return names.of(given)
    if isinstance(given, int):
        return str(given)
    raise InternalError("an address is an operand of an instruction without memory")


def _element(address: Address, element: int) -> str:
    """Return the C of an element; loads of narrow types extend as C does."""
    index = address.index + element
    return f"{address.pointer.name}[{_index(index)}]"


def _index(index: Index) -> str:
    terms = []
    if index.stride:
        terms.append("i" if index.stride == 1 else f"{index.stride} * i")
    if index.distance.factor:
        factor, name = index.distance.factor, index.distance.immediate
        terms.append(name if factor == 1 else f"{factor} * {name}")
    if index.offset or not terms:
        terms.append(str(index.offset))
    return " + ".join(terms)
