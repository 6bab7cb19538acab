"""Conversion of early exits of streaming models into conditional execution.

With attribute `cycles` n, TFLM's custom operator CIRCULAR_BUFFER ends all runs except
every n-th early. The calls after it become a function that an `if` runs in every n-th
run, counted by a state. In other runs results keep those of the last complete run,
initially zero (undefined in TFLM).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from firmwright.extensions.tflm_signal.attributes import CircularBufferAttrs
from firmwright.frontends.tflite.import_context import ImportSession
from firmwright.frontends.tflite.rewrites import FunctionRewrite
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.nodes import Call, Function, State, Value
from firmwright.ir.graph.periodic_calls import (
    PeriodicCalls,
    defined_names,
    unique_values,
)


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
    taken = {value.name for value in function.values}
    periodic = PeriodicCalls(session.functions, session.constant, taken)
    parting = _TailOutliner(periodic, before)
    live_out = unique_values(
        (*function.results, *(state.next for state in function.state))
    )
    body, added = parting.outline_tail(function.body, live_out)
    return replace(function, body=tuple(body), state=(*function.state, *added))


def _exits_early(call: Call) -> bool:
    return isinstance(call.attrs, CircularBufferAttrs) and call.attrs.cycles > 1


def _recompute_results_after_last_exit(function: Function) -> Function:
    """Copy results that precede the last exit to values of the same names after it."""
    body = function.body
    last = max(place for place, call in enumerate(body) if _exits_early(call))
    late = defined_names(body[last + 1 :])
    early = [
        value for value in unique_values(function.results) if value.name not in late
    ]
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


def _first_exit(calls: Sequence[Call]) -> int | None:
    for place, call in enumerate(calls):
        if _exits_early(call):
            return place
    return None


@dataclass
class _TailOutliner:
    """Outlines the calls after early exits; `before` has skipped calls' values by name.

    These are the values of the last complete run.
    """

    periodic: PeriodicCalls
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
        defined = defined_names(tail)
        results = [value for value in live_out if value.name in defined]
        added: list[State] = []
        for value in results:
            if value.name not in self.before:
                state = self.periodic.state_between_runs(value)
                self.before[value.name] = state.value
                added.append(state)
        rest, inner = self.outline_tail(tail, results)
        results += [state.next for state in inner]
        self.before |= {state.next.name: state.value for state in inner}
        cycles = buffer.attributes(CircularBufferAttrs).cycles
        counter = self.periodic.counter(buffer.outputs[0].name, cycles, buffer.span)
        branch = self.periodic.branch(
            rest, results, self.before, counter.is_due, buffer.span
        )
        return [*head, *counter.calls, branch], [*added, *inner, counter.state]


FUNCTION_REWRITES: tuple[FunctionRewrite, ...] = (convert_early_exits,)
