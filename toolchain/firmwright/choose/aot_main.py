"""Construction of the AOT main, which allocates intermediate tensors and calls the kernels.

The next value of a state is computed in place if the state is not read afterwards, else it is
copied at the end.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.errors import ModelError
from firmwright.choose import aliases
from firmwright.choose.aliases import Alias, in_place_kernel
from firmwright.choose.computing_calls import ComputingCalls
from firmwright.choose.main_control_flow import ControlFlowInliner, call_kernel
from firmwright.choose.row_streaming_loop import FusedSegment, build_row_streaming_loop
from firmwright.ir import tir
from firmwright.ir.bind_requests import bind_constants, bind_tensors
from firmwright.ir.core import Attr, Constant, Span
from firmwright.ir.graph.nodes import Call, Function, Value, called_functions
from firmwright.ir.module import AnyFunction, IoTensor, IRModule, StateTensor
from firmwright.ops.schedule import LoweringCandidate

TENSOR_ALIGNMENT = 16
ChosenCandidates = Sequence[tuple[Call, LoweringCandidate | None]]


def build_main(
    module: IRModule, chosen: ChosenCandidates, segments: Sequence[FusedSegment] = ()
) -> IRModule:
    """Return the module with its entry function replaced by kernels and the AOT main.

    Entries in `chosen` for calls of `segments` are ignored.
    """
    return _AotMainBuilder(module, module.entry_graph, UniqueNamer(), tuple(segments)).build(chosen)


@dataclass(frozen=True)
class _AotMainBuilder:
    module: IRModule
    entry: Function
    names: UniqueNamer
    segments: tuple[FusedSegment, ...]

    def build(self, chosen: ChosenCandidates) -> IRModule:
        self._check()
        viewing = self._alias_calls(chosen)
        placed = aliases.find_aliases(viewing)
        buffers = self._buffers(self._in_place(viewing, chosen), placed)
        pools = self._pools(buffers)
        inliner = ControlFlowInliner(self.module, self.names, TENSOR_ALIGNMENT, len(chosen), pools)
        stmts, functions, constants = self._statements(chosen, buffers, inliner)
        stmts += self._copy_next_states(inliner, buffers)
        functions.update(inliner.kernels)
        body: tir.Stmt = tir.Seq(tuple(stmts))
        outside = () if self.module.io.inputs_in_pools else self.entry.params
        views = aliases.declare_views(placed, buffers, {value.name for value in outside})
        for window in reversed((*views, *inliner.windows)):
            body = tir.DeclBuffer(window.buffer, window.source, body)
        for temporary in reversed(inliner.temporaries):
            body = tir.Allocate(temporary, body, "activation")
        for name, buffer in reversed(inliner.constants.items()):
            body = tir.AllocateConst(buffer, name, body)
        body = self._allocate_around(body, buffers, set(placed))
        io, entry = self.module.io, self.entry
        params: list[tir.Param] = []
        if not io.inputs_in_pools:
            params += [tir.Param(buffers[value.name], "in") for value in entry.params]
        if not io.outputs_in_pools:
            params += [tir.Param(buffers[value.name], "out") for value in entry.results]
        inputs, outputs = (
            tuple(IoTensor(v.name, buffers[v.name].name, v.type) for v in values)
            for values in (entry.params, entry.results)
        )
        state = tuple(
            StateTensor(s.value.name, buffers[s.value.name].name, s.value.type, s.initial)
            for s in entry.state
        )
        attrs: dict[str, Attr] = {"aot_main": True}
        if pools:
            attrs["pool_assignments"] = tuple(pools.items())
        functions["run"] = tir.PrimFunc("run", tuple(params), body, attrs)
        module = replace(
            self.module,
            functions=functions,
            constants=constants,
            io=replace(io, inputs=inputs, outputs=outputs, state=state),
            entry_name="run",
        )
        return self._bind_requests(module, chosen, buffers, inliner)

    def _bind_requests(
        self,
        module: IRModule,
        chosen: ChosenCandidates,
        buffers: Mapping[str, tir.Buffer],
        inliner: ControlFlowInliner,
    ) -> IRModule:
        if not module.requests:
            return module
        held = {**inliner.buffers_of, **{name: [b.name] for name, b in buffers.items()}}
        calls = {name: list(numbers) for name, numbers in inliner.calls_of.items()}
        for index, (call, candidate) in enumerate(chosen):
            if candidate is not None or self.module.callee(call.op) is not None:
                calls.update({value.name: [index] for value in call.outputs})
            if candidate is not None:
                module = bind_constants(module, call.inputs, candidate.function.name)
        return bind_tensors(module, held, ComputingCalls(self.module, calls).by_request())

    def _statements(
        self,
        chosen: ChosenCandidates,
        buffers: Mapping[str, tir.Buffer],
        inliner: ControlFlowInliner,
    ) -> tuple[list[tir.Stmt], dict[str, AnyFunction], dict[str, Constant]]:
        stmts: list[tir.Stmt] = []
        functions = {k: f for k, f in self.module.functions.items() if k != self.entry.name}
        constants = dict(self.module.constants)
        begins = {segment.first: segment for segment in self.segments}
        streamed = self._streamed_calls()
        for index, (call, alternative) in enumerate(chosen):
            if index in begins:
                segment = begins[index]
                loop, kernels = build_row_streaming_loop(
                    segment, buffers, self.names, call.target or next(iter(self.module.targets), "")
                )
                functions.update(kernels)
                constants.update(segment.constants)
                stmts.append(loop)
            elif index in streamed:
                continue
            elif alternative is not None:
                kernel, values = alternative.function, (*call.variables, *call.outputs)
                shared = [v for v in call.variables if buffers[v.name] == buffers[values[-1].name]]
                if shared and (updated := in_place_kernel(kernel, call, shared[0])) is not None:
                    kernel, values = updated, call.variables
                functions[kernel.name] = kernel
                constants.update(alternative.constants)
                stmts.append(call_kernel(kernel, values, buffers, call, index))
            elif self.module.graphs_of(call):
                stmts.append(inliner.statement(call, buffers))
            elif call.op.startswith("@"):
                stmts.append(self._call_by_name(call, index, buffers))
        return stmts, functions, constants

    def _streamed_calls(self) -> set[int]:
        return {index for s in self.segments for index in range(s.first, s.end)}

    def _alias_calls(self, chosen: ChosenCandidates) -> list[Call]:
        streamed = self._streamed_calls()
        return [
            call
            for index, (call, candidate) in enumerate(chosen)
            if candidate is None and index not in streamed and not called_functions(call)
        ]

    def _in_place(self, viewing: Sequence[Call], chosen: ChosenCandidates) -> dict[str, str]:
        streamed = self._streamed_calls()

        def updates(index: int, state: Value) -> bool:
            call, candidate = chosen[index]
            if candidate is None or index in streamed:
                return False
            return in_place_kernel(candidate.function, call, state) is not None

        views = [call for call in viewing if aliases.aliases_input(call)]
        names = {value.name for call in views for value in call.outputs}
        spans = [(segment.first, segment.end) for segment in self.segments]
        return aliases.find_state_aliases(self.entry, names, spans, updates)

    def _copy_next_states(
        self, inliner: ControlFlowInliner, buffers: Mapping[str, tir.Buffer]
    ) -> Iterator[tir.Stmt]:
        for state in self.entry.state:
            state_buffer, source = buffers[state.value.name], buffers[state.next.name]
            if state_buffer != source:
                copy = inliner.copy(source, state_buffer)
                yield replace(copy, span=Span("", tensor=state.value.name))

    def _check(self) -> None:
        sources = {value.name for value in self.entry.sources}
        for value in self.entry.results:
            if value.name in sources or value.constant is not None:
                raise ModelError(
                    f"the model's output {value.name} is one of its inputs or a constant.",
                    where=self.module.name,
                    hint="a model in which every output is computed.",
                )
        state_names = {state.value.name for state in self.entry.state}
        for state in self.entry.state:
            if state.next.name in state_names and state.next != state.value:
                raise ModelError(
                    f"the next value of state {state.value.name} is the state {state.next.name}.",
                    where=self.module.name,
                    hint="a copy of it, made by a call.",
                )

    def _buffers(
        self, in_place: Mapping[str, str], placed: Mapping[str, Alias]
    ) -> dict[str, tir.Buffer]:
        """Return a buffer for every stored value; inputs and outputs keep their names.

        Values in `in_place` share the buffer of their state.
        """
        entry = self.entry
        calls = [value for call in entry.body for value in call.values]
        states = [state.value for state in entry.state]
        values: dict[str, Value] = {}
        for value in (*entry.params, *entry.results, *states, *calls, *entry.sinks):
            values.setdefault(value.name, value)
        streamed = {name for segment in self.segments for name in segment.streamed}
        own = {
            name: tir.Buffer(
                self.names.unique(name),
                value.type.dtype,
                value.type.shape,
                scope="global" if value.constant is None else "const",
                alignment=aliases.known_alignment(placed, value, TENSOR_ALIGNMENT),
            )
            for name, value in values.items()
            if name not in streamed and name not in in_place
        }
        return own | {name: own[state] for name, state in in_place.items()}

    def _pools(self, buffers: Mapping[str, tir.Buffer]) -> dict[str, str]:
        values = (v for call in self.entry.body for v in call.outputs)
        return {
            buffers[value.name].name: value.virtual_device.memory_scope
            for value in (*self.entry.sources, *values)
            if value.virtual_device.memory_scope and value.name in buffers
        }

    def _call_by_name(
        self, call: Call, index: int, buffers: Mapping[str, tir.Buffer]
    ) -> tir.PrimFuncCall:
        """Return a call of the module's PrimFunc with all values as arguments, even constants."""
        kernel = self.module.functions[call.op[1:]]
        if not isinstance(kernel, tir.PrimFunc) or len(kernel.params) != len(call.values):
            what = f"{call.op} cannot be called with {len(call.values)} tensors."
            raise ModelError(what, where=str(call.span))
        return call_kernel(kernel, call.values, buffers, call, index)

    def _allocate_around(
        self, body: tir.Stmt, buffers: Mapping[str, tir.Buffer], windows: set[str]
    ) -> tir.Stmt:
        io, entry = self.module.io, self.entry
        inputs = {value.name for value in entry.params}
        outputs = {value.name for value in entry.results}
        named = [v for call in entry.body if called_functions(call) for v in call.inputs if v]
        named += [state.next for state in entry.state]
        named_constants = {value.name: value.constant for value in named if value.constant}
        state = {s.value.name for s in entry.state}
        state_buffers = {buffers[name].name for name in state}
        for name, buffer in reversed(list(buffers.items())):
            if name in windows or (buffer.name in state_buffers and name not in state):
                continue
            if buffer.scope == "const":
                if name in named_constants:
                    body = tir.AllocateConst(buffer, named_constants[name], body)
            elif name in state:
                body = tir.Allocate(buffer, body, "state")
            elif name in inputs:
                body = tir.Allocate(buffer, body, "input") if io.inputs_in_pools else body
            elif name in outputs:
                body = tir.Allocate(buffer, body, "output") if io.outputs_in_pools else body
            else:
                body = tir.Allocate(buffer, body, "activation")
        return body
