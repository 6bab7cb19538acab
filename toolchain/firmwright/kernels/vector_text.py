"""Programs of vector intrinsics as C statements.

A result that is used once becomes a part of the expression that uses it, unless the
line would be too long:

    total = vrshlq_n_s32(vaddq_s32(total, vshrq_n_s32(total, 31)), shift);
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import indent

from firmwright.base.errors import InternalError
from firmwright.kernels.isa.c_numbers import C_NUMBERS
from firmwright.kernels.isa.instruction import Instr, RegisterClass, RegisterPlace
from firmwright.kernels.isa.rvv_groups import RVV, RVV_FLOAT, register_group
from firmwright.kernels.program import Address, Argument, Lane, Step, VirtualRegister
from firmwright.kernels.vector_program import (
    VectorNode,
    VectorProgram,
    When,
    WindowTaps,
)

_WIDTH = 88
"""Maximum length of a statement, before it is indented."""
_POWERS = {1 << bits: f"1 << {bits}" for bits in range(16, 31)}


def vector_text(program: VectorProgram) -> str:
    """Return C statements over the operands of a program."""
    uses = Counter(_used_values(program.nodes))
    writes = Counter(_written_values(program.nodes))
    return "\n".join(_Text(uses, writes).block(program.nodes))


def vector_c_type(instr: Instr, place: RegisterPlace) -> str:
    if place.kind is RegisterClass.PREDICATE:
        return "mve_pred16_t"
    if place.kind is not RegisterClass.VECTOR:
        return place.dtype.c_type
    if instr.instruction_set in (RVV, RVV_FLOAT):
        group = register_group(place.dtype, place.lanes)
        return f"v{group.replace(place.dtype.short, place.dtype.name)}_t"
    return f"{place.dtype.name}x{place.lanes}_t"


def _steps(nodes: Sequence[VectorNode]) -> Iterator[Step]:
    for node in nodes:
        match node:
            case When(_, body, otherwise):
                yield from _steps((*body, *otherwise))
            case WindowTaps(_, _, body):
                yield from _steps(body)
            case Step():
                yield node


def _used_values(nodes: Sequence[VectorNode]) -> Iterator[VirtualRegister]:
    for step in _steps(nodes):
        yield from (
            given for given in step.operands if isinstance(given, VirtualRegister)
        )


def _written_values(nodes: Sequence[VectorNode]) -> Iterator[VirtualRegister]:
    for step in _steps(nodes):
        yield from (
            result for result in step.results if isinstance(result, VirtualRegister)
        )


@dataclass(slots=True)
class _Pending:
    """An expression that is not a variable yet, and the variables that it reads."""

    text: str
    c_type: str
    reads: frozenset[VirtualRegister]


@dataclass(slots=True)
class _Text:
    """The C of values: names, or expressions that wait for their use."""

    uses: Counter[VirtualRegister]
    writes: Counter[VirtualRegister]
    names: dict[VirtualRegister, str] = field(default_factory=dict)
    pending: dict[VirtualRegister, _Pending] = field(default_factory=dict)
    count: int = 0

    def block(self, nodes: Sequence[VectorNode]) -> list[str]:
        lines = []
        for node in nodes:
            match node:
                case Step():
                    lines += self._step(node)
                case When():
                    lines += self._when(node)
                case WindowTaps():
                    lines += self._taps(node)
        return lines

    def _when(self, node: When) -> list[str]:
        lines = [f"if ({self._take(node.condition).text}) {{"]
        lines += [indent(line, "    ") for line in self.block(node.body)]
        if node.otherwise:
            lines.append("} else {")
            lines += [indent(line, "    ") for line in self.block(node.otherwise)]
        return [*lines, "}"]

    def _taps(self, node: WindowTaps) -> list[str]:
        corner = self._take(node.corner).text
        body = [indent(line, " " * 8) for line in self.block(node.body)]
        return [
            "for (int32_t i = 0; i < rows; ++i) {",
            f"    {node.tap.declaration} = {corner} + i * row_step;",
            "    for (int32_t j = 0; j < columns; ++j) {",
            *body,
            f"        {node.tap.name} += step;",
            "    }",
            "}",
        ]

    def _step(self, step: Step) -> list[str]:
        (result,) = step.results
        parts = [self._take(given) for given in step.operands]
        reads = frozenset[VirtualRegister]().union(*(part.reads for part in parts))
        lines: list[str] = []
        head, text = self._head(step.instr, result), self._expression(step, parts)
        while len(head + text) > _WIDTH:
            longest = max(parts, key=lambda part: len(part.text) * bool(part.c_type))
            if not longest.c_type:
                break
            longest.text, line = self._declare(longest)
            longest.c_type = ""
            lines.append(line)
            text = self._expression(step, parts)
        if isinstance(result, Address) and any(
            isinstance(operand.place, RegisterPlace)
            and operand.place.kind is RegisterClass.PREDICATE
            for operand in step.instr.operands
        ):
            lines.append(f"KEEP_STORES({self._take(result).text});")
        if isinstance(result, Address) or result.name:
            self._check_pending(step, result)
            return [*lines, f"{head}{text};"]
        if step.instr.instruction_set is C_NUMBERS:
            self.names[result] = text
            return lines
        part = _Pending(text, vector_c_type(step.instr, result.place), reads)
        if self.uses[result] > 1:
            self.names[result], line = self._declare(part)
            return [*lines, line]
        self.pending[result] = part
        return lines

    def _declare(self, part: _Pending) -> tuple[str, str]:
        """Return the name of a new variable for an expression, and its declaration."""
        name = f"t{self.count}"
        self.count += 1
        return name, f"const {part.c_type} {name} = {part.text};"

    def _check_pending(self, step: Step, result: VirtualRegister | Address) -> None:
        for part in self.pending.values():
            if result in part.reads:
                raise InternalError(f"{step.instr.name} overwrites what {part.text} is")

    def _head(self, instr: Instr, result: VirtualRegister | Address) -> str:
        """Return the beginning of a statement that assigns to a variable."""
        if isinstance(result, Address) or not instr.c:
            return ""
        if not result.name:
            return f"const {vector_c_type(instr, result.place)} t0 = "
        if not result.is_local or result in self.names:
            return f"{result.name} = "
        self.names[result] = result.name
        const = "const " if self.writes[result] == 1 else ""
        return f"{const}{vector_c_type(instr, result.place)} {result.name} = "

    def _expression(self, step: Step, parts: Sequence[_Pending]) -> str:
        instr = step.instr
        texts = {}
        for operand, part in zip(instr.operands, parts, strict=True):
            texts[operand.name] = part.text
        if isinstance(step.results[0], Address):
            texts["address"] = self._take(step.results[0]).text
        if instr.c:
            return instr.c.format(**texts)
        return self._statement(step, texts)

    def _statement(self, step: Step, texts: Mapping[str, str]) -> str:
        """Return inline assembly: its result is `d`, or a new variable."""
        (result,) = step.results
        assert isinstance(result, VirtualRegister)
        places, inputs = {"d": "%q0"}, []
        for operand in step.instr.operands:
            if operand.name != "d":
                assert isinstance(operand.place, RegisterPlace)
                is_vector = operand.place.kind is RegisterClass.VECTOR
                places[operand.name] = f"%{'q' * is_vector}{len(places)}"
                constraint = "w" if is_vector else "r"
                inputs.append(f'"{constraint}"({texts[operand.name]})')
        assembly = step.instr.asm.format(**places).replace("\n\t", "\\n\\t")
        given = f" : {', '.join(inputs)}" if inputs else ""
        if "d" in texts:
            return f'__asm__("{assembly}" : "+w"({texts["d"]}){given})'
        self.names[result] = result.name
        declared = f"{vector_c_type(step.instr, result.place)} {result.name};"
        return f'{declared}\n__asm__("{assembly}"\n    : "=&w"({result.name}){given})'

    def _take(self, given: Argument) -> _Pending:
        """Return the text of an operand; an expression is then no longer pending."""
        match given:
            case int():
                return _Pending(_POWERS.get(given, str(given)), "", frozenset())
            case Address(pointer, index):
                place = index.distance.immediate or (index.offset or "")
                text = f"{pointer.name} + {place}" if place else pointer.name
                return _Pending(text, "", frozenset())
            case VirtualRegister(name=name) if not name and given in self.pending:
                return self.pending.pop(given)
            case VirtualRegister(name=name):
                return _Pending(name or self.names[given], "", frozenset({given}))
            case Lane():
                raise InternalError("a lane is an operand of a vector intrinsic")
