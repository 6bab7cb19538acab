"""Nodes of TIR: a closed union of frozen, slotted dataclasses on one screen.

Meaning in brief. Integer arithmetic is two's complement of the expression's dtype and must not
overflow (sanitizer builds check). `div` and `mod` truncate as in C. `shr` is arithmetic for signed
dtypes. Half-open ranges everywhere. Both operands of a `Binary` have one dtype (shifts included);
comparisons give `bool`.

Memory. A `Buffer` is a typed, strided view; its name is unique within the PrimFunc. Scopes:
`global` (planned memory), `const`, `reg` (indexed by constants only, prints as C scalars), `pool`
(a byte array of the memory plan). `DeclBuffer` gives a typed window into another buffer: hoisted
addresses, reinterpreted words, planned offsets. `AccessPtr` is a pointer into a buffer together
with the elements that may be touched through it: verifier, overlap analysis and sanitizer builds
believe it.

Calls. `IntrinsicCall` names an intrinsic (see `intrinsic.py`): as a value it is pure; inside
`Evaluate` it
is a statement whose register operands are `BufferLoad`s of `reg` buffers and whose pointer
operands are `AccessPtr`s. `PrimFuncCall` calls a PrimFunc of the module: only the AOT main does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from firmwright.base.dtypes import BOOL, HANDLE, DType
from firmwright.ir.core import Attr, Span

BinaryOp: TypeAlias = Literal[
    "add", "sub", "mul", "div", "mod", "min", "max", "shl", "shr", "and", "or", "xor",
    "lt", "le", "gt", "ge", "eq", "ne",
]  # fmt: skip
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
ForKind: TypeAlias = Literal["serial", "unrolled", "vectorized"]
AccessMode: TypeAlias = Literal["r", "w", "rw"]
ParamRole: TypeAlias = Literal["in", "out", "inout", "scratch", "const", "pool", "scalar"]
CallPhase: TypeAlias = Literal["call", "start", "wait"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A typed window of memory. `strides` are in elements; None means compact row-major.

    `alignment` is what the first element's address is a multiple of, in bytes.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    scope: str = "global"
    alignment: int = 1

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.elements * self.dtype.size_bytes

    @property
    def element_strides(self) -> tuple[int, ...]:
        if self.strides is not None:
            return self.strides
        return tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))


# ---- expressions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IntImm:
    value: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class FloatImm:
    value: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class Var:
    """A scalar bound by a `For`, a `Let` or a scalar parameter; names are unique in a PrimFunc."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Binary:
    op: BinaryOp
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return BOOL if self.op in COMPARISONS else self.a.dtype


@dataclass(frozen=True, slots=True)
class Not:
    a: Expr

    @property
    def dtype(self) -> DType:
        return BOOL


@dataclass(frozen=True, slots=True)
class Cast:
    """Value conversion; to a narrower integer it keeps the low bits, from float it truncates."""

    dtype: DType
    value: Expr


@dataclass(frozen=True, slots=True)
class Select:
    """`a` if `cond` else `b`; both sides may be evaluated, so both must be in bounds."""

    cond: Expr
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return self.a.dtype


@dataclass(frozen=True, slots=True)
class BufferLoad:
    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


@dataclass(frozen=True, slots=True)
class AccessPtr:
    """Pointer to element `offset` (flat, in elements) of `buffer`, good for `extent` elements."""

    buffer: Buffer
    offset: Expr
    extent: int
    access: AccessMode

    @property
    def dtype(self) -> DType:
        return HANDLE


@dataclass(frozen=True, slots=True)
class IntrinsicCall:
    """An intrinsic applied to arguments."""

    name: str
    args: tuple[Expr, ...]
    dtype: DType


Expr: TypeAlias = (
    IntImm | FloatImm | Var | Binary | Not | Cast | Select | BufferLoad | AccessPtr | IntrinsicCall
)

# ---- statements ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class For:
    """`for var in start .. start + extent`."""

    var: Var
    start: Expr
    extent: Expr
    body: Stmt
    kind: ForKind = "serial"


@dataclass(frozen=True, slots=True)
class BufferStore:
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Let:
    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, slots=True)
class If:
    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@dataclass(frozen=True, slots=True)
class While:
    cond: Expr
    body: Stmt


@dataclass(frozen=True, slots=True)
class Seq:
    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Allocate:
    """Memory for `buffer` during `body`; contents start undefined. `kind` says what it holds."""

    buffer: Buffer
    body: Stmt
    kind: str = "scratch"


@dataclass(frozen=True, slots=True)
class AllocateConst:
    """`buffer` stands for the constant of that name in the module's table during `body`."""

    buffer: Buffer
    constant: str
    body: Stmt


@dataclass(frozen=True, slots=True)
class DeclBuffer:
    """`buffer` is a typed window of `source`'s extent during `body`."""

    buffer: Buffer
    source: AccessPtr
    body: Stmt


@dataclass(frozen=True, slots=True)
class Evaluate:
    """An intrinsic executed for its effect."""

    call: IntrinsicCall


@dataclass(frozen=True, slots=True)
class PrimFuncCall:
    """Call of a PrimFunc of the module, one argument per parameter.

    `op` is the operator's index in the AOT main (what probes report), -1 outside of it. `device`
    does it, "" is the core that runs the main. A call of another device may be done in two steps:
    `start` begins it behind what that device was given before, `wait` ends it; both are equal but
    for the phase, and what the call touches is its own in between (`phases.py`).
    """

    callee: str
    args: tuple[Expr, ...]
    span: Span = Span("")
    op: int = -1
    device: str = ""
    phase: CallPhase = "call"


Stmt: TypeAlias = (
    For
    | BufferStore
    | Let
    | If
    | While
    | Seq
    | Allocate
    | AllocateConst
    | DeclBuffer
    | Evaluate
    | PrimFuncCall
)


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: a buffer (a plain pointer in C) or, with role `scalar`, a variable."""

    value: Buffer | Var
    role: ParamRole

    @property
    def name(self) -> str:
        return self.value.name


@dataclass(frozen=True, slots=True)
class PrimFunc:
    """One kernel, or with attribute `aot_main` the program that calls the kernels.

    Known attributes: `op` (operator name), `schedule` (rule that built it), `comment` (what the C
    reader sees), `macs`, `target` (name in `IRModule.targets`), `disable_scheduling` (see
    `schedule.py`),
    `aot_main`, `code` (the function that serves it in C; see passes/tir/outline_common_kernels.py).
    """

    name: str
    params: tuple[Param, ...]
    body: Stmt
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    span: Span = Span("")

    @property
    def code(self) -> str:
        """The name of its C function, which other kernels may have in common with it."""
        return str(self.attrs.get("code", self.name))
