"""Translation of kernels and the AOT main to C functions.

Kernels take plain pointers, which are const if a kernel only reads. Pools and offsets appear only
in the main, which places a probe before and after each call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeGuard

from firmwright.base.dtypes import UINT8, UINT32
from firmwright.base.errors import InternalError
from firmwright.codegen.buffer_bindings import MemoryBinding
from firmwright.codegen.c_names import LocalScope, ModelNames
from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.constant_pool_files import ConstantPoolFile, ConstantSymbols
from firmwright.codegen.expr_printer import ExprPrinter, UsedHelpers
from firmwright.codegen.kernel_comments import WRITTEN_ROLES, kernel_comment, shared_kernel_comment
from firmwright.codegen.model_interface import (
    FunctionSignatures,
    ModelInterface,
    is_ram_constant_copy,
)
from firmwright.codegen.stmt_printer import StmtPrinter, collect_used_names
from firmwright.ir import tir
from firmwright.ir.graph.devices import is_copy_device
from firmwright.ir.module import IRModule
from firmwright.ir.tir.flat_index import fold_index
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.rewrite import rewrite_stmt
from firmwright.ir.tir.traversal import Node, callees, prim_calls, statements, used_buffers
from firmwright.ops.intrinsics import CONST_LOAD, CONST_LOAD_START, CONST_LOAD_WAIT, CONSTANT_LOADS

NO_ALIGNMENTS: Mapping[str, str] = MappingProxyType({})
_READ_ROLES = ("in", "const")


def reachable_kernels(module: IRModule, main: tir.PrimFunc) -> tuple[tir.PrimFunc, ...]:

    def is_copied(node: Node) -> Node | None:
        return (
            tir.Seq(())
            if isinstance(node, tir.PrimFuncCall) and is_copy_device(node.device)
            else None
        )

    body = rewrite_stmt(without_constant_copies(module, main.body), is_copied)
    return tuple(_get_kernel(module, name) for name in callees(body))


def without_constant_copies(module: IRModule, body: tir.Stmt) -> tir.Stmt:
    """Remove the copies of RAM-resident constants, which run once before the first inference."""

    def rule(node: Node) -> Node | None:
        return (
            tir.Seq(())
            if isinstance(node, tir.PrimFuncCall) and is_ram_constant_copy(module, node)
            else None
        )

    return rewrite_stmt(body, rule)


def ram_constants(module: IRModule, main: tir.PrimFunc) -> tuple[tuple[str, str], ...]:
    """Return the RAM-resident constants, each with the buffer of `main` that holds it."""
    sources = {
        n.buffer.name: n.constant for n in statements(main.body) if isinstance(n, tir.AllocateConst)
    }
    placements = []
    for call in prim_calls(main.body):
        if is_ram_constant_copy(module, call):
            source, target = call.args
            assert isinstance(source, tir.AccessPtr)
            assert isinstance(target, tir.AccessPtr)
            placements.append((sources[source.buffer.name], target.buffer.name))
    return tuple(placements)


def _get_kernel(module: IRModule, name: str) -> tir.PrimFunc:
    function = module.functions.get(name)
    if not isinstance(function, tir.PrimFunc):
        raise InternalError(f"{name} is called but module {module.name} has no such PrimFunc")
    return function


def backend_checks(module: IRModule) -> list[tuple[str, str]]:
    """Return the check functions that a run calls first, each with the data version to check."""
    checks = module.attrs.get("backend_checks", ())
    assert isinstance(checks, tuple)  # set by partitioning/backend_libraries.py
    words = [str(item).split() for item in checks]
    return [(function, version) for function, version in words]


class FunctionEmitter:
    """A printer of one module's functions."""

    def __init__(
        self,
        module: IRModule,
        interface: ModelInterface,
        intrinsics: IntrinsicTable,
        used: UsedHelpers,
        memory: ConstantSymbols,
        definitions: FunctionSignatures,
    ) -> None:
        self.module = module
        self.interface = interface
        self.intrinsics = intrinsics
        self.used = used
        self.memory = memory
        self.definitions = definitions

    @property
    def names(self) -> ModelNames:
        return self.interface.names

    def constant_symbol(self, name: str) -> str:
        return self.memory.symbol(name, self.names.prefix)

    # ---- kernels -------------------------------------------------------------------------------

    def kernels(self, functions: Sequence[tir.PrimFunc]) -> str:
        """Print each distinct kernel once; PrimFuncs that share code must print identically."""
        served: dict[str, list[tir.PrimFunc]] = {}
        for function in functions:
            served.setdefault(function.code, []).append(function)
        texts: list[str] = []
        for code, members in served.items():
            comment = list(
                shared_kernel_comment(members) if members[1:] else kernel_comment(members[0])
            )
            lines = list(comment)
            printed = dict.fromkeys(self._kernel(member, lines) for member in members)
            if len(printed) > 1:
                raise InternalError(f"kernels that share {code} print differently")
            texts += printed
        return "".join(texts)

    def _kernel(self, function: tir.PrimFunc, comment: Sequence[str]) -> str:
        out = CWriter()
        exprs = ExprPrinter(self.names, self.intrinsics, self.used)
        scope = LocalScope()
        params = [_declare_param(exprs, scope, param) for param in function.params]
        out.line()
        out.comment(comment)
        macro = self.names.macro("kernel")
        signature = f"{macro} void {self.names.c(function.code)}({', '.join(params) or 'void'})"
        with out.function(signature):
            printer = StmtPrinter(out, exprs, scope, self.constant_symbol)
            with scope.block():
                printer.body(function.body)
            for param in function.params:
                if param.name not in printer.used_names:
                    out.line(f"(void){_param_name(exprs, param)};")
        return out.text()

    # ---- the AOT main --------------------------------------------------------------------------

    def main(self, function: tir.PrimFunc) -> str:
        out = CWriter()
        io = self.interface
        exprs = ExprPrinter(self.names, self.intrinsics, self.used)
        scope = LocalScope(("in", "out", "pools", "params"))
        printer = AotMainPrinter(out, exprs, scope, self)
        with out.function(self.definitions.run):
            self.checks(out, ("in", "out"))
            for param in function.params:
                self.main_param(out, exprs, scope, param, used_buffers(function.body))
            if not io.pools and not self.memory.pools:
                out.line("(void)pools;")
            printer.main_body(function.body)
            out.line()
            out.line(f"return {self.names.macro('ok')};")
        return out.text()

    def checks(
        self, out: CWriter, pointers: Sequence[str], alignments: Mapping[str, str] = NO_ALIGNMENTS
    ) -> None:
        """Print the checks of the pools and of the argument pointers `pointers`.

        The members of the structs `in` and `out` are checked as well.
        """
        io = self.interface
        tensors = {"in": io.inputs, "out": io.outputs}
        structs = [(name, tensors[name]) for name in pointers if name in tensors]
        required = [*pointers, "pools", *(() if self.memory.linked else ("params",))]
        required += [f"pools->{pool.name}" for pool in io.pools]
        required += [p for pool in self.memory.pools for p in pool.given_by_user]
        aligned = [(f"pools->{pool.name}", f"{pool.macro}_ALIGN") for pool in io.pools]
        aligned += [
            (f"pools->{p.name}", f"{p.macro}_ALIGN") for p in self.memory.pools if p.addressable
        ]
        aligned += alignments.items()
        misplaced: list[str] = []
        for struct, tensor in ((s, t) for s, found in structs for t in found):
            pointer = f"{struct}->{tensor.field}"
            if tensor.placed is not None:
                offset = f"pools->{tensor.placed.pool} + {tensor.macro}_OFFSET"
                misplaced.append(f"(void *){pointer} != {offset}")
                continue
            required.append(pointer)
            if tensor.alignment > 1:
                aligned.append((pointer, f"{tensor.macro}_ALIGN"))
        self.refuse(out, [f"{pointer} == NULL" for pointer in required], "e_null")
        self.refuse(out, [f"(uintptr_t){p} % {align} != 0" for p, align in aligned], "e_align")
        self.refuse(out, misplaced, "e_io")
        mismatches = [
            f"{function}({version}u) != 0" for function, version in backend_checks(self.module)
        ]
        self.refuse(out, mismatches, "e_backend")

    def refuse(self, out: CWriter, conditions: Sequence[str], status: str) -> None:
        """Print an if statement that returns `status` if any condition holds."""
        if not conditions:
            return
        with out.block(f"if ({' || '.join(conditions)})"):
            out.line(f"return {self.names.macro(status)};")

    def main_param(
        self,
        out: CWriter,
        exprs: ExprPrinter,
        scope: LocalScope,
        param: tir.Param,
        used: Mapping[str, tir.Buffer],
    ) -> None:
        """Declare the pool or tensor that a parameter of the AOT main refers to, if it is used."""
        buffer = param.value
        if not isinstance(buffer, tir.Buffer):
            raise InternalError(f"the AOT main has the scalar parameter {param.name}")
        if buffer.name not in used:
            return
        place = MemoryBinding(scope.unique(buffer.name), buffer)
        exprs.places[buffer.name] = place
        element = exprs.element_type(place)
        if param.role == "pool":
            out.line(f"{element} *{place.name} = pools->{buffer.name};")
            return
        const, struct = ("const ", "in") if param.role == "in" else ("", "out")
        out.line(f"{const}{element} *{place.name} = {struct}->{buffer.name};")


class AotMainPrinter(StmtPrinter):
    """A printer of the AOT main's body: buffers at fixed offsets, and kernel calls with probes."""

    __slots__ = ("emitter", "sources", "waits")

    def __init__(
        self, out: CWriter, exprs: ExprPrinter, scope: LocalScope, emitter: FunctionEmitter
    ) -> None:
        super().__init__(out, exprs, scope, emitter.constant_symbol)
        self.emitter = emitter
        self.sources: dict[str, tuple[ConstantPoolFile, int]] = {}
        self.waits: dict[str, ConstantPoolFile] = {}

    def main_body(self, body: tir.Stmt) -> None:
        """Declare all buffers with fixed offsets, then print the body.

        Copies of RAM-resident constants are left out.
        """
        body = without_constant_copies(self.emitter.module, body)
        collect_used_names(self.own(body), self.used_names)
        for node in statements(body):
            if _is_placed(node) and node.buffer.name in self.used_names:
                self.place(node)
        self.stmt(body)

    def own(self, body: tir.Stmt) -> tir.Stmt:
        """Return the part of `body` with the buffers to declare; subclasses override this."""
        return body

    def place(self, node: tir.DeclBuffer) -> None:
        pool = self.exprs.memory(node.source.buffer).name
        place = MemoryBinding(self.scope.unique(node.buffer.name), node.buffer)
        self.exprs.places[node.buffer.name] = place
        pointee = self.exprs.element_type(place)
        inner = f"{pool} + {self.emitter.interface.offset_macro(node.buffer.name)}"
        text = inner if pointee == "uint8_t" else f"({pointee} *)({inner})"
        self.out.line(f"{pointee} *{place.name} = {text};")

    def decl_buffer(self, node: tir.DeclBuffer) -> None:
        if _is_placed(node):
            self.stmt(node.body)
        else:
            super().decl_buffer(node)

    def stmt(self, node: tir.Stmt) -> None:
        """Print a statement; a comment before each row-streaming loop names its operators."""
        if isinstance(node, tir.For | tir.Let):
            self.out.gap()
        if isinstance(node, tir.For):
            operators = [call.op for call in prim_calls(node) if call.op >= 0]
            if operators:
                self.out.comment(
                    [f"Operators {min(operators)} to {max(operators)}, streamed by rows."]
                )
        super().stmt(node)

    def call_prim(self, node: tir.PrimFuncCall) -> None:
        self.announce(node)
        probe = self._probe(node, self._pairs(node))
        if probe:
            self.out.line(probe.format(phase=0))
        self.out.line(self.kernel_call(node))
        if probe:
            self.out.line(probe.format(phase=1))

    def announce(self, node: tir.PrimFuncCall, more: str = "") -> None:
        if node.op >= 0:
            self.out.gap()
            callee = _get_kernel(self.emitter.module, node.callee)
            operator = str(callee.attrs.get("op", callee.name))
            tensor = node.span.tensor.split(";")[0]  # fused operators have several names
            suffix = f", {tensor}" if tensor else ""
            self.out.comment([f"{node.op}: {operator}{suffix}{more}"])
        elif node.span.tensor:
            self.out.gap()
            self.out.comment([f"{node.span.tensor}, state for the next run."])

    def kernel_call(self, node: tir.PrimFuncCall) -> str:
        pairs = self._pairs(node)
        args = ", ".join(self._argument(param, arg) for param, arg in pairs)
        callee = _get_kernel(self.emitter.module, node.callee)
        return f"{self.emitter.names.c(callee.code)}({args});"

    def _pairs(self, node: tir.PrimFuncCall) -> list[tuple[tir.Param, tir.Expr]]:
        callee = _get_kernel(self.emitter.module, node.callee)
        if len(callee.params) != len(node.args):
            raise InternalError(f"{node.callee} takes {len(callee.params)} arguments")
        return list(zip(callee.params, node.args, strict=True))

    def allocate_const(self, node: tir.AllocateConst) -> None:
        """Record a constant that is only read through `const_load`, which uses its offset."""
        location = self.emitter.memory.in_pool(node.constant)
        if location is None or location[0].addressable:
            super().allocate_const(node)
            return
        self.sources[node.buffer.name] = location
        self.stmt(node.body)

    def evaluate(self, node: tir.Evaluate) -> None:
        name, args = node.call.name, node.call.args
        if name not in CONSTANT_LOADS:
            super().evaluate(node)
            return
        target, source = args[0], args[-1]
        if not (isinstance(target, tir.AccessPtr) and isinstance(source, tir.AccessPtr)):
            raise InternalError(f"{name} needs pointers")
        if name == CONST_LOAD_WAIT.name:
            self._refuse_unread(self.waits[target.buffer.name], "wait", ())
            return
        pool, offset = self.sources[source.buffer.name]
        if name == CONST_LOAD_START.name:
            self.waits[target.buffer.name] = pool
        position = fold_index("add", tir.IntImm(offset, source.offset.dtype), source.offset)
        arguments = (
            self.exprs.as_type(position, UINT32).text,
            self.exprs.typed_pointer(target, UINT8, const=False).text,
            str(target.extent),
        )
        self._refuse_unread(pool, "read" if name == CONST_LOAD.name else "start", arguments)

    def _refuse_unread(self, pool: ConstantPoolFile, function: str, words: Sequence[str]) -> None:
        reader = f"pools->{pool.name}"
        self.out.line()
        args = ", ".join((f"{reader}.context", *words))
        with self.out.block(f"if ({reader}.{function}({args}) != 0)"):
            self.out.line(f"return {self.emitter.names.macro('e_read')};")

    def _argument(self, param: tir.Param, arg: tir.Expr) -> str:
        if isinstance(param.value, tir.Var):
            return self.exprs.as_type(arg, param.value.dtype).text
        if not isinstance(arg, tir.AccessPtr):
            raise InternalError(f"the parameter {param.name} needs a pointer")
        const = param.role in _READ_ROLES
        return self.exprs.typed_pointer(arg, param.value.dtype, const=const).text

    def _probe(self, node: tir.PrimFuncCall, pairs: Sequence[tuple[tir.Param, tir.Expr]]) -> str:
        if node.op < 0:
            return ""
        for param, arg in pairs:
            if param.role in WRITTEN_ROLES and isinstance(arg, tir.AccessPtr):
                size = arg.extent * arg.buffer.dtype.size_bytes
                macro = self.emitter.names.macro("probe")
                return f"{macro}({node.op}, {{phase}}, {self.result(param, arg)}, {size});"
        return ""

    def result(self, param: tir.Param, arg: tir.AccessPtr) -> str:
        """Return the pointer to a call's output that the probe receives."""
        return self._argument(param, arg)


def _is_placed(node: Node) -> TypeGuard[tir.DeclBuffer]:
    return (
        isinstance(node, tir.DeclBuffer)
        and node.source.buffer.scope == "pool"
        and isinstance(node.source.offset, tir.IntImm)
    )


# ---- parameters --------------------------------------------------------------------------------


def _declare_param(exprs: ExprPrinter, scope: LocalScope, param: tir.Param) -> str:
    """Bind a kernel parameter and return its C declaration."""
    name = scope.unique(param.name)
    if isinstance(param.value, tir.Var):
        exprs.variables[param.value.name] = name
        return f"{param.value.dtype.c_type} {name}"
    place = MemoryBinding(name, param.value)
    exprs.places[param.value.name] = place
    const = "const " if param.role in _READ_ROLES else ""
    return f"{const}{exprs.element_type(place)} *{name}"


def _param_name(exprs: ExprPrinter, param: tir.Param) -> str:
    if isinstance(param.value, tir.Var):
        return exprs.variables[param.value.name]
    return exprs.memory(param.value).name
