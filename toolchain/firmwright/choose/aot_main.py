"""Construction of the AOT main, which allocates tensors and calls the kernels.

The next value of a state is computed in place if the state is not read afterwards, else
it is copied at the end.
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
from firmwright.ir.graph.nodes import Call, Function, State, Value, called_functions
from firmwright.ir.module import AnyFunction, IoBinding, IoTensor, IRModule, StateTensor
from firmwright.ops.schedule import LoweringCandidate

TENSOR_ALIGNMENT = 16
_TAKEN = ("e",)
"""The beginnings of other macros: NAME_E_SIZE is an error, not the size of a tensor."""
ChosenCandidates = Sequence[tuple[Call, LoweringCandidate | None]]
"""Each call of the entry with its kernel; None for views and calls of functions."""


def build_main(
    module: IRModule, chosen: ChosenCandidates, segments: Sequence[FusedSegment] = ()
) -> IRModule:
    """Return the module with its entry function replaced by kernels and the AOT main.

    Entries in `chosen` for calls of `segments` are ignored.
    """
    names = UniqueNamer(_TAKEN)
    builder = _AotMainBuilder(module, module.entry_graph, names, tuple(segments))
    return builder.build(chosen)


@dataclass(slots=True)
class _MainParts:
    """The calls of kernels in order; functions and constants of the new module."""

    stmts: list[tir.Stmt]
    functions: dict[str, AnyFunction]
    constants: dict[str, Constant]


@dataclass(frozen=True)
class _AotMainBuilder:
    """Builds the AOT main of `entry`; `segments` are its calls streamed by rows.

    In the methods, `buffers` are the buffers by the name of their value, and `placed`
    the aliases.
    """

    module: IRModule
    entry: Function
    names: UniqueNamer
    segments: tuple[FusedSegment, ...]

    def build(self, chosen: ChosenCandidates) -> IRModule:
        self._check()
        alias_calls = self._alias_calls(chosen)
        placed = aliases.find_aliases(alias_calls)
        buffers = self._buffers(self._in_place(alias_calls, chosen), placed)
        pools = self._pools(buffers)
        inliner = ControlFlowInliner(
            self.module, self.names, TENSOR_ALIGNMENT, len(chosen), pools
        )
        parts = self._main_parts(chosen, buffers, inliner)
        parts.stmts += self._copy_next_states(inliner, buffers)
        parts.functions.update(inliner.kernels)
        attrs: dict[str, Attr] = {"aot_main": True}
        if pools:
            attrs["pool_assignments"] = tuple(pools.items())
        calls = tir.Seq(tuple(parts.stmts))
        body = self._declare_buffers(calls, inliner, buffers, placed)
        parts.functions["run"] = tir.PrimFunc("run", self._params(buffers), body, attrs)
        module = replace(
            self.module,
            functions=parts.functions,
            constants=parts.constants,
            io=self._io(buffers),
            entry_name="run",
        )
        return self._bind_requests(module, chosen, buffers, inliner)

    def _declare_buffers(
        self,
        body: tir.Stmt,
        inliner: ControlFlowInliner,
        buffers: Mapping[str, tir.Buffer],
        placed: Mapping[str, Alias],
    ) -> tir.Stmt:
        """Wrap the body in the declarations of buffers: memory outside, then views."""
        outside = () if self.module.io.inputs_in_pools else self.entry.params
        read_only = {value.name for value in outside}
        axis = self.module.settings.axis
        views = aliases.declare_views(placed, buffers, read_only, axis)
        for view in reversed((*views, *inliner.windows)):
            body = tir.DeclBuffer(view.buffer, view.source, body)
        for temporary in reversed(inliner.temporaries):
            body = tir.Allocate(temporary, body, "activation")
        for name, buffer in reversed(inliner.constants.items()):
            body = tir.AllocateConst(buffer, name, body)
        return self._allocate_around(body, buffers, set(placed))

    def _params(self, buffers: Mapping[str, tir.Buffer]) -> tuple[tir.Param, ...]:
        """Return the parameters of the main: inputs and outputs that callers store."""
        params: list[tir.Param] = []
        if not self.module.io.inputs_in_pools:
            for value in self.entry.params:
                params.append(tir.Param(buffers[value.name], "in"))
        if not self.module.io.outputs_in_pools:
            for value in self.entry.results:
                params.append(tir.Param(buffers[value.name], "out"))
        return tuple(params)

    def _io(self, buffers: Mapping[str, tir.Buffer]) -> IoBinding:
        """Return the description of inputs, outputs and states with their buffers."""

        def tensor(value: Value) -> IoTensor:
            return IoTensor(value.name, buffers[value.name].name, value.type)

        states: list[StateTensor] = []
        for state in self.entry.state:
            name, kind = state.value.name, state.value.type
            states.append(StateTensor(name, buffers[name].name, kind, state.initial))
        return replace(
            self.module.io,
            inputs=tuple(map(tensor, self.entry.params)),
            outputs=tuple(map(tensor, self.entry.results)),
            state=tuple(states),
        )

    def _bind_requests(
        self,
        module: IRModule,
        chosen: ChosenCandidates,
        buffers: Mapping[str, tir.Buffer],
        inliner: ControlFlowInliner,
    ) -> IRModule:
        """Record buffers and kernels of tensors whose device or pool is requested."""
        if not module.requests:
            return module
        buffer_names = dict(inliner.buffers_of)
        for name, buffer in buffers.items():
            buffer_names[name] = [buffer.name]
        calls = {name: list(numbers) for name, numbers in inliner.calls_of.items()}
        for index, (call, candidate) in enumerate(chosen):
            if candidate is not None or self.module.callee(call.op) is not None:
                for value in call.outputs:
                    calls[value.name] = [index]
            if candidate is not None:
                module = bind_constants(module, call.inputs, candidate.function.name)
        computing = ComputingCalls(self.module, calls).by_request()
        return bind_tensors(module, buffer_names, computing)

    def _main_parts(
        self,
        chosen: ChosenCandidates,
        buffers: Mapping[str, tir.Buffer],
        inliner: ControlFlowInliner,
    ) -> _MainParts:
        functions = dict(self.module.functions)
        del functions[self.entry.name]
        parts = _MainParts([], functions, dict(self.module.constants))
        default_target = next(iter(self.module.targets), "")
        segments = {segment.first: segment for segment in self.segments}
        streamed = self._streamed_calls()
        for index, (call, candidate) in enumerate(chosen):
            if index in segments:
                target = call.target or default_target
                loop, kernels = build_row_streaming_loop(
                    segments[index], buffers, self.names, target
                )
                parts.functions.update(kernels)
                parts.constants.update(segments[index].constants)
                parts.stmts.append(loop)
            elif index in streamed:
                continue
            elif candidate is not None:
                parts.constants.update(candidate.constants)
                function = candidate.function
                kernel, values = self._kernel_and_values(call, function, buffers)
                parts.functions[kernel.name] = kernel
                parts.stmts.append(call_kernel(kernel, values, buffers, call, index))
            elif self.module.graphs_of(call):
                parts.stmts.append(inliner.statement(call, buffers))
            elif call.op.startswith("@"):
                parts.stmts.append(self._call_by_name(call, index, buffers))
        return parts

    def _kernel_and_values(
        self, call: Call, kernel: tir.PrimFunc, buffers: Mapping[str, tir.Buffer]
    ) -> tuple[tir.PrimFunc, tuple[Value, ...]]:
        """Return the kernel and the values of its parameters.

        An output in the memory of an input, a state, has no parameter.
        """
        values = [*call.variables, *call.outputs]
        for following in call.outputs:
            for state in call.variables:
                if buffers[state.name] == buffers[following.name]:
                    updated = in_place_kernel(kernel, values, state, following)
                    if updated is not None:
                        kernel = updated
                        values.remove(following)
        return kernel, tuple(values)

    def _streamed_calls(self) -> set[int]:
        """Return the indices of the calls in segments."""
        streamed: set[int] = set()
        for segment in self.segments:
            streamed.update(range(segment.first, segment.end))
        return streamed

    def _alias_calls(self, chosen: ChosenCandidates) -> list[Call]:
        """Return the calls without a kernel: their outputs are in others' memory."""
        streamed = self._streamed_calls()
        alias_calls: list[Call] = []
        for index, (call, candidate) in enumerate(chosen):
            if candidate is not None or index in streamed:
                continue
            if not called_functions(call):
                alias_calls.append(call)
        return alias_calls

    def _in_place(
        self, alias_calls: Sequence[Call], chosen: ChosenCandidates
    ) -> dict[str, str]:
        """Return the values computed in a state's memory, and that state, by name."""
        streamed = self._streamed_calls()

        def updates(index: int, state: State) -> bool:
            call, candidate = chosen[index]
            if candidate is None or index in streamed:
                return False
            kernel, values = candidate.function, (*call.variables, *call.outputs)
            updated = in_place_kernel(kernel, values, state.value, state.next)
            return updated is not None

        views: set[str] = set()
        for call in alias_calls:
            if aliases.aliases_input(call):
                views.update(value.name for value in call.outputs)
        spans = [(segment.first, segment.end) for segment in self.segments]
        return aliases.find_state_aliases(self.entry, views, spans, updates)

    def _copy_next_states(
        self, inliner: ControlFlowInliner, buffers: Mapping[str, tir.Buffer]
    ) -> Iterator[tir.Stmt]:
        """Yield the copies of next values that were not computed in state memory."""
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
                    f"the model's output {value.name} is one of its inputs or a "
                    "constant.",
                    where=self.module.name,
                    hint="a model in which every output is computed.",
                )
        state_names = {state.value.name for state in self.entry.state}
        for state in self.entry.state:
            if state.next.name in state_names and state.next != state.value:
                raise ModelError(
                    f"the next value of state {state.value.name} is the state "
                    f"{state.next.name}.",
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
        ordered = [*entry.params, *entry.results]
        ordered += [state.value for state in entry.state]
        for call in entry.body:
            ordered += call.values
        values: dict[str, Value] = {}
        for value in (*ordered, *entry.sinks):
            values.setdefault(value.name, value)
        streamed: set[str] = set()
        for segment in self.segments:
            streamed |= segment.streamed
        buffers: dict[str, tir.Buffer] = {}
        for name, value in values.items():
            if name not in streamed and name not in in_place:
                buffers[name] = tir.Buffer(
                    self.names.unique(name),
                    value.type.dtype,
                    value.type.shape,
                    scope="global" if value.constant is None else "const",
                    alignment=aliases.known_alignment(placed, value, TENSOR_ALIGNMENT),
                )
        for name, state_name in in_place.items():
            buffers[name] = buffers[state_name]
        return buffers

    def _pools(self, buffers: Mapping[str, tir.Buffer]) -> dict[str, str]:
        """Return the pool of each buffer for which one is requested."""
        values = list(self.entry.sources)
        for call in self.entry.body:
            values += call.outputs
        pools: dict[str, str] = {}
        for value in values:
            scope = value.virtual_device.memory_scope
            if scope and value.name in buffers:
                pools[buffers[value.name].name] = scope
        return pools

    def _call_by_name(
        self, call: Call, index: int, buffers: Mapping[str, tir.Buffer]
    ) -> tir.PrimFuncCall:
        """Return a call of the module's PrimFunc with all values, even constants."""
        kernel = self.module.functions[call.op[1:]]
        count = len(call.values)
        if not isinstance(kernel, tir.PrimFunc) or len(kernel.params) != count:
            what = f"{call.op} cannot be called with {count} tensors."
            raise ModelError(what, where=str(call.span))
        return call_kernel(kernel, call.values, buffers, call, index)

    def _allocate_around(
        self, body: tir.Stmt, buffers: Mapping[str, tir.Buffer], windows: set[str]
    ) -> tir.Stmt:
        """Wrap the body in the allocations of buffers that have their own memory.

        Kernels declare the constants that they read; the main only declares those that
        it passes to functions by name or copies to a state.
        """
        io, entry = self.module.io, self.entry
        inputs = {value.name for value in entry.params}
        outputs = {value.name for value in entry.results}
        states = {state.value.name for state in entry.state}
        state_buffers = {buffers[name].name for name in states}
        constants = self._constants_of_main()
        for name, buffer in reversed(list(buffers.items())):
            is_in_state = buffer.name in state_buffers and name not in states
            if name in windows or is_in_state:
                continue
            if buffer.scope == "const":
                if name in constants:
                    body = tir.AllocateConst(buffer, constants[name], body)
            elif name in states:
                body = tir.Allocate(buffer, body, "state")
            elif name in inputs:
                if io.inputs_in_pools:
                    body = tir.Allocate(buffer, body, "input")
            elif name in outputs:
                if io.outputs_in_pools:
                    body = tir.Allocate(buffer, body, "output")
            else:
                body = tir.Allocate(buffer, body, "activation")
        return body

    def _constants_of_main(self) -> dict[str, str]:
        """Return the constants that the main passes on or copies, by value name."""
        used: list[Value] = [state.next for state in self.entry.state]
        for call in self.entry.body:
            if called_functions(call):
                used += [value for value in call.inputs if value is not None]
        constants: dict[str, str] = {}
        for value in used:
            if value.constant:
                constants[value.name] = value.constant
        return constants
