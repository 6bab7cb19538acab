"""The AOT main: a PrimFunc that allocates every intermediate tensor and calls the kernels in order.

In: the graph function and the kernel chosen for each call. Out: the module with the kernels and
`run`, the graph function gone. Views become windows of their parent. With I/O in the workspace the
model's inputs and outputs are allocated like any tensor (kinds `input`, `output`), else they are
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.base.errors import ModelError
from firmwright.base.names import NameSupply
from firmwright.ir.core import Attr
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.nodes import (
    AccessPtr,
    Allocate,
    AllocateConst,
    Buffer,
    CallPrim,
    DeclBuffer,
    IntImm,
    Param,
    PrimFunc,
    Seq,
    Stmt,
)
from firmwright.ir.tir.schedule import Alternative
from firmwright.select.row_loop import Segment, row_loop

TENSOR_ALIGNMENT = 16


Chosen = Sequence[tuple[Call, Alternative | None]]


def build_main(module: IRModule, chosen: Chosen, segments: Sequence[Segment] = ()) -> IRModule:
    """The module with kernels and AOT main in the place of its entry function.

    Calls that lie in one of the `segments` are computed there; what is chosen for them is not used.
    """
    entry = module.entry
    assert isinstance(entry, Function)
    return _Main(module, entry, NameSupply(), tuple(segments)).build(chosen)


@dataclass(frozen=True)
class _Main:
    module: IRModule
    entry: Function
    names: NameSupply
    segments: tuple[Segment, ...]

    def build(self, chosen: Chosen) -> IRModule:
        self._check()
        buffers = self._buffers()
        functions = {k: f for k, f in self.module.functions.items() if k != self.entry.name}
        constants = dict(self.module.constants)
        stmts: list[Stmt] = []
        windows: dict[str, DeclBuffer] = {}
        begins = {segment.first: segment for segment in self.segments}
        inside = {index for s in self.segments for index in range(s.first + 1, s.end)}
        for index, (call, alternative) in enumerate(chosen):
            if index in begins:
                segment = begins[index]
                loop, kernels = row_loop(segment, buffers, self.names, _target(self.module, call))
                functions.update(kernels)
                constants.update(segment.constants)
                stmts.append(loop)
            elif index in inside:
                continue
            elif alternative is not None:
                functions[alternative.function.name] = alternative.function
                constants.update(alternative.constants)
                stmts.append(self._invoke(alternative.function, call, index, buffers))
            elif call.op.startswith("@"):
                stmts.append(self._invoke_named(call, index, buffers))
            else:
                windows[call.outputs[0].name] = self._window(call, buffers)
        body: Stmt = Seq(tuple(stmts))
        for window in reversed(windows.values()):
            body = DeclBuffer(window.buffer, window.source, body)
        body = self._allocated(body, buffers, set(windows))
        inputs, outputs = (
            self._io(self.entry.params, buffers),
            self._io(self.entry.results, buffers),
        )
        params: list[Param] = []
        if not self.module.io.inputs_in_pools:
            params += [Param(buffers[value.name], "in") for value in self.entry.params]
        if not self.module.io.outputs_in_pools:
            params += [Param(buffers[value.name], "out") for value in self.entry.results]
        attrs = {"aot_main": True, **self._pins(buffers)}
        functions["run"] = PrimFunc("run", tuple(params), body, attrs)
        return replace(
            self.module,
            functions=functions,
            constants=constants,
            io=replace(self.module.io, inputs=inputs, outputs=outputs),
            attrs={**self.module.attrs, "entry": "run"},
        )

    def _check(self) -> None:
        params = {value.name for value in self.entry.params}
        for value in self.entry.results:
            if value.name in params or value.constant is not None:
                raise ModelError(
                    f"the model's output {value.name} is one of its inputs or a constant.",
                    where=self.module.name,
                    hint="a model in which every output is computed.",
                )

    def _buffers(self) -> dict[str, Buffer]:
        """A buffer for every value: I/O first, so that their names stay plainest."""
        values: dict[str, Value] = {}
        for value in (*self.entry.params, *self.entry.results):
            values.setdefault(value.name, value)
        for call in self.entry.body:
            for used in (*call.inputs, *call.outputs):
                if used is not None:
                    values.setdefault(used.name, used)
        streamed = {name for segment in self.segments for name in segment.streamed}
        return {
            name: Buffer(
                self.names.take(name),
                value.type.dtype,
                value.type.shape,
                scope="global" if value.constant is None else "const",
                alignment=TENSOR_ALIGNMENT,
            )
            for name, value in values.items()
            if name not in streamed
        }

    def _pins(self, buffers: Mapping[str, Buffer]) -> dict[str, Attr]:
        """The buffers of values with a memory scope, and the pool that it names."""
        values = (v for call in self.entry.body for v in call.outputs)
        found = tuple(
            (buffers[value.name].name, value.virtual_device.memory_scope)
            for value in (*self.entry.params, *values)
            if value.virtual_device.memory_scope and value.name in buffers
        )
        return {"pins": found} if found else {}

    def _pointer(self, buffer: Buffer, access: str) -> AccessPtr:
        mode: Callable[[str], str] = {"in": "r", "out": "w", "inout": "rw"}.__getitem__
        return AccessPtr(buffer, IntImm(0, INDEX), buffer.elements, mode(access))  # type: ignore[arg-type]  # one of r, w, rw

    def _invoke(
        self, kernel: PrimFunc, call: Call, index: int, buffers: Mapping[str, Buffer]
    ) -> CallPrim:
        """Arguments in the kernel's order: variable inputs, then outputs."""
        values = (*call.variables, *call.outputs)
        args = tuple(
            self._pointer(buffers[value.name], param.role)
            for value, param in zip(values, kernel.params, strict=True)
        )
        return CallPrim(kernel.name, args, call.span, index)

    def _invoke_named(self, call: Call, index: int, buffers: Mapping[str, Buffer]) -> CallPrim:
        """A call that names a PrimFunc of the module passes every value, constants too."""
        kernel = self.module.functions[call.op[1:]]
        values = [v for v in (*call.inputs, *call.outputs) if v is not None]
        if not isinstance(kernel, PrimFunc) or len(kernel.params) != len(values):
            raise ModelError(
                f"{call.op} cannot be called with {len(values)} tensors.", where=str(call.span)
            )
        args = tuple(
            self._pointer(buffers[value.name], param.role if param.role != "const" else "in")
            for value, param in zip(values, kernel.params, strict=True)
        )
        return CallPrim(kernel.name, args, call.span, index)

    def _window(self, call: Call, buffers: Mapping[str, Buffer]) -> DeclBuffer:
        parent = call.inputs[0]
        assert parent is not None
        return DeclBuffer(
            buffers[call.outputs[0].name], self._pointer(buffers[parent.name], "inout"), Seq(())
        )

    def _allocated(self, body: Stmt, buffers: Mapping[str, Buffer], windows: set[str]) -> Stmt:
        """Allocations around `body`: of constants used by name and of tensors that need memory."""
        inputs = {value.name for value in self.entry.params}
        outputs = {value.name for value in self.entry.results}
        used = {
            value.name: value.constant
            for call in self.entry.body
            if call.op.startswith("@")
            for value in call.inputs
            if value is not None and value.constant is not None
        }
        for name, buffer in reversed(list(buffers.items())):
            if name in windows:
                continue
            if buffer.scope == "const":
                if name in used:
                    body = AllocateConst(buffer, used[name], body)
            elif name in inputs:
                if self.module.io.inputs_in_pools:
                    body = Allocate(buffer, body, "input")
            elif name in outputs:
                if self.module.io.outputs_in_pools:
                    body = Allocate(buffer, body, "output")
            else:
                body = Allocate(buffer, body, "activation")
        return body

    def _io(self, values: tuple[Value, ...], buffers: Mapping[str, Buffer]) -> tuple[IoTensor, ...]:
        return tuple(IoTensor(v.name, buffers[v.name].name, v.type) for v in values)


def _target(module: IRModule, call: Call) -> str:
    return call.target or next(iter(module.targets), "")
