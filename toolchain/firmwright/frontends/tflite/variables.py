"""The variables of a model while its graph is made: what each one holds at the moment.

In: reads and assignments in the order of execution. Out: the `State` of the graph function, whose
values are plain dataflow: what a variable holds after an assignment is the assigned value itself.
Invariant: a state becomes a value of its own, never what another state was.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from firmwright.base.dtypes import INT8, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call, State, TensorType, Value


def initial_value(kind: TensorType) -> int:
    """What a variable of that type holds when nothing is said of it.

    As both runtimes reset: zero, but of int8 the value that stands for it.
    """
    if kind.quantization is None or kind.dtype != INT8:
        return 0
    return kind.quantization.zero_points[0]


def shared_variable_key(index: int, key: Hashable) -> Hashable:
    """What a variable of subgraph `index` is known by elsewhere: only named ones are shared."""
    return key if isinstance(key, tuple) else (index, key)


@dataclass
class Variable:
    """`value` is what a run finds, `current` what the calls so far have made of it."""

    value: Value
    current: Value
    initial: Array


@dataclass
class VariableTable:
    """The variables of one graph, by what they are known by in the file.

    `name` gives a name that no other value has; `emit` takes a call into the graph's body.
    """

    name: Callable[[str], str]
    emit: Callable[[Call], None]
    known: dict[Hashable, Variable] = field(default_factory=dict)
    initial_values: dict[Hashable, Array] = field(default_factory=dict)

    def set_initial(self, key: Hashable, initial: Array) -> None:
        """What the variable holds before the first run."""
        if key in self.known:
            raise NotSupportedError("a variable that is set once, after it has been used")
        self.initial_values[key] = initial

    def read(self, key: Hashable, name: str, kind: TensorType, fill: float | None = None) -> Value:
        """What it holds now, as a tensor of type `kind`; `fill` before anything is assigned."""
        found = self._variable(
            key, name, kind, initial_value(kind) if fill is None else fill
        ).current
        if found.type == kind:
            return found
        return self._copy(found, f"{name}/value", kind)

    def assign(self, key: Hashable, name: str, value: Value) -> None:
        """It holds `value` from now on."""
        variable = self._variable(key, name, value.type, initial_value(value.type))
        if value != variable.value and any(value == v.value for v in self.known.values()):
            value = self._copy(value, f"{name}/value", value.type)
        variable.current = value

    def result(self, value: Value) -> Value:
        """`value` as a result of the graph: a copy of what lies in the memory of state."""
        if any(value == variable.value for variable in self.known.values()):
            return self._copy(value, f"{value.name}/value", value.type)
        return value

    def state(self, constant: Callable[[Constant], str]) -> tuple[State, ...]:
        """The state of the graph; `constant` takes a first value in and gives its name."""
        made = []
        for variable in self.known.values():
            name, kind = f"{variable.value.name}/initial", variable.value.type
            initial = constant(Constant.from_array(name, variable.initial, kind.dtype))
            made.append(State(variable.value, variable.current, initial))
        return tuple(made)

    def _variable(self, key: Hashable, name: str, kind: TensorType, fill: float) -> Variable:
        if key not in self.known:
            first = self.initial_values.get(key)
            initial = np.full(kind.shape, fill, kind.dtype.np) if first is None else first
            value = Value(self.name(name), kind)
            self.known[key] = Variable(value, value, initial)
        found = self.known[key]
        has = (found.initial.shape, found.initial.dtype)
        if has != (kind.shape, kind.dtype.np):
            raise NotSupportedError(
                f"the variable {name} as {kind.dtype.name} {list(kind.shape)}, which is "
                f"{found.initial.dtype} {list(found.initial.shape)} elsewhere"
            )
        return found

    def _copy(self, value: Value, name: str, kind: TensorType) -> Value:
        made = Value(self.name(name), kind)
        self.emit(Call("reshape", (value,), (made,)))
        return made
