"""Translation of TIR statements to C.

Register buffers become scalars declared at their first write, views become pointers,
and unused declarations are omitted. Scratch memory is a parameter.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import assert_never

from firmwright.base.c_identifiers import is_identifier
from firmwright.base.dtypes import DType
from firmwright.base.errors import InternalError
from firmwright.codegen.analysis_hints import unrolled_iterations
from firmwright.codegen.c_names import (
    LocalScope,
    ModelNames,
    PointerBinding,
    RegisterBinding,
)
from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.constant_arrays import LinkedConstant
from firmwright.codegen.constant_pool_files import ConstantPoolFile
from firmwright.codegen.emit_options import EmitOptions
from firmwright.codegen.expr_printer import ExprPrinter, cast_type
from firmwright.codegen.model_interface import ModelInterface
from firmwright.codegen.used_helpers import UsedHelpers
from firmwright.codegen.vector_loop_printer import VectorBounds, print_vector_loop
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.flat_index import flat_index, fold_index
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.traversal import children, walk
from firmwright.targets.registry import features_of_known

_COMPOUND = {
    "add": "+=",
    "sub": "-=",
    "mul": "*=",
    "or": "|=",
    "and": "&=",
    "xor": "^=",
}


@dataclass(frozen=True, slots=True)
class EmitContext:
    """A model to emit: its interface, its constants by name, the helpers it uses."""

    module: IRModule
    interface: ModelInterface
    intrinsics: IntrinsicTable
    options: EmitOptions
    constants: Mapping[str, LinkedConstant]
    const_pools: tuple[ConstantPoolFile, ...]
    used: UsedHelpers = field(default_factory=UsedHelpers)

    @property
    def names(self) -> ModelNames:
        return self.interface.names

    def definition(self, function: str, device: str = "") -> str:
        """Return the first lines of an interface function's definition."""
        front = f"{self.names.macro('code')}\n" if self.options.section("code") else ""
        return front + self.interface.prototype(function, device)

    def constant_symbol(self, name: str) -> str:
        """Return the C expression that denotes a constant's array."""
        location = self.pool_location(name)
        if location is not None:
            pool, offset = location
            return f"pools->{pool.name} + {offset}" if offset else f"pools->{pool.name}"
        item = self.constants[name]
        params, field = self.interface.params, item.field(self.names.prefix)
        return f"{params}->{field}" if params else item.symbol

    def pool_location(self, name: str) -> tuple[ConstantPoolFile, int] | None:
        """Return the pool and byte offset of a constant outside the model's C."""
        for pool in self.const_pools:
            if name in pool.offsets:
                return pool, pool.offsets[name]
        return None


class StmtPrinter:
    """A printer of one function's body; local names differ from those in `reserved`."""

    __slots__ = ("context", "exprs", "out", "pending", "scope", "used_names")

    def __init__(
        self,
        context: EmitContext,
        reserved: Iterable[str] = (),
        out: CWriter | None = None,
    ) -> None:
        self.context = context
        self.out = out or CWriter()
        self.exprs = ExprPrinter(context.names, context.intrinsics, context.used)
        self.scope = LocalScope(reserved)
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

    # ---- control ---------------------------------------------------------------------

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        with self.out.block(head), self.scope.block():
            yield

    def _for(self, node: tir.For) -> None:
        self._declare_mentioned(node)
        dtype, end = node.var.dtype, fold_index("add", node.start, node.extent)
        if any(isinstance(part, tir.BufferLoad) for part in walk(end)):
            # TIR evaluates the bounds once, but operands may change during the loop.
            last = self.scope.unique(f"{node.var.name}_end")
            self._declare(dtype, last, end)
        else:
            last = self.exprs.as_type(end, dtype).text
        first = self.exprs.as_type(node.start, dtype).text
        with self.scope.block():
            name = self.scope.unique(node.var.name)
            self.exprs.variables[node.var.name] = name
            clauses = f"{dtype.c_type} {name} = {first}; {name} < {last}; ++{name}"
            if self.context.options.analysis_hints:
                self._hint(node)
            vectors = self._vectors(node, VectorBounds(name, first, last))
            with vectors, self._block(f"for ({clauses})"):
                self.stmt(node.body)

    def _hint(self, node: tir.For) -> None:
        """Print how often an analyzer follows a loop one by one, if it needs to."""
        count = unrolled_iterations(node, self.context.intrinsics)
        if count:
            self.out.line(f"/*@ loop unroll {count}; */")

    @contextmanager
    def _vectors(self, node: tir.For, bounds: VectorBounds) -> Iterator[None]:
        """Print a loop over vectors for compilers that have them, if there is one."""
        context = self.context
        lines: Sequence[str] = ()
        if node.kind == "vectorized" and context.options.inline_asm:
            features = features_of_known(context.module.targets.values())
            lines = print_vector_loop(node, bounds, self.exprs, features)
        for line in lines:
            self.out.line(line)
        yield
        if lines:
            self.out.raw("#endif")

    def _if(self, node: tir.If) -> None:
        self.out.line(f"if ({self.exprs.text(node.cond)}) {{")
        self._branch(node.then)
        while isinstance(node.orelse, tir.If):
            node = node.orelse
            self.out.line(f"}} else if ({self.exprs.text(node.cond)}) {{")
            self._branch(node.then)
        if node.orelse is not None:
            self.out.line("} else {")
            self._branch(node.orelse)
        self.out.line("}")

    def _branch(self, stmt: tir.Stmt) -> None:
        with self.out.indent(), self.scope.block():
            self.stmt(stmt)

    # ---- scalars ---------------------------------------------------------------------

    def _let(self, node: tir.Let) -> None:
        if node.var.name in self.used_names:
            self._declare_mentioned(node.value)
            name = self.scope.unique(node.var.name)
            self._declare(node.var.dtype, name, node.value)
            self.exprs.variables[node.var.name] = name
        self.stmt(node.body)

    def _declare(self, dtype: DType, name: str, value: tir.Expr) -> None:
        text = self.exprs.as_type(value, dtype).text
        self.out.line(f"const {dtype.c_type} {name} = {text};")

    def _allocate(self, node: tir.Allocate) -> None:
        buffer = node.buffer
        if buffer.scope != "reg":
            raise InternalError(f"the memory of {buffer.name} is not planned")
        count = buffer.elements
        stems = [buffer.name]
        if count > 1:
            stems = [f"{buffer.name}{index}" for index in range(count)]
        names = tuple(map(self.scope.unique, stems))
        self.exprs.places[buffer.name] = RegisterBinding(names, buffer)
        for index, name in enumerate(names):
            self.pending[buffer.name, index] = f"{buffer.dtype.c_type} {name}"
        self.stmt(node.body)
        for index in range(count):
            self.pending.pop((buffer.name, index), None)

    def _declare_mentioned(self, node: tir.Stmt | tir.Expr) -> None:
        if not self.pending:
            return
        for part in walk(node):
            if not isinstance(part, tir.BufferLoad | tir.BufferStore):
                continue
            if part.buffer.scope == "reg":
                declaration = self.pending.pop(_register_key(part), None)
                if declaration is not None:
                    self.out.line(f"{declaration};")

    # ---- memory ----------------------------------------------------------------------

    def _store(self, node: tir.BufferStore) -> None:
        for index in node.indices:
            self._declare_mentioned(index)
        self._declare_mentioned(node.value)
        declaration: str | None = None
        if node.buffer.scope == "reg":
            declaration = self.pending.pop(_register_key(node), None)
        if declaration is not None:
            value = self.exprs.as_type(node.value, node.buffer.dtype)
            self.out.line(f"{declaration} = {value.text};")
            return
        text = self._compound(node)
        if not text:
            text = self.exprs.stored(node.buffer, node.indices, node.value)
        self.out.line(f"{text};")

    def _compound(self, node: tir.BufferStore) -> str | None:
        value, buffer = node.value, node.buffer
        if not isinstance(value, tir.Binary) or value.op not in _COMPOUND:
            return None
        if buffer.dtype.bits < 32:
            return None
        if value.a != tir.BufferLoad(buffer, node.indices):
            return None
        if buffer.scope == "reg":
            target = self.exprs.register(buffer, node.indices)
        elif not self.exprs.memory(buffer).unaligned:
            target = self.exprs.element(buffer, node.indices)
        else:
            return None
        operator, operand = _COMPOUND[value.op], value.b
        negated = {"+=": "-=", "-=": "+="}.get(operator)
        least = -(1 << 31)
        if negated and isinstance(operand, tir.IntImm) and least < operand.value < 0:
            operator, operand = negated, tir.IntImm(-operand.value, operand.dtype)
        return f"{target} {operator} {self.exprs.as_type(operand, buffer.dtype).text}"

    def allocate_const(self, node: tir.AllocateConst) -> None:
        """Declare a pointer to a constant's array or to its bytes in a pool."""
        if node.buffer.name in self.used_names:
            symbol = self.context.constant_symbol(node.constant)
            name = self.scope.unique(node.buffer.name)
            place = PointerBinding(name, node.buffer, plain=is_identifier(symbol))
            self.exprs.places[node.buffer.name] = place
            if node.buffer.dtype.is_int and node.buffer.elements:
                elements = self.context.module.constants[node.constant].array()
                limits = int(elements.min()), int(elements.max())
                self.exprs.tables[node.buffer.name] = limits
            shape = ", ".join(map(str, node.buffer.shape))
            element = self.exprs.element_type(place)
            if symbol.startswith("pools->") and element != "uint8_t":
                symbol = f"(const {cast_type(element)} *)({symbol})"
            self.out.line(f"const {element} *{name} = {symbol}; /* [{shape}] */")
        self.stmt(node.body)

    def decl_buffer(self, node: tir.DeclBuffer) -> None:
        """Declare a view as a pointer, which is const if the view is only read."""
        if node.buffer.name in self.used_names:
            self._declare_mentioned(node.source)
            self._declare_view(node)
        self.stmt(node.body)

    def _declare_view(self, node: tir.DeclBuffer) -> None:
        buffer, source = node.buffer, self.exprs.memory(node.source.buffer)
        wide = buffer.dtype.size_bytes
        natural = not source.unaligned and source.buffer.dtype.size_bytes >= wide
        place = PointerBinding(
            self.scope.unique(buffer.name),
            buffer,
            plain=source.plain and buffer.dtype == source.buffer.dtype,
            unaligned=wide > 1 and not natural and buffer.alignment < wide,
        )
        const = source.buffer.scope == "const" or node.source.access == "r"
        element = self.exprs.element_type(place)
        same_type = element == self.exprs.element_type(source)
        through = element if same_type else cast_type(element)
        text = self.exprs.pointer(node.source, through, const=const).text
        self.exprs.places[buffer.name] = place
        qualifier = "const " if const else ""
        self.out.line(f"{qualifier}{element} *{place.name} = {text};")


def _register_key(node: tir.BufferLoad | tir.BufferStore) -> tuple[str, int]:
    flat = flat_index(node.buffer, node.indices)
    if not isinstance(flat, tir.IntImm):
        name = node.buffer.name
        raise InternalError(f"the registers {name} are indexed by a variable")
    return node.buffer.name, flat.value


def collect_used_names(node: tir.Stmt | tir.Expr, used: set[str]) -> None:
    """Add the names of variables and buffers in the C text of `node` to `used`."""
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
        case _:
            if isinstance(node, tir.BufferLoad | tir.BufferStore | tir.AccessPtr):
                used.add(node.buffer.name)
            for part in children(node):
                collect_used_names(part, used)
