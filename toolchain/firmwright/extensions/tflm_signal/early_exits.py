"""Conversion of early exits of streaming models into conditional execution.

With attribute `cycles` n, TFLM's custom operator CIRCULAR_BUFFER ends all runs except
every n-th early. The calls after it become a function that an `if` runs in every n-th
run, counted by a state. In other runs results keep those of the last complete run,
initially zero (undefined in TFLM).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import BOOL, INT32
from firmwright.extensions.tflm_signal.attributes import CircularBufferAttrs
from firmwright.frontends.tflite.import_context import ImportSession
from firmwright.frontends.tflite.rewrites import FunctionRewrite
from firmwright.frontends.tflite.variables import initial_value
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.attributes.control import IfAttrs
from firmwright.ir.graph.attributes.values import ExpressionAttrs
from firmwright.ir.graph.nodes import Call, Function, State, TensorType, Value

_COUNT = TensorType((1,), INT32)


def convert_early_exits(function: Function, session: ImportSession) -> Function:
    """Return `function` without early exits; refuse those inside a branch or loop."""
    for inner in session.functions.values():
        for call in inner.body:
            if _exits_early(call):
                why = "a buffer that ends runs early inside a branch or loop"
                session.refuse("custom:CIRCULAR_BUFFER", str(call.span), why)
    if not any(map(_exits_early, function.body)):
        return function
    function = _recompute_results_after_last_exit(function)
    before = {state.next.name: state.value for state in function.state}
    parting = _TailOutliner(session, before)
    live_out = _unique((*function.results, *(state.next for state in function.state)))
    body, added = parting.outline_tail(function.body, live_out)
    return replace(function, body=tuple(body), state=(*function.state, *added))


def _exits_early(call: Call) -> bool:
    return isinstance(call.attrs, CircularBufferAttrs) and call.attrs.cycles > 1


def _recompute_results_after_last_exit(function: Function) -> Function:
    """Copy results that precede the last exit to values of the same names after it."""
    body = function.body
    last = max(place for place, call in enumerate(body) if _exits_early(call))
    late = _defined_names(body[last + 1 :])
    early = [value for value in _unique(function.results) if value.name not in late]
    renamed = {value.name: replace(value, name=f"{value.name}/now") for value in early}

    def now(value: Value) -> Value:
        return renamed.get(value.name, value)

    calls: list[Call] = []
    for call in body:
        inputs = tuple(value and now(value) for value in call.inputs)
        outputs = tuple(map(now, call.outputs))
        calls.append(replace(call, inputs=inputs, outputs=outputs))
    for value in early:
        copy = Call("reshape", (now(value),), (value,), NO_ATTRS, body[last].span)
        calls.append(copy)
    states: list[State] = []
    for state in function.state:
        states.append(replace(state, value=now(state.value), next=now(state.next)))
    params = tuple(map(now, function.params))
    return replace(function, params=params, body=tuple(calls), state=tuple(states))


def _defined_names(calls: Sequence[Call]) -> set[str]:
    names: set[str] = set()
    for call in calls:
        names.update(value.name for value in call.outputs)
    return names


def _first_exit(calls: Sequence[Call]) -> int | None:
    for place, call in enumerate(calls):
        if _exits_early(call):
            return place
    return None


def _unique(values: Sequence[Value]) -> list[Value]:
    return list({value.name: value for value in values}.values())


@dataclass
class _TailOutliner:
    """Outlines the calls after early exits; `before` has skipped calls' values by name.

    These are the values of the last complete run.
    """

    session: ImportSession
    before: dict[str, Value]

    def outline_tail(
        self, body: Sequence[Call], live_out: Sequence[Value]
    ) -> tuple[list[Call], list[State]]:
        """Return `body` with a branch after its first early exit, and its state."""
        place = _first_exit(body)
        if place is None:
            return list(body), []
        buffer, tail = body[place], body[place + 1 :]
        head = [*body[:place], replace(buffer, attrs=CircularBufferAttrs())]
        defined = _defined_names(tail)
        results = [value for value in live_out if value.name in defined]
        added: list[State] = []
        for value in results:
            if value.name not in self.before:
                added.append(self._state_between_runs(value))
        rest, inner = self.outline_tail(tail, results)
        results += [state.next for state in inner]
        self.before |= {state.next.name: state.value for state in inner}
        counting, is_due, count = self._emit_run_counter(buffer)
        branch = self._emit_branch(buffer, rest, results, is_due)
        return [*head, *counting, branch], [*added, *inner, count]

    def _state_between_runs(self, value: Value) -> State:
        last = Value(f"{value.name}/last", value.type)
        self.before[value.name] = last
        return self._state(last, value, initial_value(value.type))

    def _state(self, value: Value, following: Value, fill: int) -> State:
        array = np.full(value.type.shape, fill, value.type.dtype.np)
        initial = Constant.from_array(f"{value.name}/initial", array, value.type.dtype)
        return State(value, following, self.session.constant(initial))

    def _emit_run_counter(self, buffer: Call) -> tuple[list[Call], Value, State]:
        stem = buffer.outputs[0].name
        cycles = buffer.attributes(CircularBufferAttrs).cycles
        count = Value(f"{stem}/runs", _COUNT)
        following = Value(f"{stem}/runs/next", _COUNT)
        is_due = Value(f"{stem}/is_due", TensorType((1,), BOOL))
        advance = ExpressionAttrs(formula=f"(a + 1) % {cycles}")
        is_first = ExpressionAttrs(formula="a == 0")
        calls = [
            Call("expression", (count,), (following,), advance, buffer.span),
            Call("expression", (following,), (is_due,), is_first, buffer.span),
        ]
        return calls, is_due, self._state(count, following, 0)

    def _emit_branch(
        self,
        buffer: Call,
        rest: Sequence[Call],
        results: Sequence[Value],
        is_due: Value,
    ) -> Call:
        previous = [self.before[value.name] for value in results]
        defined = _defined_names(rest)
        captured: list[Value] = []
        for call in rest:
            captured += [v for v in call.variables if v.name not in defined]
        operands = tuple(_unique([*captured, *previous]))
        copies: list[Call] = []
        copied: list[Value] = []
        for old, value in zip(previous, results, strict=True):
            kept = Value(f"{value.name}/kept", value.type)
            copies.append(Call("reshape", (old,), (kept,), NO_ATTRS, buffer.span))
            copied.append(kept)
        number = len(self.session.functions)
        whole, ended = f"whole_run_{number}", f"ended_run_{number}"
        self.session.functions |= {
            whole: Function(whole, operands, tuple(rest), tuple(results)),
            ended: Function(ended, operands, tuple(copies), tuple(copied)),
        }
        attrs = IfAttrs(then=whole, else_=ended)
        return Call("if", (is_due, *operands), tuple(results), attrs, buffer.span)


FUNCTION_REWRITES: tuple[FunctionRewrite, ...] = (convert_early_exits,)
