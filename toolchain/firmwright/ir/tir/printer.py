"""Printer of TIR functions in a small C-like language with Python ranges.

    func @add_1(in x: i8[8], out y: i8[8]) attrs {op="add"} {
      for i in 0..8 {
        y[i] = cast(i8, min(cast(i32, x[i]) + 1, 127))
      }
    }

Dtypes: a literal takes the dtype of the other operand or, without one, of its context
(index: the function's index type; stored value: the buffer's; loop bounds: the
variable's); arguments and other contexts use i32 or f32. A literal of any other dtype
carries a suffix: `0:u8`. The index type is i64 unless the head has `index(i32)`.
Intrinsic values carry their dtype: `smlad(a, b, c):i32`.

`allocate`, `alloc_const`, `decl` and `let` extend to the end of their block, or have a
block.
"""

import re
from collections.abc import Sequence
from typing import assert_never

from firmwright.base.dtypes import BOOL, FLOAT32, HANDLE, INT32, INT64, DType
from firmwright.base.tokenizer import format_float, format_global, format_local, quote
from firmwright.ir import tir
from firmwright.ir.core import Span
from firmwright.ir.syntax import (
    IRWriter,
    format_attrs,
    format_shape,
    format_span,
    format_word,
)
from firmwright.ir.tir.traversal import walk

OPERATORS: dict[str, tuple[str, int]] = {
    "or": ("|", 4),
    "xor": ("^", 5),
    "and": ("&", 6),
    "lt": ("<", 3),
    "le": ("<=", 3),
    "gt": (">", 3),
    "ge": (">=", 3),
    "eq": ("==", 3),
    "ne": ("!=", 3),
    "shl": ("<<", 7),
    "shr": (">>", 7),
    "add": ("+", 8),
    "sub": ("-", 8),
    "mul": ("*", 9),
    "div": ("/", 9),
    "mod": ("%", 9),
}
"""Symbol and precedence of each infix operator; higher binds tighter."""
LOGICAL: dict[str, tuple[str, int]] = {"or": ("||", 1), "and": ("&&", 2)}
"""Symbols of `or` and `and` on conditions."""
UNARY = 10
_KEYWORDS = """
for in if else while let seq allocate alloc_const decl call unrolled vectorized cast ptr
select min max true false inf nan span as op strides scope align
"""
KEYWORDS = frozenset(_KEYWORDS.split())
"""Names that must be written with a leading %."""
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BARE_CALL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*\Z")
ScopedStmt = tir.Allocate | tir.AllocateConst | tir.DeclBuffer | tir.Let


def print_prim(func: tir.PrimFunc, page: IRWriter, *, spans: bool = True) -> None:
    printer = TIRPrinter(index_dtype(func), spans=spans)
    params = ",\n".join(map(printer.param, func.params))
    head = f"func {format_global(func.name)}({params})"
    if printer.index != INT64:
        head += f"\nindex({printer.index.short})"
    if func.attrs:
        head += f"\nattrs {format_attrs(func.attrs)}"
    if spans and func.span != Span(""):
        head += f"\n{format_span(func.span)}"
    page.put(head + " {")
    printer.body(func.body, page)
    page.line("}")


def format_expr(expr: tir.Expr, index: DType = INT64) -> str:
    return TIRPrinter(index).expr(expr, index).replace("\n", " ")


def format_name(name: str) -> str:
    return name if _BARE.match(name) and name not in KEYWORDS else format_local(name)


def index_dtype(func: tir.PrimFunc) -> DType:
    """Return the dtype (i64 or i32) of most loop variables and literal indices."""
    votes = {INT64: 0, INT32: 0}
    for node in walk(func.body):
        places: tuple[tir.Expr, ...] = ()
        match node:
            case tir.For(var):
                places = (var,)
            case tir.BufferStore(_, indices) | tir.BufferLoad(_, indices):
                places = indices
            case tir.AccessPtr(_, offset):
                places = (offset,)
        for place in places:
            if isinstance(place, tir.IntImm | tir.Var) and place.dtype in votes:
                votes[place.dtype] += 1
    return INT32 if votes[INT32] > votes[INT64] else INT64


def evident_dtype(expr: tir.Expr) -> DType | None:
    """Return the dtype of `expr`, or None if it depends on untyped literals."""
    match expr:
        case tir.IntImm(value, dtype):
            return BOOL if dtype == BOOL and value in (0, 1) else None
        case tir.FloatImm():
            return None
        case tir.Binary(op) if op in tir.COMPARISONS:
            return BOOL
        case tir.Binary(_, a, b) | tir.Select(_, a, b):
            return evident_dtype(a) or evident_dtype(b)
        case _:
            return expr.dtype


class TIRPrinter:
    """Printer of expressions and statements for one index type."""

    __slots__ = ("index", "spans")

    def __init__(self, index: DType, *, spans: bool = True) -> None:
        self.index = index
        self.spans = spans

    def expr(self, expr: tir.Expr, want: DType | None, above: int = 0) -> str:
        """Format `expr` under precedence `above`; literals default to dtype `want`."""
        match expr:
            case tir.IntImm() | tir.FloatImm():
                return _format_literal(expr, want)
            case tir.Var(name):
                return format_name(name)
            case tir.Binary():
                return self._binary(expr, want, above)
            case tir.Not(a):
                return f"!{self.expr(a, BOOL, UNARY)}"
            case tir.Cast(dtype, value):
                return f"cast({dtype.short}, {self.expr(value, None)})"
            case tir.Select(cond, a, b):
                want = evident_dtype(a) or evident_dtype(b) or want
                arms = f"{self.expr(a, want)},\n{self.expr(b, want)}"
                return f"select({self.expr(cond, BOOL)},\n{arms})"
            case tir.BufferLoad(buffer, indices):
                return f"{format_name(buffer.name)}[{self._indices(indices)}]"
            case tir.AccessPtr(buffer, offset, extent, access, stride):
                start = self.expr(offset, self.index)
                parts = [format_name(buffer.name), start, str(extent), access]
                if stride != 1:
                    parts.append(str(stride))
                return f"ptr({', '.join(parts)})"
            case tir.IntrinsicCall(_, _, dtype):
                return f"{self.call(expr)}:{dtype.short}"
            case _:
                assert_never(expr)

    def _binary(self, expr: tir.Binary, want: DType | None, above: int) -> str:
        side = evident_dtype(expr.a) or evident_dtype(expr.b)
        if side is None and expr.op not in tir.COMPARISONS:
            side = want
        if expr.op in ("min", "max"):
            return f"{expr.op}({self.expr(expr.a, side)},\n{self.expr(expr.b, side)})"
        logical = side == BOOL and expr.op in LOGICAL
        symbol, level = (LOGICAL if logical else OPERATORS)[expr.op]
        compares = expr.op in tir.COMPARISONS
        left = self.expr(expr.a, side, level + compares)
        text = f"{left} {symbol}\n{self.expr(expr.b, side, level + 1)}"
        return f"({text})" if level < above else text

    def _indices(self, indices: Sequence[tir.Expr]) -> str:
        return ", ".join(self.expr(index, self.index) for index in indices)

    def call(self, call: tir.IntrinsicCall) -> str:
        is_bare = _BARE_CALL.match(call.name) and call.name not in KEYWORDS
        name = call.name if is_bare else format_global(call.name)
        return f"{name}({self.args(call.args)})"

    def args(self, args: Sequence[tir.Expr]) -> str:
        return ",\n".join(self.expr(arg, None) for arg in args)

    def param(self, param: tir.Param) -> str:
        value = param.value
        if isinstance(value, tir.Buffer):
            return f"{param.role} {self.declared(value)}"
        return f"{param.role} {format_name(value.name)}: {value.dtype.short}"

    def declared(self, buffer: tir.Buffer) -> str:
        text = f"{format_name(buffer.name)}: {format_shape(buffer.dtype, buffer.shape)}"
        if buffer.strides is not None:
            text += f" strides({', '.join(map(str, buffer.strides))})"
        if buffer.scope != "global":
            text += f" scope({format_word(buffer.scope)})"
        return text + (f" align({buffer.alignment})" if buffer.alignment != 1 else "")

    def body(self, stmt: tir.Stmt, page: IRWriter) -> None:
        with page.indent():
            while True:
                many = isinstance(stmt, tir.Seq) and len(stmt.stmts) != 1
                stmts = stmt.stmts if isinstance(stmt, tir.Seq) and many else (stmt,)
                for each in stmts[:-1]:
                    self._stmt(each, page)
                if not stmts:
                    return
                last = stmts[-1]
                if not isinstance(last, ScopedStmt):
                    self._stmt(last, page)
                    return
                page.put(self._scoped(last))
                stmt = last.body

    def _stmt(self, stmt: tir.Stmt, page: IRWriter) -> None:
        match stmt:
            case tir.BufferStore(buffer, indices, value):
                place = f"{format_name(buffer.name)}[{self._indices(indices)}]"
                page.put(f"{place} =\n{self.expr(value, buffer.dtype)}")
            case tir.Evaluate(call):
                kind = "" if call.dtype == HANDLE else f":{call.dtype.short}"
                page.put(self.call(call) + kind)
            case tir.PrimFuncCall():
                page.put(self._call_prim(stmt))
            case tir.For(body=body):
                self._block(self._for_head(stmt), body, page)
            case tir.While(cond, body):
                self._block(f"while {self.expr(cond, BOOL)}", body, page)
            case tir.If():
                self._if(stmt, page)
            case tir.Seq():
                page.line("seq {")
                for each in stmt.stmts:
                    with page.indent():
                        self._stmt(each, page)
                page.line("}")
            case tir.Allocate() | tir.AllocateConst() | tir.DeclBuffer() | tir.Let():
                self._block(self._scoped(stmt), stmt.body, page)
            case _:
                assert_never(stmt)

    def _block(self, head: str, body: tir.Stmt, page: IRWriter) -> None:
        page.put(head + " {")
        self.body(body, page)
        page.line("}")

    def _if(self, stmt: tir.If, page: IRWriter) -> None:
        head = "if"
        while True:
            page.put(f"{head} {self.expr(stmt.cond, BOOL)} {{")
            self.body(stmt.then, page)
            if stmt.orelse is None:
                break
            if not isinstance(stmt.orelse, tir.If):
                page.line("} else {")
                self.body(stmt.orelse, page)
                break
            stmt, head = stmt.orelse, "} else if"
        page.line("}")

    def _for_head(self, stmt: tir.For) -> str:
        kind = "" if stmt.kind == "serial" else f"{stmt.kind} "
        name, dtype = format_name(stmt.var.name), stmt.var.dtype
        if dtype != self.index:
            name += f": {dtype.short}"
        return f"{kind}for {name} in {self._range(stmt.start, stmt.extent, dtype)}"

    def _range(self, start: tir.Expr, extent: tir.Expr, dtype: DType) -> str:
        """Format as `first..end` for literals or a start of 0, else `first..+count`."""
        first = self.expr(start, dtype, UNARY)
        if "%" in first:  # the dots would be read as part of a name such as %min
            first = f"({first})"
        if isinstance(start, tir.IntImm) and start.dtype == dtype:
            if not isinstance(extent, tir.IntImm):
                if first == "0":
                    return f"0..{self.expr(extent, dtype)}"
            elif extent.dtype == dtype and start.value + extent.value >= 0:
                return f"{first}..{start.value + extent.value}"
        return f"{first}..+{self.expr(extent, dtype, UNARY)}"

    def _scoped(self, stmt: ScopedStmt) -> str:
        match stmt:
            case tir.Allocate(buffer, _, kind):
                role = "" if kind == "scratch" else f" as {format_word(kind)}"
                return f"allocate {self.declared(buffer)}{role}"
            case tir.AllocateConst(buffer, constant):
                declared = self.declared(buffer)
                return f"alloc_const {declared} =\n{format_global(constant)}"
            case tir.DeclBuffer(buffer, source):
                return f"decl {self.declared(buffer)} =\n{self.expr(source, None)}"
            case tir.Let(var, value):
                head = f"let {format_name(var.name)}"
                if (evident_dtype(value) or self.index) != var.dtype:
                    head += f": {var.dtype.short}"
                return f"{head} =\n{self.expr(value, var.dtype)}"
            case _:
                assert_never(stmt)

    def _call_prim(self, stmt: tir.PrimFuncCall) -> str:
        phase = "" if stmt.phase == "call" else f"{stmt.phase} "
        place = f"on {quote(stmt.device)} " if stmt.device else ""
        callee = format_global(stmt.callee)
        text = f"call {phase}{place}{callee}({self.args(stmt.args)})"
        if stmt.op != -1:
            text += f" op {stmt.op}"
        has_span = self.spans and stmt.span != Span("")
        return f"{text}\n{format_span(stmt.span)}" if has_span else text


def _format_literal(expr: tir.IntImm | tir.FloatImm, want: DType | None) -> str:
    if isinstance(expr, tir.FloatImm):
        text, default = format_float(expr.value), FLOAT32
    elif expr.dtype == BOOL and expr.value in (0, 1):
        return "true" if expr.value else "false"
    else:
        text, default = str(int(expr.value)), INT32
    return text if expr.dtype == (want or default) else f"{text}:{expr.dtype.short}"
