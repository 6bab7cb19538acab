"""The builder of programs; program.py has an example."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from firmwright.base.dtypes import INT32, DType
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.kernels.isa.instruction import (
    Immediate,
    Instr,
    Memory,
    RegisterClass,
    RegisterPlace,
)
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
)


class ProgramBuilder:
    """Builder of one program; the module docstring has an example."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pointers: list[PointerOperand] = []
        self._registers: list[VirtualRegister] = []
        self._body: list[Node] = []

    def pointer(
        self, name: str, dtype: DType, access: tir.AccessMode = "r"
    ) -> PointerOperand:
        self._pointers.append(PointerOperand(name, dtype, access))
        return self._pointers[-1]

    def register(
        self, name: str, dtype: DType, kind: RegisterClass = RegisterClass.CORE
    ) -> VirtualRegister:
        """Declare a register that the kernel's caller has a variable for."""
        self._registers.append(VirtualRegister(RegisterPlace(kind, dtype), name))
        return self._registers[-1]

    def operand(
        self, name: str, place: RegisterPlace, *, is_output: bool = False
    ) -> VirtualRegister:
        """Declare a register as above; an output may begin with any value."""
        self._registers.append(VirtualRegister(place, name, is_output=is_output))
        return self._registers[-1]

    def local(self, name: str, place: RegisterPlace) -> VirtualRegister:
        """Return a register that lives through a loop of the kernel."""
        return VirtualRegister(place, name, is_local=True)

    def registers(self, prefix: str, count: int, dtype: DType) -> list[VirtualRegister]:
        return [self.register(f"{prefix}{i}", dtype) for i in range(count)]

    def __call__(
        self, instr: Instr, *operands: Argument, into: VirtualRegister | None = None
    ) -> VirtualRegister:
        """Append an instruction with one result; return the result's register."""
        (result,) = self._append(instr, operands, into)
        assert isinstance(result, VirtualRegister)
        return result

    def pair(
        self, instr: Instr, *operands: Argument
    ) -> tuple[VirtualRegister, VirtualRegister]:
        """Append an instruction with two results; return their registers."""
        first, second = self.several(instr, *operands)
        return first, second

    def several(self, instr: Instr, *operands: Argument) -> tuple[VirtualRegister, ...]:
        """Append an instruction with some results; return their registers."""
        results = self._append(instr, operands, None)
        return tuple(
            result for result in results if isinstance(result, VirtualRegister)
        )

    def store(self, instr: Instr, to: Address, *operands: Argument) -> None:
        """Append an instruction that writes memory at `to`."""
        _check(instr, operands)
        self._body.append(Step(instr, (to,), operands))

    def _append(
        self, instr: Instr, operands: tuple[Argument, ...], into: VirtualRegister | None
    ) -> tuple[VirtualRegister | Address, ...]:
        _check(instr, operands)
        names = [operand.name for operand in instr.operands]
        results: list[VirtualRegister | Address] = []
        for result in instr.results:
            assert isinstance(result.place, RegisterPlace)
            value = into or VirtualRegister(result.place)
            if result.name in instr.updated:
                updated = operands[names.index(result.name)]
                assert isinstance(updated, VirtualRegister)
                value = updated
            results.append(value)
        self._body.append(Step(instr, tuple(results), operands))
        return tuple(results)

    @contextmanager
    def repeat(self, count: int, start: int = 0) -> Iterator[Index]:
        """Write the steps of the block `count` times; yield the repetition's index."""
        outer, self._body = self._body, []
        yield Index(1)
        body = tuple(node for node in self._body if isinstance(node, Step))
        if len(body) < len(self._body):
            raise InternalError(f"{self.name} has a loop inside a repeat")
        self._body = [*outer, Repeat(count, body, start)]

    @contextmanager
    def loop(
        self, count: str, unroll: int, until: PointerOperand | None = None
    ) -> Iterator[Index]:
        """Execute the block `count` times; yield the repetition's index.

        It is a loop, of `unroll` repetitions in an iteration.
        """
        outer, self._body = self._body, []
        yield Index(1)
        body = tuple(node for node in self._body if isinstance(node, Step))
        if len(body) < len(self._body):
            raise InternalError(f"{self.name} has a loop inside a loop")
        name = "end" if until else "left"
        limit = self.local(name, RegisterPlace(RegisterClass.CORE, INT32))
        self._body = [*outer, Loop(count, unroll, body, until, limit)]

    @contextmanager
    def counted_loop(self, index: str, counter: str, count: str = "") -> Iterator[None]:
        """Execute the block `count` times; without it, `counter` is the operand."""
        outer, self._body = self._body, []
        yield
        loop = CountedLoop(index, counter, count or counter, tuple(self._body))
        self._body = [*outer, loop]

    @contextmanager
    def first_iteration(self) -> Iterator[None]:
        """Begin a counted loop by a block that its first iteration executes."""
        outer, self._body = self._body, []
        yield
        self._body = [*outer, Beginning(tuple(self._body), ())]

    @contextmanager
    def other_iterations(self) -> Iterator[None]:
        """Execute the block in iterations without the block of the first one."""
        *outer, beginning = self._body
        assert isinstance(beginning, Beginning)
        self._body = []
        yield
        self._body = [*outer, replace(beginning, others=tuple(self._body))]

    def move(
        self, pointer: PointerOperand, base: PointerOperand, distance: str
    ) -> None:
        """Set a pointer to `distance` elements from another; see `Move`."""
        self._body.append(Move(pointer, base, distance))

    def build(self) -> Program:
        return Program(
            self.name, tuple(self._pointers), tuple(self._registers), tuple(self._body)
        )


def _check(instr: Instr, operands: Sequence[Argument]) -> None:
    """Check the kinds and types of operands against the row of the instruction."""
    if len(instr.operands) != len(operands):
        count = len(instr.operands)
        raise InternalError(f"{instr.name} takes {count} operands, not {len(operands)}")
    for operand, given in zip(instr.operands, operands, strict=True):
        match operand.place, given:
            case (RegisterPlace(), VirtualRegister() | Lane()) | (Immediate(), int()):
                continue
            case Memory(dtype), Address(pointer) if _are_alike(pointer.dtype, dtype):
                continue
        raise InternalError(f"{instr.name} cannot take {given} as {operand.name}")


def _are_alike(a: DType, b: DType) -> bool:
    """Return whether types of memory differ at most in their sign."""
    return a == b or (a.size_bytes == b.size_bytes and not (a.is_float or b.is_float))
