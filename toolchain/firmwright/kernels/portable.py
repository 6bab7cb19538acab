"""Programs as portable C: the semantics of each instruction, in the same order.

Loads and stores are C expressions; every other instruction is a call of the intrinsic
that has its name (`instruction_intrinsics.py`), such as `c0 = smlad(t1, t2, c0);`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from firmwright.base.errors import InternalError
from firmwright.kernels.isa.instruction import Instr
from firmwright.kernels.program import (
    Address,
    Argument,
    Index,
    Program,
    Repeat,
    Step,
    Value,
    steps,
)


def called_instructions(program: Program) -> tuple[Instr, ...]:
    """Return the instructions that `portable_text` calls as intrinsics."""
    found = [step.instr for step in steps(program.body) if step.instr.memory is None]
    return tuple(dict.fromkeys(found))


def portable_text(program: Program, count: str = "") -> str:
    """Return C statements over the operands of a program without a loop.

    `count` is the number of repetitions, a C expression, if it is not the program's.
    """
    lines: list[str] = []
    for node in program.body:
        if isinstance(node, Repeat):
            names = _Names()
            body = [f"    {line}" for step in node.body for line in _step(step, names)]
            limit = count or node.count
            lines += [f"for (int32_t i = 0; i < {limit}; ++i) {{", *body, "}"]
        elif isinstance(node, Step):
            lines += _step(node, _Names())
        else:
            raise InternalError(f"{program.name} has a loop over addresses")
    return "\n".join(lines)


@dataclass(slots=True)
class _Names:
    """The C variables of the temporaries in a block, in the order of definition."""

    names: dict[Value, str] = field(default_factory=dict)

    def of(self, value: Value) -> str:
        return value.name or self.names[value]

    def define(self, value: Value) -> str:
        """Return the text that begins an assignment to `value`."""
        if value.name:
            return value.name
        self.names[value] = f"t{len(self.names)}"
        return f"const {value.place.dtype.c_type} {self.names[value]}"


def _step(step: Step, names: _Names) -> list[str]:
    instr = step.instr
    if instr.memory is None:
        arguments = ", ".join(_argument(given, names) for given in step.operands)
        (result,) = step.results
        assert isinstance(result, Value)
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
    if not index.stride:
        return str(index.offset)
    product = "i" if index.stride == 1 else f"{index.stride} * i"
    return f"{product} + {index.offset}" if index.offset else product
