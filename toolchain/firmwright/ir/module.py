"""The module: everything about a compilation in one value, from import to code generation.

There is no other state. A module can be written out after any pass, read back elsewhere and
compiled to the same bytes (`ir/printer.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from firmwright.ir import tir
from firmwright.ir.core import Attr, Constant, PoolInfo, Target
from firmwright.ir.graph.nodes import Function, TensorType
from firmwright.ir.tir.plan import Plan

AnyFunction: TypeAlias = Function | tir.PrimFunc


@dataclass(frozen=True, slots=True)
class IoTensor:
    """An input or output of the model: its tensor name there, its buffer in the AOT main, type.

    `buffer` is a C identifier: the field of `struct NAME_inputs` / `_outputs` too.
    """

    name: str
    buffer: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class StateTensor(IoTensor):
    """A tensor that the model keeps between runs; `initial` names the constant it is reset to."""

    initial: str


@dataclass(frozen=True, slots=True)
class IoBinding:
    """Who owns the model's inputs and outputs.

    `workspace`: they lie in the pools and may share memory, so a run consumes its input unless
    `preserve_input`. `caller`: the caller's buffers, in no pool. With `stream_input_rows` the one
    input is in
    no pool in either mode: the caller feeds it row by row. State lies in the pools in both.
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
    """Functions of both levels, constants, targets, pools, I/O binding, plan, attributes.

    Known attributes: `numerics` (litert|tflm), `optimize` (speed|size|ram|balanced),
    `link_params` (bool), `planner`, `entry` (name of the graph function or AOT main to run),
    `source_sha256` (of the model file), `partitioned` (its operators have been given to targets).
    `files` are C sources that backends and custom operators brought, by their path in the project.
    """

    name: str
    functions: Mapping[str, AnyFunction] = field(default_factory=dict)
    constants: Mapping[str, Constant] = field(default_factory=dict)
    targets: Mapping[str, Target] = field(default_factory=dict)
    pools: tuple[PoolInfo, ...] = ()
    io: IoBinding = IoBinding()
    plan: Plan | None = None
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def entry(self) -> AnyFunction:
        return self.functions[str(self.attrs.get("entry", "main"))]

    def callee(self, op: str) -> AnyFunction | None:
        """The function that a call of `op` calls, `@name`; None where it is an operator."""
        return self.functions.get(op[1:]) if op.startswith("@") else None

    def with_function(self, function: AnyFunction) -> IRModule:
        """This module with `function` added, or put in the place of the one of its name."""
        return replace(self, functions={**self.functions, function.name: function})

    def with_attrs(self, **attrs: Attr) -> IRModule:
        return replace(self, attrs={**self.attrs, **attrs})


@dataclass(frozen=True, slots=True)
class Pass:
    """A named step `IRModule -> IRModule`; the driver verifies the module after it."""

    name: str
    run: Callable[[IRModule], IRModule]

    def __call__(self, module: IRModule) -> IRModule:
        return self.run(module)
