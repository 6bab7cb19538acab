"""Decoded machine instructions, reduced to the properties that determine their timing."""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

InstructionKind: TypeAlias = Literal[
    "alu",
    "load",
    "store",
    "load_multiple",
    "store_multiple",
    "multiply",
    "multiply_long",
    "divide",
    "branch",
    "call",
    "loop",
    "float",
    "float_multiply_add",
    "float_divide",
    "vector",
    "vector_load",
    "vector_store",
]
INSTRUCTION_KINDS: tuple[InstructionKind, ...] = get_args(InstructionKind)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction; `registers` counts the words of a multiple load or store."""

    size_bytes: int
    kind: InstructionKind
    registers: int = 1
