"""The record of an intrinsic: one operation with a numpy meaning, a C meaning and target text.

An intrinsic printed in C is a `static inline` function (or, for statement blocks with pointers, a
function too: the compiler sees the same text either way). Its body is `portable`, unless the
target has the feature `requires` and inline assembly is on: then it is `text`. The numpy meaning
is what the interpreter runs and what the tests compare both C bodies with; it must work
elementwise on arrays of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from firmwright.base.dtypes import DType
from firmwright.ir import tir

OperandKind: TypeAlias = Literal["in", "out", "inout", "ptr", "imm"]


@dataclass(frozen=True, slots=True)
class Operand:
    """A register operand, or a pointer with the region it touches.

    For `ptr`: `dtype` is the element type, `extent` the elements touched from the pointer on,
    `stride` the distance between touched rows (0 = contiguous), `post_increment` how many
    elements the pointer has advanced afterwards.
    """

    name: str
    kind: OperandKind
    dtype: DType
    access: tir.AccessMode = "r"
    extent: int = 0
    stride: int = 0
    post_increment: int = 0


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """See the module docstring. `result` is None for statements.

    `portable` and `text` are C statements over the operand names, ending in `return` where there
    is a result; `text` maps a compiler family (`gnu` covers gcc and clang) to its body.
    `definitions` are preprocessor macros that `text` uses, printed once per file.
    `instructions` and `cycles` (per core, issue cost) feed the cost model; where the instructions
    depend on immediates, `count` computes them from the arguments (0 for what is none).
    With `symbol` it is the C function of that name, which is not generated and has no body here;
    `header` is the file that declares it, "" where its operands do.
    """

    name: str
    operands: tuple[Operand, ...]
    result: DType | None
    meaning: Callable[..., Any]
    portable: str
    doc: str
    requires: str = ""
    text: Mapping[str, str] = field(default_factory=dict)
    definitions: tuple[str, ...] = ()
    clobbers: tuple[str, ...] = ()
    instructions: int = 1
    cycles: Mapping[str, int] = field(default_factory=dict)
    count: Callable[[Sequence[int]], int] | None = None
    symbol: str = ""
    header: str = ""


IntrinsicTable: TypeAlias = Mapping[str, Intrinsic]
