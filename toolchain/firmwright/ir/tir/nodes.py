"""TIR nodes: a closed union of frozen, slotted dataclasses.

Arithmetic: integers use two's complement and must not overflow (sanitizer builds
check). `div` and `mod` truncate as in C. `shr` is arithmetic for signed dtypes. Ranges
are half-open. Both operands of a `Binary` have the same dtype, shifts included;
comparisons return `bool`.

Memory: a `Buffer` is a typed, strided view with a name unique in the PrimFunc. Scopes
are `global` (planned memory), `const`, `reg` (constant indices only, printed as C
scalars) and `pool` (a byte array of the memory plan). `DeclBuffer` declares a typed
view of another buffer: a hoisted address, reinterpreted words or a planned offset.
`AccessPtr` is a pointer with the number of elements that may be accessed through it.

Calls: `IntrinsicCall` names an intrinsic (`intrinsic.py`). As a value it is pure. In
`Evaluate` it is a statement; register operands are then `BufferLoad`s of `reg` buffers,
pointer operands `AccessPtr`s. `PrimFuncCall` calls a PrimFunc of the module and occurs
only in the AOT main.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from firmwright.base.dtypes import BOOL, HANDLE, DType
from firmwright.ir.core import Attr, Span

BinaryOp: TypeAlias = Literal[
    "add",
    "sub",
    "mul",
    "div",
    "mod",
    "min",
    "max",
    "shl",
    "shr",
    "and",
    "or",
    "xor",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
]
"""Of floats, `max` is the first operand if it is greater than the second, else the
second, as in `a > b ? a : b`; `min` likewise. So NaN as the first operand is dropped,
and NaN as the second is the result.
"""
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
ForKind: TypeAlias = Literal["serial", "unrolled", "vectorized"]
AccessMode: TypeAlias = Literal["r", "w", "rw"]
ParamRole: TypeAlias = Literal[
    "in", "out", "inout", "scratch", "const", "pool", "scalar"
]
CallPhase: TypeAlias = Literal["call", "start", "wait"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """A typed view of memory. `strides` are in elements; None means compact row-major.

    `alignment` is the alignment of the first element's address in bytes.
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

    @property
    def span_elements(self) -> int:
        """The elements from the first to the last, gaps between strides included."""
        if 0 in self.shape:
            return 0
        steps = zip(self.shape, self.element_strides, strict=True)
        return 1 + sum((extent - 1) * stride for extent, stride in steps)

    @property
    def span_bytes(self) -> int:
        return self.span_elements * self.dtype.size_bytes


# ---- expressions ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IntImm:
    """An integer literal."""

    value: int
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class FloatImm:
    """A float literal; 0.0 and -0.0 are different ones."""

    value: float
    dtype: DType

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FloatImm) or self.dtype != other.dtype:
            return False
        signs = (math.copysign(1, each.value) for each in (self, other))
        return self.value == other.value and len(set(signs)) == 1

    def __hash__(self) -> int:
        return hash((self.value, self.dtype))


@dataclass(frozen=True, slots=True)
class Var:
    """A scalar of a `For`, `Let` or parameter; its name is unique in the PrimFunc."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Binary:
    """A binary operation on operands of one dtype."""

    op: BinaryOp
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return BOOL if self.op in COMPARISONS else self.a.dtype


@dataclass(frozen=True, slots=True)
class Not:
    """A Boolean negation."""

    a: Expr

    @property
    def dtype(self) -> DType:
        return BOOL


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion: narrower integers keep the low bits, floats are truncated."""

    dtype: DType
    value: Expr


@dataclass(frozen=True, slots=True)
class Select:
    """`a` if `cond` else `b`; both may be evaluated, so both must be in bounds."""

    cond: Expr
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return self.a.dtype


@dataclass(frozen=True, slots=True)
class BufferLoad:
    """The element of a buffer at `indices`."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


@dataclass(frozen=True, slots=True)
class AccessPtr:
    """A pointer to element `offset` (flat) of `buffer`, valid for `extent` elements.

    Every `stride`-th of them may be accessed, from the first one.
    """

    buffer: Buffer
    offset: Expr
    extent: int
    access: AccessMode
    stride: int = 1

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
    IntImm
    | FloatImm
    | Var
    | Binary
    | Not
    | Cast
    | Select
    | BufferLoad
    | AccessPtr
    | IntrinsicCall
)

# ---- statements ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class For:
    """A loop `for var in start .. start + extent`.

    Iterations of a `vectorized` loop are independent, and none reads what one writes:
    they may be computed together, with all loads before all stores.
    """

    var: Var
    start: Expr
    extent: Expr
    body: Stmt
    kind: ForKind = "serial"


@dataclass(frozen=True, slots=True)
class BufferStore:
    """A write of one element."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Let:
    """A binding of a variable for the statements in `body`."""

    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, slots=True)
class If:
    """A conditional statement."""

    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@dataclass(frozen=True, slots=True)
class While:
    """A loop that runs while its condition holds."""

    cond: Expr
    body: Stmt


@dataclass(frozen=True, slots=True)
class Seq:
    """Statements in order."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Allocate:
    """Memory for `buffer` during `body`, undefined at first.

    `kind` is a `BufferKind` or `reg`.
    """

    buffer: Buffer
    body: Stmt
    kind: str = "scratch"


@dataclass(frozen=True, slots=True)
class AllocateConst:
    """Links `buffer` to the named constant of the module's table during `body`."""

    buffer: Buffer
    constant: str
    body: Stmt


@dataclass(frozen=True, slots=True)
class DeclBuffer:
    """Declares `buffer` as a typed view of the memory of `source` during `body`."""

    buffer: Buffer
    source: AccessPtr
    body: Stmt


@dataclass(frozen=True, slots=True)
class Evaluate:
    """An intrinsic executed for its effect."""

    call: IntrinsicCall


@dataclass(frozen=True, slots=True)
class PrimFuncCall:
    """A call of a PrimFunc of the module, with one argument per parameter.

    `op` is the operator's index in the AOT main, as reported by probes (-1 elsewhere).
    `device` executes the call ("": the main core). A call on another device may be
    split: `start` queues it and `wait`, equal except for the phase, completes it; its
    memory is reserved in between (`ir/tir/verify_async_calls.py`).
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
    """A parameter: a buffer (a pointer in C) or, with role `scalar`, a variable."""

    value: Buffer | Var
    role: ParamRole

    @property
    def name(self) -> str:
        return self.value.name


@dataclass(frozen=True, slots=True)
class PrimFunc:
    """A kernel or, with attribute `aot_main`, the program that calls the kernels.

    Known attributes: `op` (operator name), `schedule` (the schedule that built it),
    `comment` (for the C source), `macs`, `target` (name in `IRModule.targets`),
    `disable_scheduling` and `keep_block_order` (see `ops/schedule.py`), `aot_main`,
    `code` (C function that implements it; see `passes/tir/outline_common_kernels.py`).
    """

    name: str
    params: tuple[Param, ...]
    body: Stmt
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    span: Span = Span("")

    @property
    def code(self) -> str:
        """The name of the C function, which several kernels may share."""
        return str(self.attrs.get("code", self.name))
