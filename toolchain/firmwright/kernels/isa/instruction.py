"""Instructions as data: assembly text, operands, and semantics as TIR expressions.

A row of a table is a Python function whose body is the semantics, whose parameters are
the operands, and whose decorator is the assembly text:

    @DSP.instruction("smlad {d}, {a}, {b}, {acc}")
    def smlad(a: Word, b: Word, acc: Int) -> Int:
        '''Return acc plus the products of the low and of the high halves.'''
        return wrap_sum(acc, low(a) * low(b), high(a) * high(b))

Parameters have the types below; so has the result, which the text calls `{d}` (several
results: `{d0}`, `{d1}`). A parameter that is itself called `d` is a register that the
instruction updates. The function builds an expression: it is called with variables, not
with numbers. Everything else follows from that expression: the C of a helper function
(the printer), numpy (`evaluation.py`), a proof, and a test against the machine.

Several instructions, also of different tables, compute the same. Each of them is a row
of text, operand types, and a function that they share (`operations.py`):

    add = RV32.row("add {d}, {a}, {b}", signature(Int, a=Int, b=Int), wrap_sum)

Timing is not part of a row. It follows from the mnemonic, by the tables that also read
compiled code (targets/disassembly.txt and core_timing.toml).
"""

import enum
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

from firmwright.base.dtypes import (
    BOOL,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    UINT8,
    UINT16,
    UINT32,
    DType,
)
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr
from firmwright.targets.disassembly import AssemblySyntax


class RegisterClass(enum.Enum):
    """The registers that an operand can be in."""

    CORE = "a core register"
    LOW = "one of r0 to r7, which all Thumb instructions reach"
    EVEN = "a core register of an even number, as the sums of Helium"
    FLOAT = "a single-precision register"
    VECTOR = "a vector register"
    PREDICATE = "the predicate register of Helium, of which there is one"


@dataclass(frozen=True, slots=True)
class RegisterPlace:
    """An operand in a register that holds `lanes` values of `dtype`, lowest first.

    Registers of class FLOAT hold one value; several lanes are as many adjacent
    registers, written `s4-s7`.
    """

    kind: RegisterClass
    dtype: DType
    lanes: int = 1


class AddressForm(enum.Enum):
    """How an address is written."""

    OFFSET = "[base, #offset], or [base], #advance"
    INDEX = "[base, index, lsl #shift]"
    LANES = "[base, vector, uxtw #shift], an address for each lane"
    MULTIPLE = "base, or base! to advance, of loads and stores of several registers"
    PARENTHESES = "offset(base), of RISC-V"
    COMMA = "base, offset, of Xtensa"


@dataclass(frozen=True, slots=True)
class Memory:
    """`count` adjacent elements at an address, read or written.

    `offsets` are the byte offsets from the base register that the text can state.
    `can_advance` tells whether the address can move past the elements instead, and
    `advances` are the distances in bytes by which it can move otherwise. `shifts` are
    the shifts of an index. A multiple access has its registers in ascending order.

    With `index`, the name of a vector operand, elements are not adjacent: element i is
    lane i of that operand, shifted left, behind the address.
    """

    dtype: DType
    count: int
    offsets: range
    can_advance: bool = False
    advances: range = range(0)
    form: AddressForm = AddressForm.OFFSET
    shifts: range = range(1)
    base: RegisterClass = RegisterClass.CORE
    index: str = ""

    @property
    def size_bytes(self) -> int:
        return self.count * self.dtype.size_bytes


@dataclass(frozen=True, slots=True)
class AddressText:
    """An address in the text: registers, and offset, shift, or advance.

    The advance is the distance by which the base register moves after the access.
    """

    base: str
    offset: int = 0
    advance: int = 0
    index: str = ""
    shift: int = 0

    def text(self, form: AddressForm) -> str:
        match form:
            case AddressForm.OFFSET if self.advance:
                return f"[{self.base}], #{self.advance}"
            case AddressForm.OFFSET:
                offset = f", #{self.offset}" if self.offset else ""
                return f"[{self.base}{offset}]"
            case AddressForm.INDEX:
                shift = f", lsl #{self.shift}" if self.shift else ""
                return f"[{self.base}, {self.index}{shift}]"
            case AddressForm.LANES:
                shift = f", uxtw #{self.shift}" if self.shift else ""
                return f"[{self.base}, {self.index}{shift}]"
            case AddressForm.MULTIPLE:
                return self.base + "!" * bool(self.advance)
            case AddressForm.PARENTHESES:
                return f"{self.offset}({self.base})"
            case AddressForm.COMMA:
                return f"{self.base}, {self.offset}"


@dataclass(frozen=True, slots=True)
class Immediate:
    """A number in the text, one of `values`."""

    values: Sequence[int]


Place: TypeAlias = RegisterPlace | Memory | Immediate
Lanes: TypeAlias = tuple[ArithExpr, ...]
"""The values of a vector register, or the elements of memory."""
Semantics: TypeAlias = Callable[..., ArithExpr | tuple[Any, ...]]

Word = Annotated[ArithExpr, RegisterPlace(RegisterClass.CORE, UINT32)]
Int = Annotated[ArithExpr, RegisterPlace(RegisterClass.CORE, INT32)]
LowWord = Annotated[ArithExpr, RegisterPlace(RegisterClass.LOW, UINT32)]
LowInt = Annotated[ArithExpr, RegisterPlace(RegisterClass.LOW, INT32)]
EvenInt = Annotated[ArithExpr, RegisterPlace(RegisterClass.EVEN, INT32)]
Float = Annotated[ArithExpr, RegisterPlace(RegisterClass.FLOAT, FLOAT32)]
Bytes16 = Annotated[Lanes, RegisterPlace(RegisterClass.VECTOR, INT8, 16)]
Halves8 = Annotated[Lanes, RegisterPlace(RegisterClass.VECTOR, INT16, 8)]
Ints4 = Annotated[Lanes, RegisterPlace(RegisterClass.VECTOR, INT32, 4)]
Floats4 = Annotated[Lanes, RegisterPlace(RegisterClass.VECTOR, FLOAT32, 4)]
UnsignedBytes16 = Annotated[Lanes, RegisterPlace(RegisterClass.VECTOR, UINT8, 16)]
UnsignedHalves8 = Annotated[Lanes, RegisterPlace(RegisterClass.VECTOR, UINT16, 8)]
UnsignedInts4 = Annotated[Lanes, RegisterPlace(RegisterClass.VECTOR, UINT32, 4)]
Predicate16 = Annotated[Lanes, RegisterPlace(RegisterClass.PREDICATE, BOOL, 16)]
Predicate8 = Annotated[Lanes, RegisterPlace(RegisterClass.PREDICATE, BOOL, 8)]
Predicate4 = Annotated[Lanes, RegisterPlace(RegisterClass.PREDICATE, BOOL, 4)]


@dataclass(frozen=True, slots=True)
class InstrOperand:
    """An operand of an instruction; `name` is its placeholder in the text."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Signature:
    """The operands of an instruction in the order of its semantics, and its results."""

    operands: tuple[InstrOperand, ...]
    results: tuple[InstrOperand, ...]


def signature(result: object, **operands: object) -> Signature:
    """Return operands by their names, and the result; a tuple of types is several."""
    named = tuple(InstrOperand(name, _place(hint)) for name, hint in operands.items())
    several = get_args(result) if get_origin(result) is tuple else result
    if isinstance(several, tuple) and get_origin(result) is not Annotated:
        places = [_place(hint) for hint in several]
        results = [InstrOperand(f"d{i}", place) for i, place in enumerate(places)]
    else:
        place = _place(result)
        results = [InstrOperand("address" if isinstance(place, Memory) else "d", place)]
    return Signature(named, tuple(results))


def _place(hint: object) -> Place:
    place = hint if isinstance(hint, RegisterPlace | Memory) else get_args(hint)[1]
    assert isinstance(place, RegisterPlace | Memory | Immediate)
    return place


UNARY_INT = signature(Int, a=Int)
UNARY_WORD = signature(Word, a=Word)
BINARY_INT = signature(Int, a=Int, b=Int)
BINARY_WORD = signature(Word, a=Word, b=Word)


@dataclass(frozen=True, slots=True, eq=False)
class Instr:
    """One instruction. `asm` is its text with placeholders for operands.

    The address of memory is a placeholder, too; how it is written depends on the
    instruction set.

    `c` is the C intrinsic of the instruction, if there is one, with the same
    placeholders: an expression of the result. Of several results the others are
    written by reference. A vector operand has the C type of its lanes, and an address
    is a pointer to elements. `asm` may be empty if there is `c`.

    Without a `given_signature`, that of the annotations of `semantics` holds.
    """

    name: str
    asm: str
    semantics: Semantics
    instruction_set: "InstructionSet"
    c: str = ""
    given_signature: Signature | None = None

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.semantics) or ""

    @property
    def signature(self) -> Signature:
        return self.given_signature or _annotated_signature(self.semantics)

    @property
    def operands(self) -> tuple[InstrOperand, ...]:
        """The operands that the instruction reads, in the order of the function."""
        return self.signature.operands

    @property
    def results(self) -> tuple[InstrOperand, ...]:
        """The operands that the instruction writes."""
        return self.signature.results

    @property
    def memory(self) -> Memory | None:
        """The memory that the instruction reads or writes."""
        for operand in (*self.operands, *self.results):
            if isinstance(operand.place, Memory):
                return operand.place
        return None

    @property
    def is_sequence(self) -> bool:
        """Whether it is several instructions."""
        return "\n" in self.asm

    @property
    def has_early_results(self) -> bool:
        """Whether results need other registers than operands, unless they update one.

        They are written before all operands are read in a sequence. Gathers of Helium
        exclude the register of the offsets.
        """
        memory = self.memory
        is_gather = memory is not None and memory.form is AddressForm.LANES
        return self.is_sequence or is_gather

    @property
    def is_predicated(self) -> bool:
        """Whether the instruction is one of a VPT block of Helium.

        VPST precedes up to four of them; their mnemonics have a t before the dot.
        """
        places = {operand.place for operand in self.operands}
        has_predicate = any(
            isinstance(place, RegisterPlace) and place.kind is RegisterClass.PREDICATE
            for place in places
        )
        return has_predicate and self.asm.partition(".")[0].endswith("t")

    @property
    def updated(self) -> frozenset[str]:
        """The names of registers that are read and then written."""
        written = {result.name for result in self.results}
        return frozenset(item.name for item in self.operands if item.name in written)

    def apply(self, *values: object) -> tuple[Lanes, ...]:
        """Return the results as lanes of expressions, for operands in order.

        A register of one lane is an expression, one of several lanes and memory are
        tuples of expressions, and an immediate is an int.
        """
        returned = self.semantics(*values)
        several = len(self.results) > 1
        parts = returned if several and isinstance(returned, tuple) else (returned,)
        return tuple(part if isinstance(part, tuple) else (part,) for part in parts)

    def expressions(
        self, immediates: Mapping[str, int]
    ) -> tuple[tuple[tir.Expr, ...], ...]:
        """Return the lanes of each result as expressions of `operand_lanes`."""
        values: list[object] = []
        for operand in self.operands:
            if isinstance(operand.place, Immediate):
                values.append(immediates[operand.name])
                continue
            lanes = tuple(ArithExpr(var) for var in operand_lanes(operand))
            is_scalar = (
                isinstance(operand.place, RegisterPlace) and operand.place.lanes == 1
            )
            values.append(lanes[0] if is_scalar else lanes)
        return tuple(
            tuple(lane.expr for lane in lanes) for lanes in self.apply(*values)
        )


def operand_lanes(operand: InstrOperand) -> tuple[tir.Var, ...]:
    """Return the variables of the lanes or elements of an operand."""
    place = operand.place
    match place:
        case RegisterPlace(_, dtype, 1):
            return (tir.Var(operand.name, dtype),)
        case RegisterPlace(_, dtype, count) | Memory(dtype, count):
            return tuple(tir.Var(f"{operand.name}{i}", dtype) for i in range(count))
        case Immediate():
            raise InternalError(f"the immediate {operand.name} has no lanes")


@cache
def _annotated_signature(semantics: Semantics) -> Signature:
    hints = get_type_hints(semantics, include_extras=True)
    return signature(hints.pop("return"), **hints)


@dataclass(frozen=True, slots=True, eq=False)
class InstructionSet:
    """A table of instructions, for cores that have `features` (see target kinds).

    `parent` is the instruction set that this one extends. `syntax` states how
    targets/disassembly.py reads its assembly.
    """

    name: str
    features: frozenset[str]
    parent: "InstructionSet | None" = None
    syntax: AssemblySyntax = AssemblySyntax.ARM
    rows: dict[str, Instr] = field(default_factory=dict)

    def instruction(
        self, asm: str, name: str = "", c: str = ""
    ) -> Callable[[Semantics], Instr]:
        """Add the decorated function as a row, by the name of the function."""

        def add(semantics: Semantics) -> Instr:
            row = Instr(name or semantics.__name__, asm, semantics, self, c)
            return self._add(row)

        return add

    def row(
        self,
        asm: str,
        operands: Signature,
        semantics: Semantics,
        name: str = "",
        c: str = "",
    ) -> Instr:
        """Add a row, by default of the name of its C intrinsic or of its mnemonic."""
        text = c.partition("(")[0] or asm.split()[0].replace(".", "_")
        return self._add(Instr(name or text, asm, semantics, self, c, operands))

    def _add(self, instr: Instr) -> Instr:
        if instr.name in self.rows:
            raise InternalError(f"{self.name} has two rows {instr.name}")
        self.rows[instr.name] = instr
        return instr

    def __iter__(self) -> Iterator[Instr]:
        return iter(self.rows.values())


def mnemonics(instrs: Sequence[Instr]) -> list[str]:
    return [instr.asm.split()[0] for instr in instrs if instr.asm]
