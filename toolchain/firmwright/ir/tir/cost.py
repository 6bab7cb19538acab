"""A first model of cost: executed instructions of a PrimFunc, predicted from its TIR.

Each node has a weight, each loop a trip count; loops cost two instructions a trip. Register moves
and address arithmetic that compilers hide are not counted, so predictions are comparable with
each other more than with a machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.base.errors import InternalError
from firmwright.ir.tir.intrinsic import Intrinsic, IntrinsicTable
from firmwright.ir.tir.nodes import (
    AccessPtr,
    Allocate,
    AllocateConst,
    Binary,
    BufferLoad,
    BufferStore,
    Call,
    CallPrim,
    Cast,
    DeclBuffer,
    Evaluate,
    Expr,
    FloatImm,
    For,
    If,
    IntImm,
    Let,
    Not,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Var,
    While,
)

_LOOP_STEP = 2
_UNKNOWN_TRIPS = 8


def instructions(func: PrimFunc, intrinsics: IntrinsicTable) -> int:
    """Predicted instructions of one call of `func`, without those of functions it calls."""
    return _Cost(intrinsics).stmt(func.body)


class _Cost:
    def __init__(self, intrinsics: IntrinsicTable) -> None:
        self.intrinsics = intrinsics

    def stmt(self, node: Stmt | None) -> int:
        match node:
            case None:
                return 0
            case For(extent=extent, body=body):
                trips = extent.value if isinstance(extent, IntImm) else _UNKNOWN_TRIPS
                return trips * (self.stmt(body) + _LOOP_STEP)
            case BufferStore(buffer=buffer, value=value):
                return self.expr(value) + (0 if buffer.scope == "reg" else 1)
            case Let(value=value, body=body):
                return self.expr(value) + self.stmt(body)
            case If(cond=cond, then=then, orelse=orelse):
                return self.expr(cond) + 1 + max(self.stmt(then), self.stmt(orelse))
            case While(cond=cond, body=body):
                return _UNKNOWN_TRIPS * (self.expr(cond) + self.stmt(body) + _LOOP_STEP)
            case Seq(stmts=stmts):
                return sum(self.stmt(item) for item in stmts)
            case Allocate(body=body) | AllocateConst(body=body):
                return self.stmt(body)
            case DeclBuffer(body=body):
                return 1 + self.stmt(body)
            case Evaluate(call=call):
                return self.expr(call)
            case CallPrim(args=args):
                return len(args) + 1

    def expr(self, node: Expr) -> int:
        match node:
            case IntImm() | FloatImm() | Var() | AccessPtr():
                return 0
            case BufferLoad(buffer=buffer):
                return 0 if buffer.scope == "reg" else 1
            case Binary(a=a, b=b):
                return 1 + self.expr(a) + self.expr(b)
            case Not(a=a):
                return 1 + self.expr(a)
            case Cast(value=value):
                return self.expr(value)
            case Select(cond=cond, a=a, b=b):
                return 1 + self.expr(cond) + self.expr(a) + self.expr(b)
            case Call(name=name, args=args):
                found = self.intrinsics.get(name)
                if found is None:
                    raise InternalError(f"intrinsic {name} is not in the table")
                return _executed(found, args) + sum(self.expr(arg) for arg in args)


def _executed(found: Intrinsic, args: Sequence[Expr]) -> int:
    if found.count is None:
        return found.instructions
    return found.count([arg.value if isinstance(arg, IntImm) else 0 for arg in args])
