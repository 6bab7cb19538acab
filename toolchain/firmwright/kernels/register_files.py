"""The registers that compilers leave to kernels, for each instruction set.

gcc reloads asm operands of Arm into r0 to r7 only, which the sums of a GEMM kernel
take, so all others have fixed registers above. clang allocates operands itself, but
reserves one register. Thumb-1 has no register left for the choice of a compiler.
RISC-V has enough: temporaries are named, and the compiler places pointers. Xtensa has
fifteen, of which gcc chooses eight for sums; one more may be its frame pointer.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from firmwright.kernels.isa.instruction import RegisterClass


class RegisterPlacement(enum.Enum):
    """How a statement names the registers of pointers and temporaries."""

    VARIABLES = "C variables, which have fixed registers for gcc"
    FIXED = "registers by name: pointers in C variables, temporaries are clobbered"
    TEMPORARIES = "temporaries by name, as clobbered; the compiler places pointers"


@dataclass(frozen=True, slots=True)
class LoopEnd:
    """The assembly that closes an iteration of a loop, by `{limit}`.

    `move` advances a pointer where addresses do not; without it, they do. `compare`
    closes a loop until `{pointer}` is at its end, `count` one of a counter. The limit
    may be in memory: then `load` precedes and, if it is a counter, `save` follows its
    change.
    """

    compare: tuple[str, ...] = ()
    count: tuple[str, ...] = ()
    move: str = ""
    load: str = ""
    save: str = ""


@dataclass(frozen=True, slots=True)
class RegisterFile:
    """The registers of pointers and temporaries in the order in which they are taken.

    Compilers choose those of named temporaries of other classes.

    Those of each class are listed; pointers that kernels are given have the class
    `inputs`. `variables` are the C variables of `RegisterPlacement.VARIABLES`, by
    register.
    With `marks_early_results`, no input of a statement has the register of a result,
    even if the compiler knows them to be equal; gcc needs more registers then.
    """

    registers: Mapping[RegisterClass, tuple[str, ...]]
    placement: RegisterPlacement
    loop_end: LoopEnd
    inputs: RegisterClass = RegisterClass.CORE
    marks_early_results: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)
    prologue: str = ""
    changes_flags: bool = True
    loop_register: str = ""
    """The register that counts the iterations of a low-overhead loop of Armv8.1-M."""

    @property
    def places_inputs(self) -> bool:
        return self.placement is not RegisterPlacement.TEMPORARIES

    def without_last(self) -> "RegisterFile":
        """Return the file with one core register less."""
        fewer = self.registers[RegisterClass.CORE][:-1]
        return replace(self, registers={**self.registers, RegisterClass.CORE: fewer})


_LOW = ("r3", "r2", "r0", "r7", "r4", "r5", "r6", "r1")
"""The low registers: gcc moves fewer values before a statement than in other orders."""
_HIGH = ("r8", "r9", "r10", "r11", "r12", "lr")
_TEMPORARIES = ("t0", "t1", "t2", "t3", "t4", "t5", "t6")

THUMB2_FILE = RegisterFile(
    {RegisterClass.CORE: ("r11", "r12", "r8", "r9", "r10", "lr")},
    RegisterPlacement.VARIABLES,
    LoopEnd(
        compare=("cmp {pointer}, {limit}", "bne 1b"),
        count=("subs {limit}, #1", "bne 1b"),
        load="ldr {limit}, {memory}",
        save="str {limit}, {memory}",
    ),
    variables={"r8": "u", "r9": "v", "r10": "p", "lr": "q"},
)
FPU_THUMB2_FILE = replace(
    THUMB2_FILE,
    registers={
        **THUMB2_FILE.registers,
        RegisterClass.FLOAT: tuple(f"s{number}" for number in range(16)),
    },
)
NAMED_THUMB2_FILE = RegisterFile(
    {RegisterClass.CORE: ("r8", "r9", "r10", "r12")},
    RegisterPlacement.TEMPORARIES,
    LoopEnd(),
)
"""Registers that no compiler reserves, for programs of a few sums."""
CLANG_THUMB2_FILE = THUMB2_FILE.without_last()
"""The registers that are left by clang, and by gcc in the loops of Helium cores."""
THUMB1_FILE = RegisterFile(
    {RegisterClass.LOW: _LOW, RegisterClass.CORE: (*_HIGH, *_LOW)},
    RegisterPlacement.FIXED,
    LoopEnd(
        compare=("cmp {pointer}, {limit}", "bne 1b"), move="adds {pointer}, #{bytes}"
    ),
    inputs=RegisterClass.LOW,
    prologue=".syntax unified",
)
RV32_FILE = RegisterFile(
    {RegisterClass.CORE: _TEMPORARIES},
    RegisterPlacement.TEMPORARIES,
    LoopEnd(
        compare=("bltu {pointer}, {limit}, 1b",),
        move="addi {pointer}, {pointer}, {bytes}",
    ),
    changes_flags=False,
)
XTENSA_FILE = RegisterFile(
    {RegisterClass.CORE: ("a11", "a10", "a9", "a8", "a7", "a0")},
    RegisterPlacement.FIXED,
    LoopEnd(
        compare=("bne {pointer}, {limit}, 1b",),
        move="addi {pointer}, {pointer}, {bytes}",
        load="l32i {limit}, {memory}",
    ),
    changes_flags=False,
)
"""Functions restore a0, the return address, as they do with a12 to a15."""


def vfp_file(first: int, count: int | None = None) -> RegisterFile:
    """Return registers of the FPU from `first` on; compilers have the others."""
    every = tuple(f"s{number}" for number in range(32))
    names = every[first : None if count is None else first + count]
    return RegisterFile(
        {RegisterClass.FLOAT: names}, RegisterPlacement.TEMPORARIES, LoopEnd()
    )


PREDICATE = "p0"
_EVEN = ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "lr")


def mve_file(
    vectors: int, *, has_core_sums: bool = False, loop_register: str = ""
) -> RegisterFile:
    """Return registers of Helium; compilers place pointers, and the other vectors.

    VMLADAV adds into even core registers, the sums. Loops that are not nested may count
    in the link register, `loop_register`.
    """
    registers = {
        RegisterClass.VECTOR: tuple(f"q{number}" for number in range(vectors)),
        RegisterClass.EVEN: _EVEN if has_core_sums else (),
        RegisterClass.PREDICATE: (PREDICATE,),
    }
    return RegisterFile(
        registers,
        RegisterPlacement.TEMPORARIES,
        LoopEnd(),
        marks_early_results=False,
        loop_register=loop_register,
    )
