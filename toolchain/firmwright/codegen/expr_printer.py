"""Translation of TIR expressions to C.

Casts and parentheses appear only where their absence would change the value or cause a
warning. The C adds no undefined behavior: signed left shifts become products or use
unsigned types, 64-bit arithmetic has a 64-bit operand, and unsigned arithmetic wraps at
its own width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

import numpy as np

from firmwright.base import dtypes
from firmwright.base.dtypes import BOOL, INT32, UINT32, DType
from firmwright.base.errors import InternalError
from firmwright.codegen import c_expr
from firmwright.codegen.c_expr import PRIMARY, SUM, UNARY, CExpr, cast_to, convert_to
from firmwright.codegen.c_names import (
    BufferBinding,
    ModelNames,
    PointerBinding,
    RegisterBinding,
)
from firmwright.codegen.used_helpers import UsedHelpers, name_called_intrinsics
from firmwright.ir import tir
from firmwright.ir.tir.flat_index import flat_index, fold_index
from firmwright.ir.tir.intervals import Interval
from firmwright.ir.tir.intrinsic import Intrinsic, IntrinsicTable, Operand

_POSITIVE_INT16 = DType("uint15", "u15", 15, dtypes.INT16.c_type)
"""The range of int16 after a relu."""
_NARROW = (dtypes.INT8, dtypes.UINT8, dtypes.INT16, dtypes.UINT16, _POSITIVE_INT16)
_SATURATIONS: Mapping[tuple[float, float], DType] = {(d.min, d.max): d for d in _NARROW}
_BYTE_TYPES = frozenset({"int8_t", "uint8_t", "void"})


def cast_type(pointee: str) -> str:
    """Return the type in the cast of an aligned byte pointer, for -Wcast-align."""
    return pointee if pointee in _BYTE_TYPES else "void"


def _infix(op: str, a: CExpr, b: CExpr) -> tuple[str, int]:
    """Return the text of `a op b` in C, and its precedence."""
    symbol, precedence, least = c_expr.C_OPERATORS[op]
    right = b.within(max(least, precedence + 1))
    return f"{a.within(least)} {symbol} {right}", precedence


def _unsigned(side: CExpr, dtype: DType) -> CExpr:
    """Return an operand as `dtype`, which is unsigned; literals need no cast."""
    return cast_to(side, dtype) if side.ctype.signed and not side.literal else side


_WRAPPING = frozenset({"add", "sub", "mul", "shl"})
_NARROW_UNSIGNED = frozenset({dtypes.UINT8, dtypes.UINT16})


@dataclass(slots=True)
class ExprPrinter:
    """A printer of a function's expressions; `places` and `variables` are in scope.

    `tables` has the least and the greatest element of each integer constant in scope.
    """

    names: ModelNames
    intrinsics: IntrinsicTable
    used: UsedHelpers
    places: dict[str, BufferBinding] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Interval] = field(default_factory=dict)

    # ---- values ----------------------------------------------------------------------

    def value(self, node: tir.Expr) -> CExpr:
        """Translate an expression to C of equal value, maybe of another type."""
        match node:
            case tir.IntImm():
                return c_expr.integer_literal(node.value, node.dtype)
            case tir.FloatImm():
                self.used.math |= not np.isfinite(node.value)
                return c_expr.float_literal(node.value, node.dtype)
            case tir.Var():
                return CExpr(self._variable(node), node.dtype)
            case tir.Binary():
                return self._binary(node)
            case tir.Not():
                return CExpr(f"!{self.value(node.a).within(UNARY)}", INT32, UNARY)
            case tir.Cast():
                return self._cast(node)
            case tir.Select():
                return self._select(node)
            case tir.BufferLoad():
                return self._load(node)
            case tir.AccessPtr():
                name = node.buffer.name
                raise InternalError(f"a pointer to {name} is used as a value")
            case tir.IntrinsicCall():
                return self._call(node)
            case _:
                assert_never(node)

    def text(self, node: tir.Expr) -> str:
        return self.value(node).text

    def as_type(self, node: tir.Expr, dtype: DType) -> CExpr:
        return convert_to(self.value(node), dtype)

    def _variable(self, var: tir.Var) -> str:
        if var.name not in self.variables:
            raise InternalError(f"the variable {var.name} is used before it is bound")
        return self.variables[var.name]

    def _cast(self, node: tir.Cast) -> CExpr:
        inner, source, target = self.value(node.value), node.value.dtype, node.dtype
        if source == target:
            return inner
        if target == BOOL:
            zero = "0.0f" if source == dtypes.FLOAT32 else "0"
            return CExpr(f"{inner.within(SUM)} != {zero}", INT32, c_expr.EQUALITY)
        if source.is_float or target.is_float:
            return cast_to(inner, target)
        # C has converted the text already, by promotion or in an operator: both its
        # type and that of the node must fit, or the cast would change what it reads.
        held = [source] if inner.literal else [source, inner.ctype]
        # Widening needs no cast in C: the next operator or assignment does it.
        if any(c_expr.represents_all_values(target, dtype) for dtype in held):
            return inner
        return cast_to(inner, target)

    def _select(self, node: tir.Select) -> CExpr:
        cond = self.value(node.cond)
        a, b = self._balanced(node.a, node.b, node.dtype)
        least = c_expr.LOGICAL_OR
        text = f"{cond.within(least)} ? {a.within(least)} : {b.within(least)}"
        ctype = c_expr.arithmetic_type(a.ctype, b.ctype)
        extended = a.sign_extended or b.sign_extended
        return CExpr(text, ctype, c_expr.CONDITIONAL, sign_extended=extended)

    # ---- arithmetic ------------------------------------------------------------------

    def _binary(self, node: tir.Binary) -> CExpr:
        if self._is_limit_without_effect(node):
            return self.value(node.a)
        if node.op in ("min", "max"):
            return self._extreme(node)
        if node.a.dtype == BOOL and node.op in c_expr.BOOL_OPERATORS:
            return self._joined(node.op, c_expr.BOOL_OPERATORS[node.op], node)
        if node.op == "shl" and node.a.dtype.signed:
            return self._signed_shl(node)
        if node.op in _WRAPPING and node.a.dtype in _NARROW_UNSIGNED:
            return self._wrapped(node)
        if (short := self._plain_sum(node)) is not None:
            return short
        a, b = self._operands(node)
        # gcc warns where an operand with the bits of a signed value meets one of an
        # alias type: then both sides get the standard type.
        extended = not node.dtype.signed and (a.sign_extended or b.sign_extended)
        if extended and node.op in ("and", "or", "xor"):
            a = c_expr.strip_alias_type(a, node.dtype)
            b = c_expr.strip_alias_type(b, node.dtype)
        text, precedence = _infix(node.op, a, b)
        if node.op in tir.COMPARISONS:
            decision = c_expr.fold_range_comparison(node, a, b)
            if decision is not None:
                return c_expr.integer_literal(decision, INT32)
            return CExpr(text, INT32, precedence)
        ctype = c_expr.arithmetic_type(a.ctype, b.ctype)
        return CExpr(text, ctype, precedence, sign_extended=extended)

    def _operands(self, node: tir.Binary) -> tuple[CExpr, CExpr]:
        """Translate both operands: C computes in a type that holds the result."""
        dtype = node.a.dtype
        a, b = self._balanced(node.a, node.b, dtype)
        if node.op in tir.COMPARISONS:
            return a, b
        # C computes in the wider of the two operands: a 64-bit product of two 32-bit
        # operands would overflow first and be widened then. A shift computes in the
        # type of its left operand.
        computing = [a.ctype] if node.op in ("shl", "shr") else [a.ctype, b.ctype]
        narrow = max(ctype.bits for ctype in computing) < dtype.bits
        unsigned = dtype == UINT32 and UINT32 not in computing
        if dtype.is_int and ((dtype.bits > 32 and narrow) or unsigned):
            a = cast_to(a, dtype)
        return a, b

    def _balanced(self, a: tir.Expr, b: tir.Expr, dtype: DType) -> tuple[CExpr, CExpr]:
        """Translate both operands so that C conversions keep values and signs."""
        left, right = self.value(a), self.value(b)
        if dtype in (UINT32, dtypes.UINT64):
            left, right = _unsigned(left, dtype), _unsigned(right, dtype)
        return left, right

    def _joined(self, op: str, row: tuple[str, int, int], node: tir.Binary) -> CExpr:
        """Translate a boolean operation; chains of one operator are not bracketed."""
        symbol, precedence, least = row
        a, b = self.value(node.a), self.value(node.b)
        same = isinstance(node.a, tir.Binary) and node.a.op == op and op != "xor"
        left = a.text if same else a.within(least)
        return CExpr(f"{left} {symbol} {b.within(least)}", INT32, precedence)

    def _plain_sum(self, node: tir.Binary) -> CExpr | None:
        """Translate `a + -3` to `a - 3` and `0 - a` to `-a`; otherwise None."""
        if node.op not in ("add", "sub") or not node.a.dtype.signed:
            return None
        b, dtype = node.b, node.b.dtype
        if isinstance(b, tir.IntImm) and dtype.min < b.value < 0:
            other: tir.BinaryOp = "sub" if node.op == "add" else "add"
            opposite = tir.IntImm(-b.value, dtype)
            return self._binary(tir.Binary(other, node.a, opposite))
        if node.op == "sub" and isinstance(node.a, tir.IntImm) and node.a.value == 0:
            inner = self.value(b)
            if inner.ctype.bits < dtype.bits and dtype.bits > 32:
                inner = cast_to(inner, dtype)
            ctype = c_expr.arithmetic_type(inner.ctype, INT32)
            return CExpr(f"-{inner.within(PRIMARY)}", ctype, UNARY)
        return None

    def _wrapped(self, node: tir.Binary) -> CExpr:
        # uint8_t and uint16_t are promoted to int, in which 65535 * 65535 overflows.
        a = cast_to(self.value(node.a), UINT32)
        b = cast_to(self.value(node.b), UINT32)
        text, precedence = _infix(node.op, a, b)
        return cast_to(CExpr(text, UINT32, precedence), node.dtype)

    def _signed_shl(self, node: tir.Binary) -> CExpr:
        dtype = node.a.dtype
        bits = self.value(node.a).ctype.bits
        if isinstance(node.b, tir.IntImm) and bits + node.b.value < dtype.bits:
            # The product is defined for negative values, too, and cannot overflow.
            factor = tir.IntImm(1 << node.b.value, dtype)
            return self._binary(tir.Binary("mul", node.a, factor))
        computed = dtype if dtype.bits >= 32 else INT32
        unsigned = UINT32 if computed == INT32 else dtypes.UINT64
        # C does not define signed shifts to the left that lose bits, but unsigned ones.
        start = cast_to(self.value(node.a), unsigned)
        amount = self.value(node.b).within(UNARY)
        shifted = CExpr(f"{start.text} << {amount}", unsigned, c_expr.SHIFT)
        return cast_to(shifted, computed)

    def _is_limit_without_effect(self, node: tir.Binary) -> bool:
        """Return whether `node` limits a constant's element that never exceeds that.

        Kernels limit the channels that they read from a table (`ChannelOrder`), because
        proofs of bounds in TIR do not look into constants.
        """
        element = node.a
        while isinstance(element, tir.Cast) and element.dtype.is_int:
            element = element.value
        if not (isinstance(element, tir.BufferLoad) and isinstance(node.b, tir.IntImm)):
            return False
        low, high = self.tables.get(element.buffer.name, (-1, -1))
        limit = node.b.value
        if low < 0 or high > limit:
            return False
        # limit & (limit + 1) is 0 for 2^n - 1 only: a mask keeps what is below it.
        return node.op == "min" or (node.op == "and" and limit & (limit + 1) == 0)

    def _extreme(self, node: tir.Binary) -> CExpr:
        dtype = node.dtype
        if dtype.is_int and dtype.bits < 32:
            dtype = INT32
        if (clamp := self._clamp(node, dtype)) is not None:
            return clamp
        name = self.names.c(f"{node.op}_{dtype.short}")
        self.used.extremes[name] = (node.op, dtype)
        a, b = self.as_type(node.a, dtype), self.as_type(node.b, dtype)
        return CExpr(f"{name}({a.text}, {b.text})", dtype)

    def _clamp(self, node: tir.Binary, dtype: DType) -> CExpr | None:
        inner = node.a
        if not isinstance(inner, tir.Binary) or {node.op, inner.op} != {"min", "max"}:
            return None
        outer_limit, inner_limit = node.b, inner.b
        # min(max(x, low), high) and max(min(x, high), low) are the same clamp, if
        # low <= high.
        low, high = outer_limit, inner_limit
        if node.op == "min":
            low, high = inner_limit, outer_limit
        literal = (tir.IntImm, tir.FloatImm)
        if not isinstance(low, literal) or not isinstance(high, literal):
            return None
        if not low.value <= high.value:
            return None
        if dtype == INT32 and (low.value, high.value) in _SATURATIONS:
            return self._saturated(inner.a, _SATURATIONS[low.value, high.value])
        name = self.names.c(f"clamp_{dtype.short}")
        self.used.extremes[name] = ("clamp", dtype)
        parts = [self.as_type(part, dtype).text for part in (inner.a, low, high)]
        return CExpr(f"{name}({', '.join(parts)})", dtype)

    def _saturated(self, node: tir.Expr, dtype: DType) -> CExpr:
        """Print a clamp and the shift before it, for Arm's single instruction."""
        shift = 0
        match node:
            case tir.Binary("shr", shifted, tir.IntImm(amount)) if 0 < amount < 32:
                node, shift = shifted, amount
        suffix = f"_asr{shift}" if shift else ""
        name = self.names.c(f"saturate_{dtype.short}{suffix}")
        self.used.saturations[name] = (dtype, shift)
        result = dtypes.INT16 if dtype is _POSITIVE_INT16 else dtype
        return CExpr(f"{name}({self.as_type(node, INT32).text})", result)

    # ---- calls -----------------------------------------------------------------------

    def _call(self, node: tir.IntrinsicCall) -> CExpr:
        intrinsic = self._intrinsic(node)
        if intrinsic.result is None:
            raise InternalError(f"the statement {node.name} is used as a value")
        return CExpr(self._call_text(intrinsic, node), intrinsic.result)

    def statement_call(self, node: tir.IntrinsicCall) -> str:
        """Return a statement that executes an intrinsic, without its semicolon."""
        return self._call_text(self._intrinsic(node), node)

    def _intrinsic(self, node: tir.IntrinsicCall) -> Intrinsic:
        intrinsic = self.intrinsics.get(node.name)
        if intrinsic is None:
            raise InternalError(f"the target has no intrinsic {node.name}")
        if len(intrinsic.operands) != len(node.args):
            raise InternalError(f"{node.name} takes {len(intrinsic.operands)} operands")
        self._use(intrinsic)
        return intrinsic

    def _use(self, intrinsic: Intrinsic) -> None:
        """Note that an intrinsic is used, after those that its own C calls."""
        if intrinsic.name in self.used.intrinsics:
            return
        for name in intrinsic.calls:
            self._use(self.intrinsics[name])
        if intrinsic.value is not None and intrinsic.result is not None:
            variables = {operand.name: operand.name for operand in intrinsic.operands}
            printer = replace(self, places={}, variables=variables, tables={})
            text = printer.as_type(intrinsic.value, intrinsic.result).text
            intrinsic = replace(intrinsic, portable=f"return {text};")
        elif intrinsic.calls:
            portable = name_called_intrinsics(intrinsic.portable, self.names)
            intrinsic = replace(intrinsic, portable=portable)
        self.used.intrinsics[intrinsic.name] = intrinsic
        for operand in intrinsic.operands:
            if operand.kind == "ptr" and operand.dtype.size_bytes > 1:
                self.used.aliases[self.names.alias(operand.dtype)] = operand.dtype

    def _call_text(self, intrinsic: Intrinsic, node: tir.IntrinsicCall) -> str:
        pairs = zip(intrinsic.operands, node.args, strict=True)
        args = ", ".join(self._argument(operand, arg) for operand, arg in pairs)
        return f"{intrinsic.symbol or self.names.c(intrinsic.name)}({args})"

    def _argument(self, operand: Operand, arg: tir.Expr) -> str:
        if operand.kind == "ptr":
            if not isinstance(arg, tir.AccessPtr):
                raise InternalError(f"operand {operand.name} must be a pointer")
            const = operand.access == "r"
            return self.typed_pointer(arg, operand.dtype, const=const).text
        if operand.kind in ("out", "inout"):
            if not (isinstance(arg, tir.BufferLoad) and arg.buffer.scope == "reg"):
                raise InternalError(f"operand {operand.name} must be a register")
            return f"&{self._load(arg).text}"
        return self.as_type(arg, operand.dtype).text

    # ---- memory ----------------------------------------------------------------------

    def memory(self, buffer: tir.Buffer) -> PointerBinding:
        place = self.places.get(buffer.name)
        if not isinstance(place, PointerBinding):
            name = buffer.name
            raise InternalError(f"the buffer {name} is used before it is declared")
        return place

    def register(self, buffer: tir.Buffer, indices: tuple[tir.Expr, ...]) -> str:
        place, flat = self.places.get(buffer.name), flat_index(buffer, indices)
        if not isinstance(place, RegisterBinding) or not isinstance(flat, tir.IntImm):
            raise InternalError(
                f"the registers {buffer.name} need a constant index and a place"
            )
        return place.names[flat.value]

    def _load(self, node: tir.BufferLoad) -> CExpr:
        if node.buffer.scope == "reg":
            return CExpr(self.register(node.buffer, node.indices), node.dtype)
        place = self.memory(node.buffer)
        if place.unaligned:
            name = self.names.c(f"load_{node.dtype.short}")
            self.used.loads[name] = node.dtype
            pointer = self._byte_pointer(place, flat_index(node.buffer, node.indices))
            return CExpr(f"{name}({pointer.text})", node.dtype)
        return CExpr(self.element(node.buffer, node.indices), node.dtype)

    def element(self, buffer: tir.Buffer, indices: tuple[tir.Expr, ...]) -> str:
        return f"{self.memory(buffer).name}[{self.text(flat_index(buffer, indices))}]"

    def stored(
        self, buffer: tir.Buffer, indices: tuple[tir.Expr, ...], node: tir.Expr
    ) -> str:
        """Return the assignment of `node` to an element, without the semicolon."""
        value = self.as_type(node, buffer.dtype)
        if buffer.scope == "reg":
            return f"{self.register(buffer, indices)} = {value.text}"
        place = self.memory(buffer)
        if not place.unaligned:
            element, text = self.element_type(place), value.text
            if value.sign_extended and element != buffer.dtype.c_type:
                text = f"({element}){value.within(UNARY)}"
            return f"{self.element(buffer, indices)} = {text}"
        name = self.names.c(f"store_{buffer.dtype.short}")
        self.used.stores[name] = buffer.dtype
        pointer = self._byte_pointer(place, flat_index(buffer, indices))
        return f"{name}({pointer.text}, {value.text})"

    def _byte_pointer(self, place: PointerBinding, index: tir.Expr) -> CExpr:
        size = tir.IntImm(place.buffer.dtype.size_bytes, index.dtype)
        return self._offset(place, fold_index("mul", index, size))

    def _offset(self, place: PointerBinding, offset: tir.Expr) -> CExpr:
        base = place.name
        if isinstance(offset, tir.IntImm) and offset.value <= 0:
            value = -offset.value
            return CExpr(f"{base} - {value}", BOOL, SUM) if value else CExpr(base, BOOL)
        return CExpr(f"{base} + {self.value(offset).within(c_expr.PRODUCT)}", BOOL, SUM)

    def pointer(self, node: tir.AccessPtr, pointee: str, *, const: bool) -> CExpr:
        """Return the address of a buffer element as a pointer to C's `pointee`."""
        place = self.memory(node.buffer)
        at_offset = self._byte_pointer if place.unaligned else self._offset
        inner = at_offset(place, node.offset)
        if self.element_type(place) == pointee:
            return inner
        qualifier = "const " if const else ""
        # By way of void *, the cast raises the alignment without a -Wcast-align.
        through = "" if cast_type(pointee) == pointee else f"({qualifier}void *)"
        text = f"({qualifier}{pointee} *){through}{inner.within(UNARY)}"
        return CExpr(text, BOOL, UNARY)

    def typed_pointer(self, node: tir.AccessPtr, dtype: DType, *, const: bool) -> CExpr:
        plain = self.memory(node.buffer).plain and dtype == node.buffer.dtype
        return self.pointer(node, self.pointee(dtype, plain=plain), const=const)

    def element_type(self, place: PointerBinding) -> str:
        if place.unaligned:
            return "uint8_t"
        return self.pointee(place.buffer.dtype, plain=place.plain)

    def pointee(self, dtype: DType, *, plain: bool) -> str:
        """Return the pointed-to C type: an alias type for elements over a byte."""
        if plain or dtype.size_bytes == 1:
            return dtype.c_type
        alias = self.names.alias(dtype)
        self.used.aliases[alias] = dtype
        return alias
