"""Translation of the `if` and `while` calls of a graph into statements of the AOT main.

A branch writes its results to the call's output buffers. A loop keeps its variables in these
buffers: their initial values are copied in before the loop, their new values after each iteration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.errors import InternalError, ModelError
from firmwright.ir import tir
from firmwright.ir.graph.devices import executing_device
from firmwright.ir.graph.nodes import CONTROL_FLOW_OPS, Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.select.row_copy_kernels import copy_tensor_kernel

_ACCESS: Mapping[str, tir.AccessMode] = {"in": "r", "const": "r", "out": "w", "inout": "rw"}


def pointer(buffer: tir.Buffer, role: str) -> tir.AccessPtr:
    return tir.AccessPtr(buffer, tir.IntImm(0, INDEX), buffer.elements, _ACCESS[role])


def call_kernel(
    kernel: tir.PrimFunc,
    values: Sequence[Value],
    buffers: Mapping[str, tir.Buffer],
    call: Call,
    op: int,
) -> tir.PrimFuncCall:
    args = tuple(
        pointer(buffers[value.name], param.role)
        for value, param in zip(values, kernel.params, strict=True)
    )
    return tir.PrimFuncCall(kernel.name, args, call.span, op, executing_device(call))


@dataclass
class ControlFlowInliner:
    """Builder of inlined statements; `first_op` is the first unused operator index.

    `temporaries`, `windows` and `kernels` collect the buffers, views, and functions that the
    statements need.
    """

    module: IRModule
    names: UniqueNamer
    alignment: int
    first_op: int
    temporaries: list[tir.Buffer] = field(default_factory=list)
    windows: list[tir.DeclBuffer] = field(default_factory=list)
    kernels: dict[str, tir.PrimFunc] = field(default_factory=dict)

    def statement(self, call: Call, buffers: Mapping[str, tir.Buffer]) -> tir.Stmt:
        arguments = [buffers[value.name] for value in call.inputs if value is not None]
        results = [buffers[value.name] for value in call.outputs]
        inline = self._if if call.op == "if" else self._while
        return inline(call, arguments, results)

    def copy(self, source: tir.Buffer, target: tir.Buffer) -> tir.PrimFuncCall:
        default = next(iter(self.module.targets), "")
        kernel = copy_tensor_kernel(target.dtype, target.elements, default)
        self.kernels[kernel.name] = kernel
        return tir.PrimFuncCall(kernel.name, (pointer(source, "in"), pointer(target, "out")))

    # ---- the two kinds -------------------------------------------------------------------------

    def _if(
        self, call: Call, arguments: Sequence[tir.Buffer], results: Sequence[tir.Buffer]
    ) -> tir.Stmt:
        condition, *args = arguments
        then = self._inline(self._named(call, "then"), args, results)
        orelse = self._inline(self._named(call, "else"), args, results)
        return tir.If(_flag(condition), then, orelse if orelse != tir.Seq(()) else None)

    def _while(
        self, call: Call, arguments: Sequence[tir.Buffer], results: Sequence[tir.Buffer]
    ) -> tir.Stmt:
        condition, body = self._named(call, "cond"), self._named(call, "body")
        flag = self._buffer(condition.results[0])
        test = self._inline(condition, results, [flag])
        new_values = [self._buffer(value) for value in body.results]
        round_ = self._inline(body, results, new_values)
        enter = [self.copy(a, b) for a, b in zip(arguments, results, strict=True)]
        carry = [self.copy(a, b) for a, b in zip(new_values, results, strict=True)]
        loop = tir.While(_flag(flag), tir.Seq((round_, *carry, test)))
        return tir.Seq((*enter, test, loop))

    def _named(self, call: Call, attr: str) -> Function:
        function = self.module.functions.get(str(call.attrs.get(attr)))
        if not isinstance(function, Function):
            raise ModelError(f"{call.op} runs no graph function as {attr}.", where=str(call.span))
        return function

    # ---- a function ----------------------------------------------------------------------------

    def _inline(
        self, function: Function, given: Sequence[tir.Buffer], results: Sequence[tir.Buffer]
    ) -> tir.Stmt:
        buffers = {v.name: buffer for v, buffer in zip(function.params, given, strict=True)}
        buffers.update({v.name: b for v, b in zip(function.results, results, strict=True)})
        stmts: list[tir.Stmt] = []
        for call in function.body:
            for value in call.outputs:
                if value.name not in buffers:
                    planned = call.op.startswith("@") or call.op in CONTROL_FLOW_OPS
                    buffers[value.name] = self._buffer(value, planned=planned)
            if call.op in CONTROL_FLOW_OPS:
                stmts.append(self.statement(call, buffers))
            elif call.op.startswith("@"):
                stmts.append(self._invoke(call, buffers))
            else:
                self._view(call, buffers)
        return stmts[0] if len(stmts) == 1 else tir.Seq(tuple(stmts))

    def _invoke(self, call: Call, buffers: Mapping[str, tir.Buffer]) -> tir.PrimFuncCall:
        kernel = self.module.functions[call.op[1:]]
        values = [value for value in (*call.inputs, *call.outputs) if value is not None]
        if not isinstance(kernel, tir.PrimFunc):
            raise InternalError(f"{call.op} is not a kernel")
        self.first_op += 1
        stmt = call_kernel(kernel, values, buffers, call, self.first_op - 1)
        # Tensor names are unique only within a subgraph.
        return replace(stmt, span=replace(call.span, tensor=""), device="")

    def _view(self, call: Call, buffers: Mapping[str, tir.Buffer]) -> None:
        source = call.inputs[0]
        assert source is not None
        window = pointer(buffers[source.name], "in")
        self.windows.append(tir.DeclBuffer(buffers[call.outputs[0].name], window, tir.Seq(())))

    def _buffer(self, value: Value, *, planned: bool = True) -> tir.Buffer:
        name, kind = self.names.unique(value.name), value.type
        buffer = tir.Buffer(name, kind.dtype, kind.shape, alignment=self.alignment)
        if planned:
            self.temporaries.append(buffer)
        return buffer


def _flag(buffer: tir.Buffer) -> tir.Expr:
    return tir.BufferLoad(buffer, tuple(tir.IntImm(0, INDEX) for _ in buffer.shape))
