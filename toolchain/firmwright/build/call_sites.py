"""Calls and stack frames of each function in a disassembly.

It is that of Arm, RISC-V, Xtensa or x86.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from firmwright.base.c_identifiers import without_abi_hash

_HEADER: Final = re.compile(r"^([0-9a-f]+) <([^>]+)>:$")
_LINE: Final = re.compile(r"^\s*([0-9a-f]+):\t(?:[0-9a-f ]+\t)?(\S+)(?:\s+(.*))?$")
_CALL: Final = re.compile(r"blx?(?:\.[nw])?|jalr?|callq?|call0")
_JUMP: Final = re.compile(
    r"(?:b(?:eq|ne|cs|cc|hs|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)?)(?:\.[nw])?"
    r"|cbn?z|b(?:eq|ne|lt|ge|ltu|geu|gt|le|gtu|leu)z?|j[a-z]*"
    r"|b(?:any|none|n?all|b[cs]i?|(?:eq|ne|ltu?|geu?)i|(?:eq|ne)z\.n)"  # Xtensa
)
_TARGET: Final = re.compile(r"\b([0-9a-f]+) <")
_ARM_LIST: Final = re.compile(r"\{([^}]*)\}")
_ARM_RANGE: Final = re.compile(r"([a-z]+)(\d+)-[a-z]+(\d+)")
_LOWERING: Final = (
    (re.compile(r"subw?(?:\.w)? (?:sp, )?sp, #(\d+)"), 10),  # Arm
    (re.compile(r"sub sp, #(\d+)"), 10),
    (re.compile(r"strd?(?:\.w)? .*\[sp, #-(\d+)\]!"), 10),
    (re.compile(r"addi? sp,sp,-(\d+)"), 10),  # RISC-V
    (re.compile(r"addi a1, a1, -(\d+)"), 10),  # Xtensa
    (re.compile(r"subq? \$0x([0-9a-f]+),%rsp"), 16),  # x86
)
"""Instructions that lower the stack pointer by a constant, and the constant's base."""
_LOWERING_BY_REGISTER: Final = re.compile(r"subs?(?:\.w)? sp, ?sp, ?[a-z]\w*")
"""Instructions that lower it by a computed size, as for an array of variable length."""
_CLONE: Final = re.compile(r"(\.(constprop|isra|part|cold|lto_priv)(\.\d+)?)+$")
_MILLICODE: Final = re.compile(r"<__riscv_(save|restore)_(\d+)>")
_MILLICODE_STEP_BYTES: Final = 16
"""Bytes by which __riscv_save_N extends its caller's frame for four registers."""
_TABLE_INDEX: Final = re.compile(r"slli? \w+,\w+,0x2|sh2add .*|addx4 .*")
_TABLE_DISTANCE: Final = 12
"""The most instructions from an index into a table of addresses to the jump."""


@dataclass(slots=True)
class FunctionCode:
    """The calls and the frame of a function; `calls` and `jumps` are addresses.

    `calls_pointer` is set if the function calls an address in a register, or ends with
    a jump to one that is not read from a jump table. `jumps_to_register` is set for any
    jump to a register on RISC-V, and for `mov pc, rN` on Arm.
    """

    name: str
    frame_bytes: int = 0
    calls: set[int] = field(default_factory=set)
    jumps: set[int] = field(default_factory=set)
    calls_pointer: bool = False
    jumps_to_register: bool = False
    lowers_by_register: bool = False

    def only_jumps_to(self, address: int) -> bool:
        """Return whether a function is reached without a frame of this one below it."""
        return address in self.jumps and address not in self.calls

    @property
    def is_dynamically_linked(self) -> bool:
        return "@plt" in self.name


def source_name(symbol: str) -> str:
    """Return the name in the source of a symbol or its clone (`f.constprop.0`).

    gcc's `.su` files name the clones without their numbers.
    """
    return _CLONE.sub("", without_abi_hash(symbol))


def read_functions(disassembly: str) -> dict[int, FunctionCode]:
    """Return the functions by address."""
    functions: dict[int, FunctionCode] = {}
    current = FunctionCode("")
    recent: deque[str] = deque(maxlen=_TABLE_DISTANCE)
    for line in disassembly.splitlines():
        header = _HEADER.match(line)
        if header:
            address, named = int(header[1], 16), FunctionCode(source_name(header[2]))
            current = functions.setdefault(address, named)
            recent.clear()
            continue
        instruction = _LINE.match(line)
        if instruction:
            mnemonic, operands = instruction[2], instruction[3] or ""
            _take(current, mnemonic, operands, recent)
            recent.append(f"{mnemonic} {operands}")
    return functions


def _take(
    function: FunctionCode, mnemonic: str, operands: str, recent: deque[str]
) -> None:
    """Add an instruction to its function; `recent` are the instructions before it."""
    function.frame_bytes += _pushed(mnemonic, operands)
    if _LOWERING_BY_REGISTER.match(f"{mnemonic} {operands}"):
        function.lowers_by_register = True
    target = _TARGET.search(operands)
    millicode = _MILLICODE.search(operands)
    if millicode:
        steps = int(millicode[2]) // 4 + 1 if millicode[1] == "save" else 0
        function.frame_bytes += steps * _MILLICODE_STEP_BYTES
    elif target and _CALL.fullmatch(mnemonic):
        function.calls.add(int(target[1], 16))
    elif target and _JUMP.fullmatch(mnemonic):
        function.jumps.add(int(target[1], 16))
    elif mnemonic == ".word" and function.name.endswith("_veneer"):
        # The linker's jump to far code: an address, whose lowest bit means Thumb.
        function.jumps.add(int(operands, 16) & ~1)
    elif _is_pointer_call(mnemonic, operands):
        function.calls_pointer = True
    elif mnemonic == "mov" and operands.startswith("pc, ") and operands != "pc, lr":
        # A jump of Arm, other than a return.
        function.jumps_to_register = True
    elif mnemonic in ("jr", "jx") and operands not in ("ra", "t0"):
        # A jump of RISC-V or Xtensa, other than a return; t0 returns from saving
        # registers.
        function.jumps_to_register = True
        if not any(map(_TABLE_INDEX.match, recent)):
            function.calls_pointer = True


def _is_pointer_call(mnemonic: str, operands: str) -> bool:
    """Return whether an instruction calls (on Arm also: jumps) through a register."""
    match mnemonic:
        case "blx":
            return True
        case "bx":
            return not operands.startswith("lr")
        case "call" | "callq":
            return operands.startswith("*")
    return mnemonic in ("jalr", "callx0")


def _pushed(mnemonic: str, operands: str) -> int:
    """Return the bytes by which an instruction lowers the stack pointer.

    A push of x86 lowers it by 8.
    """
    base = mnemonic.split(".")[0]
    is_store = base in ("stmdb", "vstmdb") and operands.startswith("sp!")
    if is_store or base in ("push", "vpush"):
        return _list_bytes(operands) if "{" in operands else 8
    for pattern, radix in _LOWERING:
        match = pattern.match(f"{mnemonic} {operands}")
        if match:
            return int(match[1], radix)
    return 0


def _list_bytes(operands: str) -> int:
    """Return the size of a register list such as `{r4, r5, lr}` or `{d8-d15}`."""
    registers = _ARM_LIST.search(operands)
    if registers is None:
        return 0
    total = 0
    for item in registers[1].split(","):
        register = item.strip()
        count = 1
        span = _ARM_RANGE.fullmatch(register)
        if span:
            count = int(span[3]) - int(span[2]) + 1
        register_bytes = 8 if register.startswith("d") else 4
        total += count * register_bytes
    return total
