"""Verification of TIR expressions: types, names and bounds (see `tir/verify.py`)."""

import math
from dataclasses import dataclass

from firmwright.base.dtypes import BOOL, HANDLE, DType
from firmwright.ir import tir
from firmwright.ir.tir.affine import Bounds, linearize
from firmwright.ir.tir.intrinsic import Intrinsic, IntrinsicTable, Operand
from firmwright.ir.tir.printer import format_expr
from firmwright.ir.tir.traversal import Node, children

_BITWISE = frozenset({"and", "or", "xor"})
_INTEGER_ONLY = frozenset({"mod", "shl", "shr"})
_DEPTH_MAX = 100  # limit for expressions whose bounds are checked


@dataclass(frozen=True, slots=True)
class VisibleBuffer:
    """A buffer in scope: its root, and why it is read-only ("" if it is writable)."""

    buffer: tir.Buffer
    read_only: str
    root: str


class ExprVerifier:
    """Verifier of one function's expressions, with the names and bounds in scope."""

    def __init__(self, intrinsics: IntrinsicTable) -> None:
        self.intrinsics = intrinsics
        self.diagnostics: list[str] = []
        self.buffers: dict[str, VisibleBuffer] = {}
        self.vars: dict[str, tir.Var] = {}
        self.bounds = Bounds()

    def report(self, message: str) -> None:
        if message not in self.diagnostics:
            self.diagnostics.append(message)

    def typed(self, expr: tir.Expr, want: DType, subject: str) -> None:
        self.check(expr)
        if expr.dtype != want:
            found = f"{subject} {format_expr(expr)} is {expr.dtype.short}"
            self.report(f"{found}, expected {want.short}")

    def integer(self, expr: tir.Expr, subject: str) -> bool:
        """Check that `expr` is a valid integer of bounded depth."""
        self.check(expr)
        if not expr.dtype.is_int:
            found = f"{subject} {format_expr(expr)} is {expr.dtype.short}"
            self.report(f"{found}, expected an integer")
            return False
        if isinstance(expr, tir.IntImm | tir.Var):
            return True
        if depth_exceeds(expr, _DEPTH_MAX):
            found = f"{subject} is deeper than {_DEPTH_MAX} operators"
            self.report(f"{found}: bind parts of it by let")
            return False
        return True

    def check(self, expr: tir.Expr) -> None:
        match expr:
            case tir.IntImm() | tir.FloatImm():
                self._immediate(expr)
            case tir.Var(name):
                if self.vars.get(name) != expr:
                    shown = f"variable {name}: {expr.dtype.short}"
                    self.report(f"{shown} is not declared here")
            case tir.Binary(op, a, b):
                self.check(a)
                self.check(b)
                self._operator(op, a.dtype, b.dtype, expr)
            case tir.Not(a):
                self.typed(a, BOOL, "the operand of !,")
            case tir.Cast(dtype, value):
                self.check(value)
                if HANDLE in (dtype, value.dtype):
                    self.report(f"{format_expr(expr)} casts a pointer")
            case tir.Select(cond, a, b):
                self.typed(cond, BOOL, "the condition")
                self.check(a)
                self.typed(b, a.dtype, "the other side of a select,")
            case tir.BufferLoad(buffer, indices):
                self.access(buffer, indices)
            case tir.AccessPtr():
                self.report(f"the pointer {format_expr(expr)} is used as a value")
            case tir.IntrinsicCall():
                self._value_call(expr)

    def _immediate(self, expr: tir.IntImm | tir.FloatImm) -> None:
        if isinstance(expr, tir.FloatImm):
            if not expr.dtype.is_float:
                self.report(f"the float literal {expr.value!r} is {expr.dtype.short}")
        elif not (expr.dtype.is_int or expr.dtype == BOOL):
            self.report(f"the integer literal {expr.value} is {expr.dtype.short}")
        elif not expr.dtype.min <= expr.value <= expr.dtype.max:
            self.report(f"the literal {expr.value} does not fit {expr.dtype.short}")

    def _operator(self, op: str, a: DType, b: DType, expr: tir.Expr) -> None:
        if a != b:
            self.report(f"{format_expr(expr)} has operands of {a.short} and {b.short}")
        elif op in _BITWISE:
            good = a.is_int or a == BOOL
        else:
            good = a.is_int or (a.is_float and op not in _INTEGER_ONLY)
            good = good or (a == BOOL and op in tir.COMPARISONS)
        if a == b and not good:
            found = f"{format_expr(expr)} has operands of {a.short}"
            self.report(f"{found}, which {op} does not take")

    def known(self, buffer: tir.Buffer) -> VisibleBuffer | None:
        home = self.buffers.get(buffer.name)
        if home is None or home.buffer != buffer:
            self.report(f"buffer {buffer.name} is not declared here")
            return None
        return home

    def access(self, buffer: tir.Buffer, indices: tuple[tir.Expr, ...]) -> None:
        """Verify a load or store: rank, index types, bounds; constants in registers."""
        self.known(buffer)
        if len(indices) != len(buffer.shape):
            found = f"{_format_access(buffer, indices)} has {len(indices)} indices"
            self.report(f"{found}, the buffer {len(buffer.shape)} axes")
            return
        for axis, index in enumerate(indices):
            if not isinstance(index, tir.IntImm):
                if buffer.scope == "reg":
                    shown = _format_access(buffer, indices)
                    self.report(f"{shown}: registers are indexed by constants only")
                else:
                    self._index(buffer, indices, axis)
            elif index.dtype.is_int and 0 <= index.value < buffer.shape[axis]:
                self._immediate(index)
            else:
                self._index(buffer, indices, axis)

    def _index(
        self, buffer: tir.Buffer, indices: tuple[tir.Expr, ...], axis: int
    ) -> None:
        index, last = indices[axis], buffer.shape[axis] - 1
        if not self.integer(index, f"index {axis} of {buffer.name},"):
            return
        if not self.bounds.proves_within(index, 0, last):
            shown, there = _format_access(buffer, indices), self._format_interval(index)
            self.report(f"{shown}: index {axis} is in {there}, outside of 0..{last}")

    def pointer(self, pointer: tir.AccessPtr) -> VisibleBuffer | None:
        """Check that a pointer stays in its buffer and writes no read-only memory."""
        buffer = pointer.buffer
        home = self.known(buffer)
        if buffer.scope == "reg":
            self.report(f"{format_expr(pointer)} points to registers")
        if pointer.extent < 0:
            self.report(f"{format_expr(pointer)} has a negative extent")
        if pointer.stride < 1:
            self.report(f"{format_expr(pointer)} has a stride below 1")
        if home is not None and home.read_only and "w" in pointer.access:
            self.report(f"{format_expr(pointer)} may write to {home.read_only}")
        last = buffer.span_elements - pointer.extent
        subject = f"the offset of a pointer to {buffer.name},"
        valid = self.integer(pointer.offset, subject)
        if valid and not self.bounds.proves_within(pointer.offset, 0, last):
            shown, there = format_expr(pointer), self._format_interval(pointer.offset)
            self.report(f"{shown}: the offset is in {there}, outside of 0..{last}")
        return home

    def _format_interval(self, expr: tir.Expr) -> str:
        limits = self.bounds.tight_interval_of(expr)
        return "an unknown range" if limits is None else f"{limits[0]}..{limits[1]}"

    def aligned(self, pointer: tir.AccessPtr, alignment: int, subject: str) -> None:
        """Check that the address is provably a multiple of `alignment`."""
        if alignment <= 1 or depth_exceeds(pointer.offset, _DEPTH_MAX):
            return
        if not pointer.buffer.dtype.bits:
            return
        form = self.bounds.expand(linearize(pointer.offset))
        elements = math.gcd(form.constant, *form.terms.values())
        step = elements * pointer.buffer.dtype.size_bytes
        proved = math.gcd(step, pointer.buffer.alignment)
        if proved % alignment:
            found = f"{format_expr(pointer)} is aligned to {proved}"
            self.report(f"{subject} needs alignment {alignment}, {found}")

    def _value_call(self, call: tir.IntrinsicCall) -> None:
        intrinsic = self._intrinsic(call)
        if intrinsic is None:
            return
        if intrinsic.result is None:
            self.report(f"intrinsic {call.name} returns no value")
        elif intrinsic.result != call.dtype:
            dtypes = f"{intrinsic.result.short}, not {call.dtype.short}"
            self.report(f"intrinsic {call.name} gives {dtypes}")
        for operand in intrinsic.operands:
            writes_memory = operand.kind == "ptr" and operand.access != "r"
            if operand.kind in ("out", "inout") or writes_memory:
                found = f"intrinsic {call.name} writes to {operand.name}"
                self.report(f"{found}, so it is not a value")

    def statement_call(self, call: tir.IntrinsicCall) -> None:
        intrinsic = self._intrinsic(call)
        if intrinsic is not None and intrinsic.result is not None:
            self.report(f"the value of intrinsic {call.name} is unused")

    def _intrinsic(self, call: tir.IntrinsicCall) -> Intrinsic | None:
        intrinsic = self.intrinsics.get(call.name)
        if intrinsic is None:
            self.report(f"intrinsic {call.name} is unknown")
            return None
        if len(call.args) != len(intrinsic.operands):
            found = f"intrinsic {call.name} has {len(call.args)} arguments"
            self.report(f"{found}, expected {len(intrinsic.operands)}")
            return None
        names = (operand.name for operand in intrinsic.operands)
        by_name = dict(zip(names, call.args, strict=True))
        for operand, arg in zip(intrinsic.operands, call.args, strict=True):
            subject = f"{operand.name} of {call.name}"
            self._operand(subject, operand, arg)
            times = by_name.get(operand.times)
            if times is None or not isinstance(arg, tir.AccessPtr):
                continue
            if not self.bounds.proves_within(times, 0, arg.extent // operand.extent):
                shown = f"{subject}: {format_expr(arg)} covers {arg.extent} elements"
                needed = f"{format_expr(times)} times {operand.extent} are needed"
                self.report(f"{shown}, {needed}")
        return intrinsic

    def _operand(self, subject: str, operand: Operand, arg: tir.Expr) -> None:
        match operand.kind:
            case "ptr":
                self._pointer_operand(subject, operand, arg)
            case "imm" if not isinstance(arg, tir.IntImm | tir.FloatImm):
                self.report(f"{subject}: {format_expr(arg)} must be a literal")
            case "out" | "inout":
                if isinstance(arg, tir.BufferLoad) and arg.buffer.scope == "reg":
                    self.typed(arg, operand.dtype, f"{subject}:")
                else:
                    self.report(f"{subject}: {format_expr(arg)} must be a register")
            case _:
                self.typed(arg, operand.dtype, f"{subject}:")

    def _pointer_operand(self, subject: str, operand: Operand, arg: tir.Expr) -> None:
        if not isinstance(arg, tir.AccessPtr):
            self.report(f"{subject}: {format_expr(arg)} must be a pointer")
            return
        self.pointer(arg)
        shown = f"{subject}: {format_expr(arg)}"
        needed = max(operand.extent, operand.post_increment)
        if arg.buffer.dtype != operand.dtype:
            dtypes = f"{arg.buffer.dtype.short}, expected {operand.dtype.short}"
            self.report(f"{shown} is to {dtypes}")
        if not set(operand.access) <= set(arg.access):
            self.report(f"{shown} allows {arg.access}, {operand.access} is needed")
        if arg.extent < needed:
            self.report(f"{shown} covers {arg.extent} elements, {needed} are needed")


def depth_exceeds(expr: tir.Expr, limit: int) -> bool:
    """Return whether `expr` is nested deeper than `limit`, without recursion."""
    level: list[Node] = [expr]
    for _ in range(limit):
        level = [child for node in level for child in children(node)]
        if not level:
            return False
    return True


def _format_access(buffer: tir.Buffer, indices: tuple[tir.Expr, ...]) -> str:
    return f"{buffer.name}[{', '.join(map(format_expr, indices))}]"
