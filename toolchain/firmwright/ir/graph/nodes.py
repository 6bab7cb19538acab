"""Frozen nodes of the graph level.

Invariants, checked by `graph/verify.py`: shapes are static; every value is defined
once, by a parameter, state, constant or call, before its use; names are unique in a
function; a call's operator is in the operator table or, with a leading `@`, names a
function of the module.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from firmwright.base.dtypes import DType
from firmwright.base.quant import Quantization
from firmwright.ir.core import UNCONSTRAINED, Attr, Span, VirtualDevice
from firmwright.ir.graph.attributes.base import NO_ATTRS, AttrsT, OpAttrs, typed_attrs
from firmwright.ir.graph.attributes.control import IfAttrs, WhileAttrs


def unique_name(name: str, taken: set[str]) -> str:
    """Add `name` to `taken`, with a suffix `:1`, `:2`, ... if needed; return it."""
    free, count = name, 0
    while free in taken:
        count += 1
        free = f"{name}:{count}"
    taken.add(free)
    return free


@dataclass(frozen=True, slots=True)
class TensorType:
    """Static shape, element type and optional quantization."""

    shape: tuple[int, ...]
    dtype: DType
    quantization: Quantization | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.elements * self.dtype.size_bytes


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the graph; `constant` names an entry of the module's constants."""

    name: str
    type: TensorType
    constant: str | None = None
    virtual_device: VirtualDevice = UNCONSTRAINED

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape


@dataclass(frozen=True, slots=True)
class Call:
    """An operator applied to values; a `None` input is an omitted optional input.

    `target` names the entry of `IRModule.targets` for which the call is lowered ("" =
    first).
    """

    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: OpAttrs = NO_ATTRS
    span: Span = Span("")
    target: str = ""

    def attributes(self, kind: type[AttrsT]) -> AttrsT:
        """Return the attributes as `kind`; raise InternalError if they are not."""
        return typed_attrs(self.op, self.attrs, kind)

    @property
    def variables(self) -> tuple[Value, ...]:
        """The inputs that are present and not constant, in order."""
        return tuple(v for v in self.inputs if v is not None and v.constant is None)

    @property
    def values(self) -> tuple[Value, ...]:
        """The inputs that are present, then the outputs."""
        return (*(v for v in self.inputs if v is not None), *self.outputs)


CONTROL_FLOW_OPS = frozenset({"if", "while"})
"""Operators that run the graph functions that their attributes name."""


def called_functions(call: Call) -> tuple[str, ...]:
    """Return the functions that `call` runs: the callee, or its branches or loop."""
    if call.op.startswith("@"):
        return (call.op[1:],)
    match call.attrs:
        case IfAttrs(then=first, else_=second) | WhileAttrs(cond=first, body=second):
            return (first, second)
    return ()


@dataclass(frozen=True, slots=True)
class State:
    """A tensor kept between runs: `value` when a run begins, `next` when it ends.

    `initial` names the constant that resets it.
    """

    value: Value
    next: Value
    initial: str


@dataclass(frozen=True, slots=True)
class Function:
    """A graph: parameters, calls in topological order, results and state."""

    name: str
    params: tuple[Value, ...]
    body: tuple[Call, ...]
    results: tuple[Value, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    state: tuple[State, ...] = ()

    @property
    def sources(self) -> tuple[Value, ...]:
        """The values defined before the first call: parameters and state."""
        return (*self.params, *(state.value for state in self.state))

    @property
    def values(self) -> tuple[Value, ...]:
        """All values: sources, inputs and outputs of calls, with repetitions."""
        return (*self.sources, *(value for call in self.body for value in call.values))

    @property
    def sinks(self) -> tuple[Value, ...]:
        """The values used after the last call: results and next states."""
        return (*self.results, *(state.next for state in self.state))

    @property
    def makers(self) -> dict[str, int]:
        """The index in `body` of the call that makes each value, by value name."""
        indices: dict[str, int] = {}
        for index, call in enumerate(self.body):
            for value in call.outputs:
                indices[value.name] = index
        return indices
