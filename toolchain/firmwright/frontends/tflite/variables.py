"""The variables of a model during import; reads and assignments become dataflow."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call, Function, State, TensorType, Value
from firmwright.ir.graph.periodic_calls import initial_value


def shared_variable_key(index: int, key: Hashable) -> Hashable:
    """Return a key that is unique in the model; subgraphs share named variables."""
    return key if isinstance(key, tuple) else (index, key)


@dataclass
class Variable:
    """A variable: `value` at the start of a run, `current` after the calls so far."""

    value: Value
    current: Value
    initial: Array


@dataclass
class VariableTable:
    """A graph's variables by key.

    `name` makes names unique, `emit` appends a call to the body.
    """

    name: Callable[[str], str]
    emit: Callable[[Call], None]
    known: dict[Hashable, Variable] = field(default_factory=dict)
    initial_values: dict[Hashable, Array] = field(default_factory=dict)

    def set_initial(self, key: Hashable, initial: Array) -> None:
        if key in self.known:
            raise NotSupportedError(
                "a variable that is initialized after its first use"
            )
        self.initial_values[key] = initial

    def read(
        self, key: Hashable, name: str, kind: TensorType, fill: float | None = None
    ) -> Value:
        """Return the current value as `kind`; `fill` overrides the initial value."""
        fill = initial_value(kind) if fill is None else fill
        current = self._variable(key, name, kind, fill).current
        if current.type == kind:
            return current
        return self._copy(current, f"{name}/value", kind)

    def assign(self, key: Hashable, name: str, value: Value) -> None:
        variable = self._variable(key, name, value.type, initial_value(value.type))
        if value != variable.value and self._is_start(value):
            value = self._copy(value, f"{name}/value", value.type)
        variable.current = value

    def result(self, value: Value) -> Value:
        """Return `value` as a graph result; copy a value in state memory."""
        if self._is_start(value):
            return self._copy(value, f"{value.name}/value", value.type)
        return value

    def _is_start(self, value: Value) -> bool:
        """Return whether this is a variable's value at the start of a run."""
        return any(value == variable.value for variable in self.known.values())

    def state(self, constant: Callable[[Constant], str]) -> tuple[State, ...]:
        """Return the graph's state; `constant` names and registers initial values."""
        states = []
        for variable in self.known.values():
            name = f"{variable.value.name}/initial"
            kind = variable.value.type
            initial = constant(Constant.from_array(name, variable.initial, kind.dtype))
            states.append(State(variable.value, variable.current, initial))
        return tuple(states)

    def with_operands(
        self,
        function: Function,
        index: int,
        variables: Mapping[Hashable, Variable],
        assigned: Sequence[Hashable],
    ) -> Function:
        """Return a function with more operands `variables` and results `assigned`."""
        own = {shared_variable_key(index, key): v for key, v in self.known.items()}
        params: dict[Hashable, Value] = {}
        for key, variable in variables.items():
            name = variable.value.name
            kind = variable.value.type
            params[key] = own[key].value if key in own else Value(self.name(name), kind)
        results = list(function.results)
        for key in assigned:
            results.append(own[key].current if key in own else params[key])
        operands = (*function.params, *params.values())
        return replace(function, params=operands, results=tuple(results))

    def _variable(
        self, key: Hashable, name: str, kind: TensorType, fill: float
    ) -> Variable:
        if key not in self.known:
            initial = self.initial_values.get(key)
            if initial is None:
                initial = np.full(kind.shape, fill, kind.dtype.np)
            value = Value(self.name(name), kind)
            self.known[key] = Variable(value, value, initial)
        variable = self.known[key]
        has = (variable.initial.shape, variable.initial.dtype)
        if has != (kind.shape, kind.dtype.np):
            raise NotSupportedError(
                f"the variable {name} as {kind.dtype.name} {list(kind.shape)}, which is"
                f" {variable.initial.dtype} {list(variable.initial.shape)} elsewhere"
            )
        return variable

    def _copy(self, value: Value, name: str, kind: TensorType) -> Value:
        copy = Value(self.name(name), kind)
        self.emit(Call("reshape", (value,), (copy,)))
        return copy
