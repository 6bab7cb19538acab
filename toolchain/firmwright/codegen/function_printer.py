"""Translation of the AOT main to C functions.

Only the main knows pools and offsets; it places a probe before and after each call.
"""

from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from typing import TypeGuard

from firmwright.base.dtypes import UINT8, UINT32
from firmwright.base.errors import InternalError
from firmwright.codegen.c_names import PointerBinding
from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.constant_pool_files import ConstantPoolFile
from firmwright.codegen.expr_printer import cast_type
from firmwright.codegen.kernel_printer import READ_ROLES, WRITTEN_ROLES
from firmwright.codegen.model_interface import WorkspacePool, is_ram_constant_copy
from firmwright.codegen.stmt_printer import EmitContext, StmtPrinter, collect_used_names
from firmwright.ir import tir
from firmwright.ir.graph.devices import is_copy_device
from firmwright.ir.module import IRModule
from firmwright.ir.tir import traversal
from firmwright.ir.tir.flat_index import fold_index
from firmwright.ir.tir.traversal import Node
from firmwright.ops import intrinsics
from firmwright.ops.memory_sums import REQUIRE_EQUAL
from firmwright.passes.tir.externalize_constants import linked_constants


def without_calls(
    body: tir.Stmt, matches: Callable[[tir.PrimFuncCall], bool]
) -> tir.Stmt:
    def rule(node: Node) -> Node | None:
        is_match = isinstance(node, tir.PrimFuncCall) and matches(node)
        return tir.Seq(()) if is_match else None

    return traversal.rewrite_stmt(body, rule)


def without_constant_copies(module: IRModule, body: tir.Stmt) -> tir.Stmt:
    """Remove the calls that copy constants to RAM."""
    return without_calls(body, lambda call: is_ram_constant_copy(module, call))


def reachable_kernels(module: IRModule, main: tir.PrimFunc) -> tuple[tir.PrimFunc, ...]:
    body = without_constant_copies(module, main.body)
    executed = without_calls(body, lambda call: is_copy_device(call.device))
    return tuple(map(module.kernel, traversal.callees(executed)))


def ram_constants(module: IRModule, main: tir.PrimFunc) -> Iterator[tuple[str, str]]:
    """Yield the RAM-resident constants, each with the buffer that holds it."""
    sources = {node.buffer.name: node.constant for node in linked_constants(main)}
    for call in traversal.prim_calls(main.body):
        if is_ram_constant_copy(module, call):
            source, target = call.args
            assert isinstance(source, tir.AccessPtr)
            assert isinstance(target, tir.AccessPtr)
            yield sources[source.buffer.name], target.buffer.name


def backend_version_checks(module: IRModule) -> list[tuple[str, str]]:
    """Return the check functions that a run calls first, with their data versions."""
    checks: list[tuple[str, str]] = []
    for check in module.results.backend_checks:
        function, version = check.split()
        checks.append((function, version))
    return checks


# ---- the AOT main --------------------------------------------------------------------


def print_main(context: EmitContext, main: tir.PrimFunc) -> str:
    printer = AotMainPrinter(context, ("in", "out", "pools", "params"))
    with printer.out.function(context.definition("run")):
        printer.check_arguments(("in", "out"))
        printer.declare_params(main.params, traversal.used_buffers(main.body))
        if not context.interface.pools and not context.const_pools:
            printer.out.line("(void)pools;")
        printer.main_body(main.body)
        printer.out.line()
        printer.return_status("ok")
    return printer.out.text()


def print_map_io(context: EmitContext) -> str:
    io, out = context.interface, CWriter()
    printer = AotMainPrinter(context, ("in", "out", "pools"), out)
    with out.function(context.definition("map_io")):
        printer.check_arguments(("in", "out"), mapping=True)
        for struct, tensors in (("in", io.inputs), ("out", io.outputs)):
            for tensor in tensors:
                if tensor.placed is not None:
                    address = f"(pools->{tensor.placed.pool} + {tensor.macro}_OFFSET)"
                    out.line(f"{struct}->{tensor.field} = {tensor.pool_cast}{address};")
        printer.return_status("ok")
    return out.text()


class AotMainPrinter(StmtPrinter):
    """A printer of the AOT main's body: placed buffers, calls and probes."""

    __slots__ = ("sources", "waits")

    def __init__(
        self, context: EmitContext, reserved: Iterable[str], out: CWriter | None = None
    ) -> None:
        super().__init__(context, (*reserved, "constants", "probe"), out)
        self.sources: dict[str, tuple[ConstantPoolFile, int]] = {}
        self.waits: dict[str, ConstantPoolFile] = {}

    # ---- arguments -------------------------------------------------------------------

    def check_arguments(
        self,
        pointers: Sequence[str],
        alignments: Sequence[tuple[str, str]] = (),
        *,
        mapping: bool = False,
    ) -> None:
        """Print the checks of the pools and of the argument pointers `pointers`.

        Members of the structs `in` and `out` are checked too. `alignments` are further
        pointers, each with its alignment's macro. For `mapping`, members and constants
        need not be set.
        """
        io = self.context.interface
        const_pools = () if mapping else self.context.const_pools
        required = [*pointers, "pools"]
        if io.params and not mapping:
            required.append(io.params)
        required += [f"pools->{pool.name}" for pool in io.pools]
        pools: list[WorkspacePool | ConstantPoolFile] = [*io.pools]
        for pool in const_pools:
            required += pool.given_by_user
            if pool.addressable:
                pools.append(pool)
        aligned = [(f"pools->{pool.name}", f"{pool.macro}_ALIGN") for pool in pools]
        aligned += alignments
        misplaced: list[str] = []
        tensors = [("in", t) for t in io.inputs] + [("out", t) for t in io.outputs]
        for struct, tensor in tensors:
            pointer = f"{struct}->{tensor.field}"
            if mapping or struct not in pointers:
                continue
            if tensor.placed is not None:
                offset = f"pools->{tensor.placed.pool} + {tensor.macro}_OFFSET"
                misplaced.append(f"(void *){pointer} != {offset}")
                continue
            required.append(pointer)
            if tensor.alignment > 1:
                aligned.append((pointer, f"{tensor.macro}_ALIGN"))
        if io.has_probe_callback and not mapping:
            self.out.line("(void)probe;")
        # Null pointers come first: the other checks read through them.
        self.refuse([f"{pointer} == NULL" for pointer in required], "e_null")
        unaligned = [f"(uintptr_t){p} % {align} != 0" for p, align in aligned]
        self.refuse(unaligned, "e_align")
        if io.pools:
            self._check_sizes(io.pools)
        self.refuse(misplaced, "e_io")
        if "in" in pointers and not mapping:
            self.refuse(io.sizes_outside, "e_axis")
        if const_pools:
            self._check_constants()
        if not mapping:
            checks = backend_version_checks(self.context.module)
            failing = [f"{function}({version}u) != 0" for function, version in checks]
            self.refuse(failing, "e_backend")

    def _check_sizes(self, pools: Sequence[WorkspacePool]) -> None:
        self.out.raw(f"#ifdef {self.context.names.macro('check_sizes')}")
        small = [f"pools->{pool.name}_size < {pool.macro}_SIZE" for pool in pools]
        self.refuse(small, "e_size")
        self.out.raw("#endif")

    def _check_constants(self) -> None:
        check = self.context.names.c("check_constants")
        self.out.line(f"const int32_t constants = {check}(pools);")
        with self.out.block(f"if (constants != {self.context.names.macro('ok')})"):
            self.out.line("return constants;")

    def refuse(self, conditions: Sequence[str], status: str) -> None:
        """Print an if statement that returns `status` if any condition holds."""
        if conditions:
            with self.out.block(f"if ({' || '.join(conditions)})"):
                self.return_status(status)

    def return_status(self, status: str) -> None:
        self.out.line(f"return {self.context.names.macro(status)};")

    def declare_params(self, params: Iterable[tir.Param], used: Iterable[str]) -> None:
        """Declare pointers to the used pools and tensors in the parameters."""
        for param in params:
            buffer = param.value
            if not isinstance(buffer, tir.Buffer):
                name = param.name
                raise InternalError(f"the AOT main has the scalar parameter {name}")
            if buffer.name not in used:
                continue
            place = PointerBinding(self.scope.unique(buffer.name), buffer)
            self.exprs.places[buffer.name] = place
            const = "const " if param.role == "in" else ""
            source = {"pool": "pools", "in": "in"}.get(param.role, "out")
            pointee = self.exprs.element_type(place)
            self.out.line(f"{const}{pointee} *{place.name} = {source}->{buffer.name};")

    # ---- statements ------------------------------------------------------------------

    def main_body(self, body: tir.Stmt) -> None:
        """Declare placed buffers, then print the body without copies to RAM."""
        body = without_constant_copies(self.context.module, body)
        self.used_names = set()
        collect_used_names(self.own(body), self.used_names)
        # The pieces of a step each have their declarations: one of each suffices.
        placed: dict[str, tir.DeclBuffer] = {}
        for node in traversal.statements(body):
            if _is_placed(node) and node.buffer.name in self.used_names:
                placed[node.buffer.name] = node
        for node in placed.values():
            self._declare_placed(node)
        self.stmt(body)

    def own(self, body: tir.Stmt) -> tir.Stmt:
        """Return the part of `body` that needs declared buffers, for subclasses."""
        return body

    def _declare_placed(self, node: tir.DeclBuffer) -> None:
        pool = self.exprs.memory(node.source.buffer).name
        place = PointerBinding(self.scope.unique(node.buffer.name), node.buffer)
        self.exprs.places[node.buffer.name] = place
        pointee = self.exprs.element_type(place)
        address = f"{pool} + {self.context.interface.offset_macro(node.buffer.name)}"
        if pointee != "uint8_t":
            address = f"({cast_type(pointee)} *)({address})"
        self.out.line(f"{pointee} *{place.name} = {address};")

    def decl_buffer(self, node: tir.DeclBuffer) -> None:
        if _is_placed(node):
            self.stmt(node.body)
        else:
            super().decl_buffer(node)

    def stmt(self, node: tir.Stmt) -> None:
        """Print a statement, and a comment on the operators of a row-streaming loop."""
        if isinstance(node, tir.For | tir.Let):
            self.out.gap()
        if isinstance(node, tir.For):
            ops = [call.op for call in traversal.prim_calls(node) if call.op >= 0]
            if ops:
                text = f"Operators {min(ops)} to {max(ops)}, streamed by rows."
                self.out.comment([text])
        super().stmt(node)

    def call_prim(self, node: tir.PrimFuncCall) -> None:
        self.announce(node)
        probe = self.probe(node)
        if probe:
            self.out.line(probe.format(phase=0))
        self.out.line(self.kernel_call(node))
        if probe:
            self.out.line(probe.format(phase=1))

    def announce(self, node: tir.PrimFuncCall, more: str = "") -> None:
        if node.op >= 0:
            self.out.gap()
            callee = self.context.module.kernel(node.callee)
            operator = str(callee.attrs.get("op", callee.name))
            # Fused operators have several names.
            tensor, *_ = node.span.tensor.split(";")
            suffix = f", {tensor}" if tensor else ""
            self.out.comment([f"{node.op}: {operator}{suffix}{more}"])
        elif node.span.tensor:
            self.out.gap()
            self.out.comment([f"{node.span.tensor}, state for the next run."])

    def kernel_call(self, node: tir.PrimFuncCall) -> str:
        callee = self.context.module.kernel(node.callee)
        args = [self._argument(param, arg) for param, arg in self._pairs(node)]
        return f"{self.context.names.c(callee.code)}({', '.join(args)});"

    def _pairs(self, node: tir.PrimFuncCall) -> list[tuple[tir.Param, tir.Expr]]:
        callee = self.context.module.kernel(node.callee)
        if len(callee.params) != len(node.args):
            raise InternalError(f"{node.callee} takes {len(callee.params)} arguments")
        return list(zip(callee.params, node.args, strict=True))

    def allocate_const(self, node: tir.AllocateConst) -> None:
        """Record the place of a constant that only `const_load` reads."""
        location = self.context.pool_location(node.constant)
        if location is None or location[0].addressable:
            super().allocate_const(node)
            return
        self.sources[node.buffer.name] = location
        self.stmt(node.body)

    def evaluate(self, node: tir.Evaluate) -> None:
        name, args = node.call.name, node.call.args
        if name == REQUIRE_EQUAL.name:
            found, expected = (self.exprs.as_type(arg, UINT32).text for arg in args)
            self.refuse([f"{found} != {expected}"], "e_corrupt")
            return
        if name not in intrinsics.CONSTANT_LOADS:
            super().evaluate(node)
            return
        target, source = args[0], args[-1]
        pointer = tir.AccessPtr
        if not isinstance(target, pointer) or not isinstance(source, pointer):
            raise InternalError(f"{name} needs pointers")
        if name == intrinsics.CONST_LOAD_WAIT.name:
            self._call_reader(self.waits[target.buffer.name], "wait")
            return
        pool, offset = self.sources[source.buffer.name]
        if name == intrinsics.CONST_LOAD_START.name:
            self.waits[target.buffer.name] = pool
        # Offset in the pool's file, plus the offset in the constant.
        start = tir.IntImm(offset, source.offset.dtype)
        position = fold_index("add", start, source.offset)
        place = self.exprs.as_type(position, UINT32).text
        memory = self.exprs.typed_pointer(target, UINT8, const=False).text
        function = "read" if name == intrinsics.CONST_LOAD.name else "start"
        self._call_reader(pool, function, place, memory, str(target.extent))

    def _call_reader(
        self, pool: ConstantPoolFile, function: str, *arguments: str
    ) -> None:
        """Print a call of a pool's read function, and a return if it fails."""
        reader = f"pools->{pool.name}"
        self.out.line()
        args = ", ".join((f"{reader}.context", *arguments))
        self.refuse([f"{reader}.{function}({args}) != 0"], "e_read")

    def _argument(self, param: tir.Param, arg: tir.Expr) -> str:
        if isinstance(param.value, tir.Var):
            return self.exprs.as_type(arg, param.value.dtype).text
        if not isinstance(arg, tir.AccessPtr):
            raise InternalError(f"the parameter {param.name} needs a pointer")
        const = param.role in READ_ROLES
        return self.exprs.typed_pointer(arg, param.value.dtype, const=const).text

    def probe(self, node: tir.PrimFuncCall) -> str:
        """Return the probe of an operator's first output, with `{phase}` open."""
        if node.op < 0:
            return ""
        for param, arg in self._pairs(node):
            if param.role in WRITTEN_ROLES and isinstance(arg, tir.AccessPtr):
                size = arg.extent * arg.buffer.dtype.size_bytes
                macro = self.context.names.macro("probe")
                output = self.result(param, arg)
                return f"{macro}({node.op}, {{phase}}, {output}, {size});"
        return ""

    def result(self, param: tir.Param, arg: tir.AccessPtr) -> str:
        """Return the pointer to a call's output that the probe receives."""
        return self._argument(param, arg)


def _is_placed(node: Node) -> TypeGuard[tir.DeclBuffer]:
    if not isinstance(node, tir.DeclBuffer) or node.source.buffer.scope != "pool":
        return False
    return isinstance(node.source.offset, tir.IntImm)
