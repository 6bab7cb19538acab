"""The IR module, which holds the complete state of a compilation.

A module can be printed after any pass, parsed again and compiled to the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from firmwright.base.errors import InternalError, PluginError
from firmwright.ir import tir
from firmwright.ir.attribute_kinds import MODULE_ATTRIBUTES
from firmwright.ir.core import Attr, Constant, PoolInfo, Target
from firmwright.ir.graph.nodes import Call, Function, TensorType, called_functions
from firmwright.ir.pass_results import PassResults
from firmwright.ir.requests import PlacementRequest
from firmwright.ir.settings import ModelOrigin, NumericsProfile, Objective, Settings
from firmwright.ir.tir.plan import Plan
from firmwright.ir.untrusted_code import UntrustedCode

AnyFunction: TypeAlias = Function | tir.PrimFunc
DEFAULT_ENTRY = "main"
"""The entry of a module that names none."""


@dataclass(frozen=True, slots=True)
class IoTensor:
    """An input or output of the model: tensor name, buffer in the AOT main and type.

    `buffer` is a C identifier and also the name of the field in `NAME_inputs` or
    `NAME_outputs`.
    """

    name: str
    buffer: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class StateTensor(IoTensor):
    """A tensor kept between runs; `initial` names the constant that resets it."""

    initial: str


@dataclass(frozen=True, slots=True)
class IoBinding:
    """Where the model's inputs and outputs are stored.

    In mode `arena` they are planned in the pools, and a run may overwrite its input
    unless `preserve_input` is set. In mode `caller` the caller provides the buffers.
    With `stream_input_rows` the caller feeds the single input row by row, and no pool
    holds it. State is always in the pools.
    """

    mode: Literal["arena", "caller"] = "arena"
    preserve_input: bool = False
    inputs: tuple[IoTensor, ...] = ()
    outputs: tuple[IoTensor, ...] = ()
    stream_input_rows: bool = False
    state: tuple[StateTensor, ...] = ()

    @property
    def inputs_in_pools(self) -> bool:
        return self.mode == "arena" and not self.stream_input_rows

    @property
    def outputs_in_pools(self) -> bool:
        return self.mode == "arena"


@dataclass(frozen=True, slots=True)
class IRModule:
    """Functions of both levels, constants, targets, pools, I/O, plan and typed state.

    `settings` are fixed before the first pass, `results` grow with each pass.
    `entry_name` is the graph function or AOT main to run, by default `main`. `files`
    maps project paths to C sources contributed by backends and custom operators.
    `requests` are the user's placements of tensors; passes keep them. `attrs` are
    attributes of extensions, which nothing here reads. `untrusted` is the code that
    came with the text of the module if the user has not trusted it: no C is generated
    then.
    """

    name: str
    functions: Mapping[str, AnyFunction] = field(default_factory=dict)
    constants: Mapping[str, Constant] = field(default_factory=dict)
    targets: Mapping[str, Target] = field(default_factory=dict)
    pools: tuple[PoolInfo, ...] = ()
    io: IoBinding = IoBinding()
    plan: Plan | None = None
    entry_name: str = ""
    origin: ModelOrigin = field(default_factory=ModelOrigin)
    settings: Settings = field(default_factory=Settings)
    results: PassResults = field(default_factory=PassResults)
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    requests: tuple[PlacementRequest, ...] = ()
    untrusted: UntrustedCode | None = None

    def __post_init__(self) -> None:
        for name in self.attrs:
            if name in MODULE_ATTRIBUTES:
                what = (
                    f"the attribute {name} of the module {self.name} has a field of "
                    "its own."
                )
                hint = (
                    "set it in `settings`, `results`, `origin` or `entry_name` of the "
                    "module."
                )
                raise PluginError(what, hint=hint)

    def require_trust(self) -> None:
        """Raise UsageError if the module has code that the user does not trust."""
        if self.untrusted is not None:
            raise self.untrusted.error()

    @property
    def entry(self) -> AnyFunction:
        return self.functions[self.entry_name or DEFAULT_ENTRY]

    def find_entry(self) -> AnyFunction | None:
        """Return the entry, or None in a fragment without one."""
        return self.functions.get(self.entry_name or DEFAULT_ENTRY)

    @property
    def entry_graph(self) -> Function:
        if not isinstance(self.entry, Function):
            raise InternalError(f"the module {self.name} is lowered and has no graph.")
        return self.entry

    @property
    def aot_main(self) -> tir.PrimFunc:
        main = self.entry
        if isinstance(main, Function) or not main.attrs.get("aot_main"):
            raise InternalError(
                f"the module {self.name} has no AOT main: lower it first."
            )
        return main

    def kernel(self, name: str) -> tir.PrimFunc:
        function = self.functions.get(name)
        if not isinstance(function, tir.PrimFunc):
            raise InternalError(f"the module {self.name} has no kernel @{name}.")
        return function

    @property
    def memory_plan(self) -> Plan:
        if self.plan is None:
            raise InternalError(f"module {self.name} has no memory plan.")
        return self.plan

    @property
    def is_started(self) -> bool:
        """Whether a pass has run, so that settings are fixed."""
        return self.results.stage is not None

    @property
    def graphs(self) -> tuple[Function, ...]:
        """The graph functions without a target, entry first; none after lowering."""
        if not isinstance(self.entry, Function):
            return ()
        functions = {self.entry.name: self.entry, **self.functions}
        return _without_target(functions.values())

    def graphs_of(self, call: Call) -> tuple[Function, ...]:
        """Return the graphs that are inlined in place of `call`."""
        functions = (self.functions.get(name) for name in called_functions(call))
        return _without_target(functions)

    def callee(self, op: str) -> AnyFunction | None:
        """Return the function that `op` (`@name`) calls; None for an operator."""
        return self.functions.get(op[1:]) if op.startswith("@") else None

    def with_function(self, function: AnyFunction) -> IRModule:
        """Return this module with `function`, in place of one of the same name.

        A graph that is equal to the present one is no change.
        """
        present = self.functions.get(function.name)
        if isinstance(function, Function) and function == present:
            return self
        return replace(self, functions={**self.functions, function.name: function})

    def with_attrs(self, **attrs: Attr) -> IRModule:
        """Return this module with attributes of an extension; settings have fields."""
        return replace(self, attrs={**self.attrs, **attrs})

    def with_stage(self, stage: str) -> IRModule:
        return replace(self, results=replace(self.results, stage=stage))

    def with_numerics(self, numerics: NumericsProfile) -> IRModule:
        return replace(self, settings=replace(self.settings, numerics=numerics))

    def with_objective(self, objective: Objective) -> IRModule:
        return replace(self, settings=replace(self.settings, objective=objective))


def _without_target(functions: Iterable[AnyFunction | None]) -> tuple[Function, ...]:
    """Return the graph functions among `functions` that belong to no target."""
    graphs: list[Function] = []
    for function in functions:
        if isinstance(function, Function) and not function.attrs.get("target"):
            graphs.append(function)
    return tuple(graphs)


@dataclass(frozen=True, slots=True)
class Pass:
    """A named transformation `IRModule -> IRModule`.

    Passes of users follow the pass `after`; `origin` names their Python function.
    """

    name: str
    run: Callable[[IRModule], IRModule]
    after: str = ""
    origin: str = ""

    @property
    def stage(self) -> str:
        """The last pass of the pipeline that has run after this one."""
        return self.after or self.name

    def __call__(self, module: IRModule) -> IRModule:
        return self.run(module)
