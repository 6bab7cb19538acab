"""Programs as portable C: the semantics of each instruction, in the same order.

Loads and stores are C expressions, and so are instructions whose semantics are a few
operators of C, such as `c0 = c0 + t1 * t2;`. Every other instruction is a call of the
intrinsic that has its name (`instruction_intrinsics.py`), such as
`c0 = smlad(t1, t2, c0);`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.dtypes import INT32, DType
from firmwright.base.errors import InternalError
from firmwright.kernels.isa.instruction import (
    InstrOperand,
    Memory,
    RegisterPlace,
)
from firmwright.kernels.portable_exprs import is_written_out, operator_text
from firmwright.kernels.program import (
    Address,
    Argument,
    Beginning,
    CountedLoop,
    Index,
    Lane,
    Loop,
    Move,
    Node,
    PointerOperand,
    Program,
    Repeat,
    Step,
    VirtualRegister,
    steps,
)


def called_intrinsics(program: Program) -> tuple[str, ...]:
    """Return the names of the intrinsics that `portable_text` calls."""
    found = [step.instr for step in steps(program.body) if step.instr.memory is None]
    called = [instr.name for instr in found if not is_written_out(instr)]
    return tuple(dict.fromkeys(called))


def portable_text(program: Program) -> str:
    """Return C statements over the operands of a program."""
    printer = _Printer(set(program.pointers))
    return "\n".join(printer.block(program.body, _Names()))


@dataclass(slots=True)
class _Names:
    """The C variables of the temporaries in a block, in the order of definition.

    A temporary that an instruction updates has one variable for each of its values.
    """

    names: dict[tuple[VirtualRegister, int], tuple[str, DType]] = field(
        default_factory=dict
    )
    locals: set[VirtualRegister] = field(default_factory=set)
    count: int = 0

    def inside(self) -> "_Names":
        """Return the names for a block inside, which begins with these."""
        return replace(self, names=dict(self.names))

    def of(self, value: VirtualRegister, dtype: DType, lane: int = 0) -> str:
        """Return the C of a value as `dtype`."""
        own = value.name, value.place.dtype
        name, kind = own if value.name else self.names[value, lane]
        return name if kind == dtype else f"({dtype.c_type}){name}"

    def assign(
        self, value: VirtualRegister, dtype: DType, text: str, lane: int = 0
    ) -> str:
        """Return an assignment to `value` of a C expression of `dtype`."""
        kind = value.place.dtype
        cast = f"({kind.c_type})" if value.name and kind != dtype else ""
        if value.is_operand or value in self.locals:
            return f"{value.name} = {cast}{text};"
        if value.is_local:
            self.locals.add(value)
            return f"{kind.c_type} {value.name} = {cast}{text};"
        name = f"t{self.count}"
        self.names[value, lane] = name, dtype
        self.count += 1
        return f"const {dtype.c_type} {name} = {text};"


@dataclass(frozen=True, slots=True)
class _Printer:
    """Printer of blocks; `declared` are the pointers that are variables already."""

    declared: set[PointerOperand]

    def block(self, body: Iterable[Node], names: _Names) -> list[str]:
        lines: list[str] = []
        for node in body:
            match node:
                case Step():
                    lines += _step(node, names)
                case Move():
                    lines.append(self._move(node))
                case Repeat(count=1):
                    lines += self.block(_only_repetition(node), names)
                case Repeat() | Loop():
                    lines += self._loop("i", str(node.count), node.body, names)
                case CountedLoop(index, _, count, inner):
                    lines += self._loop(index, count, inner, names)
                case Beginning():
                    raise InternalError("only a counted loop can begin differently")
        return lines

    def _loop(
        self, index: str, count: str, body: Sequence[Node], names: _Names
    ) -> list[str]:
        start, *others = body
        if isinstance(start, Beginning):
            return self._loop_from(start, index, count, others, names)
        head = f"for (int32_t {index} = 0; {index} < {count}; ++{index}) {{"
        return [head, *_indent(self.block(body, names.inside())), "}"]

    def _loop_from(
        self,
        start: Beginning,
        index: str,
        count: str,
        body: Sequence[Node],
        names: _Names,
    ) -> list[str]:
        """Return the first beginning, and a loop that ends before another one."""
        lines = self.block(start.first, names)
        inner = self.block(body, names.inside())
        inner += [f"if ({index} == {count}) {{", "    break;", "}"]
        inner += self.block(start.others, names.inside())
        return [
            *lines,
            f"for (int32_t {index} = 1;; ++{index}) {{",
            *_indent(inner),
            "}",
        ]

    def _move(self, move: Move) -> str:
        pointer, base = move.pointer, move.base
        if pointer == base:
            return f"{pointer.name} += {move.distance};"
        name = pointer.name
        if pointer not in self.declared:
            self.declared.add(pointer)
            name = pointer.declaration
        return f"{name} = {base.name} + {move.distance};"


def _only_repetition(block: Repeat) -> list[Step]:
    """Return the steps of a block that is written once, without an index."""

    def placed(address: Address) -> Address:
        index = address.index
        offset = index.offset + index.stride * block.start
        return replace(address, index=replace(index, stride=0, offset=offset))

    body = []
    for step in block.body:
        operands = tuple(
            placed(given) if isinstance(given, Address) else given
            for given in step.operands
        )
        results = tuple(
            placed(given) if isinstance(given, Address) else given
            for given in step.results
        )
        body.append(replace(step, operands=operands, results=results))
    return body


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _step(step: Step, names: _Names) -> list[str]:
    memory = step.instr.memory
    if memory is None:
        return [_calculation(step, names)]
    (address,) = (
        given for given in (*step.operands, *step.results) if isinstance(given, Address)
    )
    lines = []
    is_store = isinstance(step.results[0], Address)
    values = step.operands if is_store else step.results
    for element, (value, lane) in enumerate(_lanes(values)):
        place = _element(address, element)
        if is_store:
            lines.append(f"{place} = {_stored(address.pointer, value, lane, names)};")
        else:
            lines.append(_loaded(address.pointer, memory, value, lane, place, names))
    if address.advance:
        lines.append(f"{address.pointer.name} += {address.advance};")
    return lines


def _calculation(step: Step, names: _Names) -> str:
    instr, (result,) = step.instr, step.results
    assert isinstance(result, VirtualRegister)
    words = []
    for operand, given in zip(instr.operands, step.operands, strict=True):
        words.append(_argument(operand, given, names))
    text = f"@{instr.name}({', '.join(words)})"
    if is_written_out(instr):
        text = operator_text(instr, words)
    return names.assign(result, _register_type(instr.results[0]), text)


def _loaded(
    pointer: PointerOperand,
    memory: Memory,
    value: VirtualRegister,
    lane: int,
    place: str,
    names: _Names,
) -> str:
    """Return the assignment of an element; int32 holds those of narrow types."""
    dtype = pointer.dtype
    if dtype.size_bytes < INT32.size_bytes:
        if dtype != memory.dtype:
            place = f"({memory.dtype.c_type}){place}"
        dtype = INT32
    return names.assign(value, dtype, place, lane)


def _stored(
    pointer: PointerOperand, value: VirtualRegister, lane: int, names: _Names
) -> str:
    dtype = pointer.dtype
    if dtype.size_bytes == INT32.size_bytes:
        return names.of(value, dtype, lane)
    return f"({dtype.c_type}){names.of(value, value.place.dtype, lane)}"


def _register_type(operand: InstrOperand) -> DType:
    assert isinstance(operand.place, RegisterPlace)
    return operand.place.dtype


def _lanes(values: Iterable[Argument]) -> Iterator[tuple[VirtualRegister, int]]:
    """Yield the registers of values: several of a group."""
    for value in values:
        assert isinstance(value, VirtualRegister)
        for lane in range(value.place.lanes if value.is_group else 1):
            yield value, lane


def _argument(operand: InstrOperand, given: Argument, names: _Names) -> str:
    match given:
        case VirtualRegister():
            return names.of(given, _register_type(operand))
        case Lane(group, Index(0, offset)):
            return names.of(group, _register_type(operand), offset)
        case int():
            return str(given)
    raise InternalError("portable C cannot name this operand")


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
