"""Calls that a graph makes in every n-th run only: an `if`, whose counter is state.

In the other runs their results keep the values of the last run that made them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import BOOL, INT8, INT32
from firmwright.ir.core import Constant, Span
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.attributes.control import IfAttrs
from firmwright.ir.graph.attributes.values import ExpressionAttrs
from firmwright.ir.graph.nodes import (
    Call,
    Function,
    State,
    TensorType,
    Value,
    unique_name,
)

_COUNT = TensorType((1,), INT32)


def initial_value(kind: TensorType) -> int:
    """Return the initial value of LiteRT and TFLM: the zero point of int8, else 0."""
    if kind.quantization is None or kind.dtype != INT8:
        return 0
    return kind.quantization.zero_points[0]


def defined_names(calls: Sequence[Call]) -> set[str]:
    names: set[str] = set()
    for call in calls:
        names.update(value.name for value in call.outputs)
    return names


def unique_values(values: Sequence[Value]) -> list[Value]:
    return list({value.name: value for value in values}.values())


@dataclass(frozen=True)
class RunCounter:
    """The calls that count runs, whether this run is the n-th, and the counter."""

    calls: tuple[Call, ...]
    is_due: Value
    state: State


@dataclass(frozen=True)
class PeriodicCalls:
    """Makes branches of a graph with the names `taken`.

    Branches are added to `functions`, and `add_constant` adds a constant and returns
    its name.
    """

    functions: dict[str, Function]
    add_constant: Callable[[Constant], str]
    taken: set[str]

    def counter(self, stem: str, cycles: int, span: Span) -> RunCounter:
        """Count runs; the n-th one is the first that is due, for n = `cycles`."""
        count = self._value(f"{stem}/runs", _COUNT)
        following = self._value(f"{stem}/runs/next", _COUNT)
        is_due = self._value(f"{stem}/is_due", TensorType((1,), BOOL))
        advance = ExpressionAttrs(formula=f"(a + 1) % {cycles}")
        is_first = ExpressionAttrs(formula="a == 0")
        calls = (
            Call("expression", (count,), (following,), advance, span),
            Call("expression", (following,), (is_due,), is_first, span),
        )
        return RunCounter(calls, is_due, self._state(count, following, 0))

    def state_between_runs(self, value: Value) -> State:
        """Return the state that keeps a result, from the initial value of variables."""
        last = self._value(f"{value.name}/last", value.type)
        return self._state(last, value, initial_value(value.type))

    def branch(
        self,
        body: Sequence[Call],
        results: Sequence[Value],
        before: Mapping[str, Value],
        is_due: Value,
        span: Span,
    ) -> Call:
        """Return the `if` that makes the calls and returns their results.

        `before` has the value of the last due run for the name of each result.
        """
        previous = [before[value.name] for value in results]
        defined = defined_names(body)
        captured: list[Value] = []
        for call in body:
            captured += [v for v in call.variables if v.name not in defined]
        operands = tuple(unique_values([*captured, *previous]))
        copies: list[Call] = []
        copied: list[Value] = []
        for old, value in zip(previous, results, strict=True):
            kept = self._value(f"{value.name}/kept", value.type)
            copies.append(Call("reshape", (old,), (kept,), NO_ATTRS, span))
            copied.append(kept)
        number = str(len(self.functions))
        whole, ended = (
            unique_name(f"{kind}_run_{number}", set(self.functions))
            for kind in ("whole", "ended")
        )
        self.functions[whole] = Function(whole, operands, tuple(body), tuple(results))
        self.functions[ended] = Function(ended, operands, tuple(copies), tuple(copied))
        attrs = IfAttrs(then=whole, else_=ended)
        return Call("if", (is_due, *operands), tuple(results), attrs, span)

    def _value(self, name: str, kind: TensorType) -> Value:
        return Value(unique_name(name, self.taken), kind)

    def _state(self, value: Value, following: Value, fill: int) -> State:
        array = np.full(value.type.shape, fill, value.type.dtype.np)
        initial = Constant.from_array(f"{value.name}/initial", array, value.type.dtype)
        return State(value, following, self.add_constant(initial))
