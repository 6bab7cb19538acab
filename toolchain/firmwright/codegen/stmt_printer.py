"""Translation of TIR statements to C.

Register buffers become scalars declared at their first write, views become pointers, and unused
declarations are omitted. Scratch memory is a parameter, assigned by the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import assert_never

from firmwright.base.c_identifiers import is_identifier
from firmwright.base.dtypes import DType
from firmwright.base.errors import InternalError
from firmwright.codegen.buffer_bindings import MemoryBinding, RegisterBinding
from firmwright.codegen.c_names import LocalScope
from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.expr_printer import ExprPrinter
from firmwright.ir import tir
from firmwright.ir.tir.flat_index import flat_index, fold_index
from firmwright.ir.tir.traversal import children, walk

ConstantSymbol = Callable[[str], str]
"""Maps the name of a constant to the C expression of its array."""

_COMPOUND = {"add": "+=", "sub": "-=", "mul": "*=", "or": "|=", "and": "&=", "xor": "^="}


class StmtPrinter:
    """A printer of one function's body."""

    __slots__ = ("constant_symbol", "exprs", "out", "pending", "scope", "used_names")

    def __init__(
        self, out: CWriter, exprs: ExprPrinter, scope: LocalScope, constant_symbol: ConstantSymbol
    ) -> None:
        self.out = out
        self.exprs = exprs
        self.scope = scope
        self.constant_symbol = constant_symbol
        self.pending: dict[tuple[str, int], str] = {}
        self.used_names: set[str] = set()

    def body(self, stmt: tir.Stmt) -> None:
        """Print the body of a function after its parameters were declared."""
        collect_used_names(stmt, self.used_names)
        self.stmt(stmt)

    def stmt(self, node: tir.Stmt) -> None:
        match node:
            case tir.Seq():
                for part in node.stmts:
                    self.stmt(part)
            case tir.For():
                self._for(node)
            case tir.While():
                self._declare_mentioned(node)
                with self._block(f"while ({self.exprs.text(node.cond)})"):
                    self.stmt(node.body)
            case tir.If():
                self._declare_mentioned(node)
                self._if(node)
            case tir.Let():
                self._let(node)
            case tir.BufferStore():
                self._store(node)
            case tir.Allocate():
                self._allocate(node)
            case tir.AllocateConst():
                self.allocate_const(node)
            case tir.DeclBuffer():
                self.decl_buffer(node)
            case tir.Evaluate():
                self.evaluate(node)
            case tir.PrimFuncCall():
                self.call_prim(node)
            case _:
                assert_never(node)

    def call_prim(self, node: tir.PrimFuncCall) -> None:
        """Raise an error, since only the AOT main contains kernel calls."""
        raise InternalError(f"{node.callee} is called outside of the AOT main")

    def evaluate(self, node: tir.Evaluate) -> None:
        self._declare_mentioned(node)
        self.out.line(f"{self.exprs.statement_call(node.call)};")

    # ---- control -------------------------------------------------------------------------------

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        with self.out.block(head), self.scope.block():
            yield

    def _for(self, node: tir.For) -> None:
        self._declare_mentioned(node)
        start, end = node.start, fold_index("add", node.start, node.extent)
        if any(isinstance(part, tir.BufferLoad) for part in walk(end)):
            # TIR evaluates the bounds once, but their operands may change during the loop.
            end_name = self.scope.unique(f"{node.var.name}_end")
            self._declare(node.var.dtype, end_name, end)
            end_text = end_name
        else:
            end_text = self.exprs.as_type(end, node.var.dtype).text
        first = self.exprs.as_type(start, node.var.dtype).text
        with self.scope.block():
            name = self.scope.unique(node.var.name)
            self.exprs.variables[node.var.name] = name
            head = f"for ({node.var.dtype.c_type} {name} = {first}; {name} < {end_text}; ++{name})"
            with self._block(head):
                self.stmt(node.body)

    def _if(self, node: tir.If) -> None:
        head = f"if ({self.exprs.text(node.cond)})"
        while True:
            self.out.line(f"{head} {{")
            self._branch(node.then)
            if node.orelse is None:
                break
            if not isinstance(node.orelse, tir.If):
                self.out.line("} else {")
                self._branch(node.orelse)
                break
            node = node.orelse
            head = f"}} else if ({self.exprs.text(node.cond)})"
        self.out.line("}")

    def _branch(self, stmt: tir.Stmt) -> None:
        with self.out.indent(), self.scope.block():
            self.stmt(stmt)

    # ---- scalars -------------------------------------------------------------------------------

    def _let(self, node: tir.Let) -> None:
        if node.var.name in self.used_names:
            self._declare_mentioned(node.value)
            name = self.scope.unique(node.var.name)
            self._declare(node.var.dtype, name, node.value)
            self.exprs.variables[node.var.name] = name
        self.stmt(node.body)

    def _declare(self, dtype: DType, name: str, value: tir.Expr) -> None:
        self.out.line(f"const {dtype.c_type} {name} = {self.exprs.as_type(value, dtype).text};")

    def _allocate(self, node: tir.Allocate) -> None:
        buffer = node.buffer
        if buffer.scope != "reg":
            raise InternalError(f"the memory of {buffer.name} is not planned")
        count = buffer.elements
        names = tuple(
            self.scope.unique(f"{buffer.name}{i}" if count > 1 else buffer.name)
            for i in range(count)
        )
        self.exprs.places[buffer.name] = RegisterBinding(names, buffer)
        for index in range(count):
            self.pending[buffer.name, index] = f"{buffer.dtype.c_type} {names[index]}"
        self.stmt(node.body)
        for index in range(count):
            self.pending.pop((buffer.name, index), None)

    def _declare_mentioned(self, node: tir.Stmt | tir.Expr) -> None:
        if not self.pending:
            return
        for part in walk(node):
            if isinstance(part, tir.BufferLoad | tir.BufferStore) and part.buffer.scope == "reg":
                declaration = self.pending.pop(_register_key(part), None)
                if declaration is not None:
                    self.out.line(f"{declaration};")

    # ---- memory --------------------------------------------------------------------------------

    def _store(self, node: tir.BufferStore) -> None:
        for index in node.indices:
            self._declare_mentioned(index)
        self._declare_mentioned(node.value)
        declaration = None
        if node.buffer.scope == "reg":
            declaration = self.pending.pop(_register_key(node), None)
        if declaration is not None:
            value = self.exprs.as_type(node.value, node.buffer.dtype)
            self.out.line(f"{declaration} = {value.text};")
            return
        compound = self._compound(node)
        if compound is None:
            compound = self.exprs.stored(node.buffer, node.indices, node.value)
        self.out.line(f"{compound};")

    def _compound(self, node: tir.BufferStore) -> str | None:
        value, buffer = node.value, node.buffer
        if not (
            isinstance(value, tir.Binary) and value.op in _COMPOUND and buffer.dtype.bits >= 32
        ):
            return None
        if value.a != tir.BufferLoad(buffer, node.indices):
            return None
        if buffer.scope == "reg":
            target = self.exprs.register(buffer, node.indices)
        elif not self.exprs.memory(buffer).unaligned:
            target = self.exprs.element(buffer, node.indices)
        else:
            return None
        op, operand = value.op, value.b
        if (
            isinstance(operand, tir.IntImm)
            and op in ("add", "sub")
            and 0 > operand.value > -(1 << 31)
        ):
            op, operand = (
                ("sub" if op == "add" else "add"),
                tir.IntImm(-operand.value, operand.dtype),
            )
        return f"{target} {_COMPOUND[op]} {self.exprs.as_type(operand, buffer.dtype).text}"

    def allocate_const(self, node: tir.AllocateConst) -> None:
        """Declare a pointer to a constant's array or to its bytes in a pool."""
        if node.buffer.name in self.used_names:
            symbol = self.constant_symbol(node.constant)
            name = self.scope.unique(node.buffer.name)
            place = MemoryBinding(name, node.buffer, plain=is_identifier(symbol))
            self.exprs.places[node.buffer.name] = place
            shape = ", ".join(map(str, node.buffer.shape))
            element = self.exprs.element_type(place)
            if symbol.startswith("pools->") and element != "uint8_t":
                symbol = f"(const {element} *)({symbol})"
            self.out.line(f"const {element} *{name} = {symbol}; /* [{shape}] */")
        self.stmt(node.body)

    def decl_buffer(self, node: tir.DeclBuffer) -> None:
        """Declare a view as a pointer, which is const if the view is only read."""
        if node.buffer.name in self.used_names:
            self._declare_mentioned(node.source)
            self._window(node)
        self.stmt(node.body)

    def _window(self, node: tir.DeclBuffer) -> None:
        buffer, source = node.buffer, self.exprs.memory(node.source.buffer)
        wide = buffer.dtype.size_bytes
        natural = not source.unaligned and source.buffer.dtype.size_bytes >= wide
        place = MemoryBinding(
            self.scope.unique(buffer.name),
            buffer,
            plain=source.plain and buffer.dtype == source.buffer.dtype,
            unaligned=wide > 1 and not natural and buffer.alignment < wide,
        )
        const = source.buffer.scope == "const" or node.source.access == "r"
        element = self.exprs.element_type(place)
        text = self.exprs.pointer(node.source, element, const=const).text
        self.exprs.places[buffer.name] = place
        qualifier = "const " if const else ""
        self.out.line(f"{qualifier}{element} *{place.name} = {text};")


def _register_key(node: tir.BufferLoad | tir.BufferStore) -> tuple[str, int]:
    flat = flat_index(node.buffer, node.indices)
    if not isinstance(flat, tir.IntImm):
        raise InternalError(f"the registers {node.buffer.name} are indexed by a variable")
    return node.buffer.name, flat.value


def collect_used_names(node: tir.Stmt | tir.Expr, used: set[str]) -> None:
    match node:
        case tir.DeclBuffer(buffer, source, body):
            collect_used_names(body, used)
            if buffer.name in used:
                collect_used_names(source, used)
        case tir.Let(var, value, body):
            collect_used_names(body, used)
            if var.name in used:
                collect_used_names(value, used)
        case tir.Var(name):
            used.add(name)
        case tir.BufferLoad() | tir.BufferStore() | tir.AccessPtr():
            used.add(node.buffer.name)
            for part in children(node):
                collect_used_names(part, used)
        case _:
            for part in children(node):
                collect_used_names(part, used)
