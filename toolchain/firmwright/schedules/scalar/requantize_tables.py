"""Kernels with less requantization: by tables, and by one rounding multiply-high.

A requantized function of one 8-bit value becomes a table of its 256 results. Other
requantizations by constants that round twice become `requantize_doubled`. Obligation:
its first operand, the value times 2^(left shift + 1), fits 32 bits; greater values are
limited to those that do if the results are equal.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT8, Array, DType
from firmwright.ir import tir
from firmwright.ir.tir.affine import Bounds
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    Builder,
    call_intrinsic,
    minimum,
)
from firmwright.ir.tir.interpreter import interpret
from firmwright.ir.tir.traversal import (
    Node,
    map_children,
    rewrite_stmt,
    substitute,
    walk,
)
from firmwright.ops.intrinsics import BASE_INTRINSICS

_ENTRIES = 256


def reduce_requantization(func: tir.PrimFunc, b: Builder) -> tir.PrimFunc:
    """Rewrite a function that `b` has built; its tables are constants of `b`."""
    rewriter = _Rewriter(b)
    body = rewrite_stmt(func.body, rewriter.look_up)
    body = rewrite_stmt(body, rewriter.multiply_high)
    for table in rewriter.tables.values():
        body = tir.AllocateConst(table, f"{b.name}.{table.name}", body)
    return replace(func, body=body)


@dataclass(slots=True)
class _Rewriter:
    """Rewrites expressions; `bounds` are those of table entries and scaled values."""

    builder: Builder
    tables: dict[tuple[bytes, DType], tir.Buffer] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)

    def look_up(self, node: Node) -> Node | None:
        match node:
            case tir.Let(var, value, tir.BufferStore() as store):
                whole = substitute(store, {var.name: value})
                new = self.with_tables(whole)
                return None if new is whole else new
            case tir.BufferStore():
                return self.with_tables(node)
        return None

    def with_tables(self, node: Node) -> Node:
        loads = {part for part in walk(node) if isinstance(part, tir.BufferLoad)}
        if len(loads) == 1 and isinstance(node, tir.Expr) and node.dtype.is_int:
            (x,) = loads
            is_byte = x.buffer.dtype in (INT8, UINT8) and x.buffer.scope != "const"
            if is_byte and _is_requantized(node):
                return self.table(node, x) or map_children(node, self.with_tables)
        return map_children(node, self.with_tables)

    def table(self, node: tir.Expr, x: tir.BufferLoad) -> tir.Expr | None:
        """Return `node` as a table of `x`, or None if it has other variables."""
        b = Builder("table")
        values = b.buffer_param("x", x.buffer.dtype, (_ENTRIES,), "in")
        result = b.buffer_param("y", node.dtype, (_ENTRIES,), "out")
        with b.for_("table_entry", _ENTRIES) as i:
            each = b.load(values, [i]).expr
            store = tir.BufferStore(result, (i.expr,), node)
            b.append(rewrite_stmt(store, lambda part: each if part == x else None))
        func = b.build()
        for part in walk(func.body):
            if isinstance(part, tir.Var) and part != i.expr:
                return None
        numbers = np.arange(_ENTRIES, dtype=np.uint8).view(x.buffer.dtype.np)
        y = np.zeros(_ENTRIES, node.dtype.np)
        interpret(func, {"x": numbers, "y": y}, BASE_INTRINSICS)
        kinds = (INT8, INT16, INT32) if node.dtype == INT32 else (node.dtype,)
        dtype = next(k for k in kinds if k.min <= y.min() and y.max() <= k.max)
        if (key := (y.tobytes(), dtype)) not in self.tables:
            self.tables[key] = self.builder.constant("table", y, dtype)
        place = ArithExpr(x).cast(UINT8).cast(INDEX)
        entry = self.builder.load(self.tables[key], [place])
        self.assume(entry, y)
        return entry.cast(node.dtype).expr

    def multiply_high(self, node: Node) -> Node | None:
        match node:
            case tir.IntrinsicCall(
                "requantize_twice", (x, tir.IntImm(factor), tir.IntImm(shift))
            ):
                left = max(shift, 0) + 1
                limits = self.bounds.interval_of(x)
                if not limits or limits[0] << left < INT32.min:
                    return None
                meaning = BASE_INTRINSICS[node.name].meaning
                highest = INT32.max >> left
                if limits[1] > highest:
                    # The square of -32768 has one bit more than other products.
                    ends = np.array([highest, limits[1]])
                    if len(set(meaning(ends, factor, shift).tolist())) > 1:
                        return None
                    x = minimum(ArithExpr(x), highest).expr
                # A factor of 1 changes nothing.
                if (factor, shift) == (1 << 30, 1):
                    return x
                step = ArithExpr(x) * (1 << left), factor, max(-shift, 0)
                new = call_intrinsic("requantize_doubled", step, INT32)
                self.assume(new, meaning(limits, factor, shift))
                return new.expr
        return None

    def assume(self, value: ArithExpr, reached: Array) -> None:
        for end in (value >= int(reached.min()), value <= int(reached.max())):
            self.bounds = self.bounds.assume(end.expr)


def _is_requantized(node: Node) -> bool:
    calls = {part.name for part in walk(node) if isinstance(part, tir.IntrinsicCall)}
    return calls == {"requantize_twice"}
