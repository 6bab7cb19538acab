"""Translation of calls that run graph functions into statements of the AOT main.

A branch writes its results to the call's output buffers. A loop copies the initial
values of its variables to these buffers before the loop, and new values after each
iteration. Constant variables are not copied; copies of them to other memories precede
the loop.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.errors import InternalError, ModelError
from firmwright.choose import aliases
from firmwright.choose.aliases import Alias
from firmwright.choose.row_copy_kernels import copy_tensor_kernel
from firmwright.ir import tir
from firmwright.ir.graph import devices
from firmwright.ir.graph.nodes import CONTROL_FLOW_OPS, Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX, whole_buffer
from firmwright.ir.tir.traversal import make_sequence

_ACCESS: Mapping[str, tir.AccessMode] = {
    "in": "r",
    "const": "r",
    "out": "w",
    "inout": "rw",
}
_Buffers = Sequence[tir.Buffer]
_Graphs = Sequence[Function]
_NO_ALIASES: Mapping[str, Alias] = {}


def pointer(buffer: tir.Buffer, role: str) -> tir.AccessPtr:
    return whole_buffer(buffer, _ACCESS[role])


def call_kernel(
    kernel: tir.PrimFunc,
    values: Sequence[Value],
    buffers: Mapping[str, tir.Buffer],
    call: Call,
    op: int,
) -> tir.PrimFuncCall:
    """Return the call of a kernel with the buffers of `values`; `op` is its index."""
    args: list[tir.AccessPtr] = []
    for value, param in zip(values, kernel.params, strict=True):
        args.append(pointer(buffers[value.name], param.role))
    device = devices.executing_device(call)
    return tir.PrimFuncCall(kernel.name, tuple(args), call.span, op, device)


@dataclass
class ControlFlowInliner:
    """Builder of inlined statements; `first_op` is the first unused operator index.

    `pools` are the memory scopes of buffers. `temporaries`, `constants`, `windows` and
    `kernels` collect the statements' needs. Values have unique names in the module if
    one is requested.
    """

    module: IRModule
    names: UniqueNamer
    alignment: int
    first_op: int
    pools: dict[str, str]
    temporaries: list[tir.Buffer] = field(default_factory=list)
    constants: dict[str, tir.Buffer] = field(default_factory=dict)
    windows: list[tir.DeclBuffer] = field(default_factory=list)
    kernels: dict[str, tir.PrimFunc] = field(default_factory=dict)
    buffers_of: dict[str, list[str]] = field(default_factory=dict)
    """The buffers that hold the values of inlined functions, by value."""
    calls_of: dict[str, list[int]] = field(default_factory=dict)
    """The operator indices of the calls that compute these values."""

    def statement(self, call: Call, buffers: Mapping[str, tir.Buffer]) -> tir.Stmt:
        """Return the statements for a call of graph functions; else a ModelError."""
        arguments: list[tir.Buffer] = []
        for value in call.inputs:
            if value is not None:
                arguments.append(self._operand(value, buffers))
        results = [buffers[value.name] for value in call.outputs]
        graphs = self.module.graphs_of(call)
        if len(graphs) != (2 if call.op in CONTROL_FLOW_OPS else 1):
            raise ModelError(f"{call.op} runs no graph function.", where=str(call.span))
        if call.op in CONTROL_FLOW_OPS:
            inline = self._while if call.op == "while" else self._if
            return inline(graphs, arguments, results)
        return self._inline(graphs[0], arguments, results)

    def copy(self, source: tir.Buffer, target: tir.Buffer) -> tir.PrimFuncCall:
        """Return a copy; only copy devices have access to all private pools."""
        default = next(iter(self.module.targets), "")
        kernel = copy_tensor_kernel(target.dtype, target.elements, default)
        args = (pointer(source, "in"), pointer(target, "out"))
        call = tir.PrimFuncCall(kernel.name, args)
        private = devices.private_pools(self.module)
        is_inward = self.pools.get(target.name) in private
        if is_inward or self.pools.get(source.name) in private:
            name = f"{devices.COPY_OP}_{target.elements}_{target.dtype.name}"
            attrs = {**kernel.attrs, "op": devices.COPY_OP}
            kernel = replace(kernel, name=name, attrs=attrs)
            device = devices.copy_device(self.module, outward=not is_inward)
            if device == devices.MAIN_DEVICE or source.scope == "const":
                device = ""
            call = replace(call, callee=name, op=self.first_op, device=device)
            self.first_op += 1
        self.kernels[kernel.name] = kernel
        return call

    # ---- the kinds of calls ----------------------------------------------------------

    def _if(self, graphs: _Graphs, arguments: _Buffers, results: _Buffers) -> tir.Stmt:
        """Return an If of two functions with the inputs after the condition."""
        condition, *args = arguments
        then_graph, else_graph = graphs
        then = self._inline(then_graph, args, results)
        otherwise = self._inline(else_graph, args, results)
        else_stmt = make_sequence([otherwise]) if otherwise.stmts else None
        return tir.If(_flag(condition), make_sequence([then]), else_stmt)

    def _while(
        self, graphs: _Graphs, arguments: _Buffers, results: _Buffers
    ) -> tir.Stmt:
        """Return the loop over the functions for the condition and the body.

        The variables are in the buffers of the results:

            enter: variables = initial values
            before: copies of constants and of variables that do not change
            flag = condition(variables)
            while flag:
                new values = body(variables), without the copies before the loop
                carry: variables = new values, of those that change
                flag = condition(variables)
        """
        condition, body = graphs
        flag = self._temporary(condition.results[0])
        test = self._inline(condition, results, [flag])
        new_values: list[tir.Buffer] = []
        invariant: set[str] = set()
        rows = zip(body.params, body.results, results, strict=True)
        for param, value, variable in rows:
            if value == param:
                new_values.append(variable)
                invariant.add(variable.name)
            else:
                new_values.append(self._temporary(value))
        iteration = self._inline(body, results, new_values)
        for window in self.windows:  # wholes precede their parts
            if window.source.buffer.name in invariant:
                invariant.add(window.buffer.name)
        before: list[tir.Stmt] = []
        for stmt in iteration.stmts:
            if self._is_invariant_copy(stmt, invariant):
                before.append(stmt)
        within = [stmt for stmt in iteration.stmts if stmt not in before]
        enter = [self.copy(a, b) for a, b in zip(arguments, results, strict=True)]
        carry: list[tir.Stmt] = []
        for new_value, variable in zip(new_values, results, strict=True):
            if new_value is not variable:
                carry.append(self.copy(new_value, variable))
        loop = tir.While(_flag(flag), tir.Seq((*within, *carry, *test.stmts)))
        return tir.Seq((*enter, *before, *test.stmts, loop))

    def _is_invariant_copy(self, stmt: tir.Stmt, invariant: Collection[str]) -> bool:
        """Return whether `stmt` copies constants or values that never change."""
        if not isinstance(stmt, tir.PrimFuncCall):
            return False
        kernel = self.kernels.get(stmt.callee) or self.module.functions[stmt.callee]
        if kernel.attrs.get("op") != devices.COPY_OP:
            return False
        for arg in stmt.args[:-1]:
            if isinstance(arg, tir.AccessPtr) and arg.buffer.name not in invariant:
                return False
        return True

    # ---- a function ------------------------------------------------------------------

    def _inline(
        self, function: Function, given: _Buffers, results: _Buffers
    ) -> tir.Seq:
        """Return the calls of a function, its parameters and results in these buffers.

        A result that is a parameter, a constant, or an earlier result again is copied
        at the end.
        """
        buffers: dict[str, tir.Buffer] = {}
        for param, buffer in zip(function.params, given, strict=True):
            buffers[param.name] = buffer
        defined: list[Value] = []
        for call in function.body:
            defined += call.outputs
        copied: list[tuple[Value, tir.Buffer]] = []
        for value, buffer in zip(function.results, results, strict=True):
            if value.name in buffers or value not in defined:
                copied.append((value, buffer))
            else:
                buffers[value.name] = buffer
        self._declare(function, defined, buffers)
        for name, buffer in buffers.items():
            self.buffers_of.setdefault(name, []).append(buffer.name)
        stmts: list[tir.Stmt] = []
        for call in function.body:
            if self.module.graphs_of(call):
                inlined = self.statement(call, buffers)
                stmts += inlined.stmts if isinstance(inlined, tir.Seq) else (inlined,)
            elif call.op.startswith("@"):
                stmts.append(self._invoke(call, buffers))
        for value, buffer in copied:
            source = self._operand(value, buffers)
            if source is not buffer:
                stmts.append(self.copy(source, buffer))
        return tir.Seq(tuple(stmts))

    def _declare(
        self,
        function: Function,
        defined: Sequence[Value],
        buffers: dict[str, tir.Buffer],
    ) -> None:
        """Add buffers for the other values; calls without kernels define views."""
        views: list[Call] = []
        for call in function.body:
            if call.op not in CONTROL_FLOW_OPS and not call.op.startswith("@"):
                views.append(call)
        placed = aliases.find_aliases(views)
        for value in defined:
            if value.name in buffers:
                continue
            if value.name in placed:
                buffers[value.name] = self._buffer(value, placed)
            else:
                buffers[value.name] = self._temporary(value, placed)
        read_only = {value.name for value in function.params}
        self.windows += aliases.declare_views(placed, buffers, read_only)

    def _invoke(
        self, call: Call, buffers: Mapping[str, tir.Buffer]
    ) -> tir.PrimFuncCall:
        """Return the call of a kernel inside a function, with an operator index."""
        kernel = self.module.functions[call.op[1:]]
        if not isinstance(kernel, tir.PrimFunc):
            raise InternalError(f"{call.op} is not a kernel")
        op = self.first_op
        self.first_op += 1
        for value in call.outputs:
            self.calls_of.setdefault(value.name, []).append(op)
        operands = {value.name: self._operand(value, buffers) for value in call.values}
        stmt = call_kernel(kernel, call.values, operands, call, op)
        # Tensor names are unique only within a subgraph.
        return replace(stmt, span=replace(call.span, tensor=""))

    def _operand(self, value: Value, buffers: Mapping[str, tir.Buffer]) -> tir.Buffer:
        """Return the buffer of a value; a constant has one buffer for all functions."""
        if value.name in buffers or value.constant is None:
            return buffers[value.name]
        if value.constant not in self.constants:
            self.constants[value.constant] = replace(self._buffer(value), scope="const")
        return self.constants[value.constant]

    def _temporary(
        self, value: Value, placed: Mapping[str, Alias] = _NO_ALIASES
    ) -> tir.Buffer:
        """Return a new buffer that the main allocates."""
        buffer = self._buffer(value, placed)
        self.temporaries.append(buffer)
        return buffer

    def _buffer(
        self, value: Value, placed: Mapping[str, Alias] = _NO_ALIASES
    ) -> tir.Buffer:
        """Return a new buffer with a unique name; record its pool if requested."""
        name = self.names.unique(value.name)
        alignment = aliases.known_alignment(placed, value, self.alignment)
        if value.virtual_device.memory_scope and value.constant is None:
            self.pools[name] = value.virtual_device.memory_scope
        return tir.Buffer(name, value.type.dtype, value.type.shape, alignment=alignment)


def _flag(buffer: tir.Buffer) -> tir.Expr:
    """Return the load of the only element of a buffer of any rank."""
    first = (tir.IntImm(0, INDEX),) * len(buffer.shape)
    return tir.BufferLoad(buffer, first)
