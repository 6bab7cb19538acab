"""Patterns over a graph function: what a backend says it can take.

    x = wildcard()
    conv = op("conv2d", x, constant(), constant(), stride=(1, 1))
    either = conv.optional(lambda inner: op("relu", inner)) | op("relu6", conv)
    swish = op("mul", x, op("sigmoid", x))      # one pattern object is one value

In: a pattern, a call of a function, and who makes and reads each value. Out: the calls that the
pattern covers, in the function's order, or None. A pattern is matched from its last call upwards.
Invariant: of what is matched only outputs of the last call are read outside, so a match can be
computed in one piece in the place of that call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from firmwright.base.errors import InternalError
from firmwright.ir.core import Attr, Attrs, Target
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.module import IRModule

AttrConstraint: TypeAlias = "Attr | frozenset[Attr] | Callable[[Attr], bool]"
"""An attribute must be that value, one of those, or pass the test."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Base of all patterns; equal only to itself."""

    def __or__(self, other: Pattern) -> Pattern:
        """This one or, where it does not match, the other."""
        return AlternativesPattern((self, other))

    def optional(self, wrap: Callable[[Pattern], Pattern]) -> Pattern:
        """`wrap(self)`, or this alone where nothing of that kind follows."""
        return wrap(self) | self


@dataclass(frozen=True, eq=False)
class Wildcard(Pattern):
    """Any value; with `absent` also an optional input that is not there."""

    absent: bool = False


@dataclass(frozen=True, eq=False)
class ConstantPattern(Pattern):
    """A constant of the module; with `absent` also an optional input that is not there."""

    absent: bool = False


@dataclass(frozen=True, eq=False)
class OpPattern(Pattern):
    """A call of `op`. `inputs` None takes any; inputs beyond those given must be absent."""

    op: str
    inputs: tuple[Pattern, ...] | None
    attrs: Mapping[str, AttrConstraint] = field(default_factory=dict)

    def takes(self, attrs: Attrs) -> bool:
        """Whether of `attrs` all that the pattern speaks of are as it wants them."""
        return all(
            _attr_matches(attrs[name], test) for name, test in self.attrs.items() if name in attrs
        )


def _attr_matches(value: Attr, wanted: AttrConstraint) -> bool:
    if callable(wanted):
        return wanted(value)
    return value in wanted if isinstance(wanted, frozenset) else value == wanted


@dataclass(frozen=True, eq=False)
class AlternativesPattern(Pattern):
    """The first of `choices` that matches."""

    choices: tuple[Pattern, ...]


def wildcard(*, absent: bool = False) -> Pattern:
    return Wildcard(absent)


def constant(*, absent: bool = False) -> Pattern:
    return ConstantPattern(absent)


def op(name: str, /, *inputs: Pattern, **attrs: AttrConstraint) -> Pattern:
    """A call of operator `name`; without `inputs` whatever they are."""
    return OpPattern(name, inputs or None, attrs)


def custom_op(name: str, /, *inputs: Pattern, domain: str = "") -> Pattern:
    """A call of an operator that is none of ours; see ops/custom.py."""
    return OpPattern("custom", inputs or None, {"name": name, "domain": domain})


def pattern_ops(pattern: Pattern) -> frozenset[str]:
    """Names of the operators that the pattern speaks of."""
    return frozenset(part.op for part in call_patterns(pattern))


def call_patterns(pattern: Pattern) -> Iterator[OpPattern]:
    """The calls in a pattern, inner ones first."""
    match pattern:
        case AlternativesPattern(choices=below):
            pass
        case OpPattern(inputs=inputs):
            below = inputs or ()
        case _:
            below = ()
    for item in below:
        yield from call_patterns(item)
    if isinstance(pattern, OpPattern):
        yield pattern


@dataclass(frozen=True)
class PatternGraph:
    """A function with who makes and reads its values; `free` are the calls that may be matched."""

    function: Function
    module: IRModule
    free: Collection[int]

    @cached_property
    def makers(self) -> Mapping[str, int]:
        """By value, the index of the call that makes it."""
        return {v.name: i for i, call in enumerate(self.function.body) for v in call.outputs}

    @cached_property
    def readers(self) -> Mapping[str, frozenset[int]]:
        """By value, the indices of the calls that read it; -1 stands for what is outside."""
        found: dict[str, set[int]] = {value.name: {-1} for value in self.function.sinks}
        for index, call in enumerate(self.function.body):
            for value in call.inputs:
                if value is not None:
                    found.setdefault(value.name, set()).add(index)
        return {name: frozenset(readers) for name, readers in found.items()}


@dataclass(frozen=True, slots=True)
class Match:
    """What a pattern covers, as predicates see it.

    `calls` are in the function's order, the last one is what the pattern ends in. `target` is the
    instance that would take them, `version` the backend's.
    """

    calls: tuple[Call, ...]
    module: IRModule
    target: Target
    version: str = ""

    @property
    def ops(self) -> tuple[OpCall, ...]:
        """The calls with types, quantisation, attributes and constants."""
        return tuple(make_op_call(call, self.module) for call in self.calls)

    def call(self, *names: str) -> OpCall:
        """The first call of one of those operators."""
        for call in self.calls:
            if call.op in names:
                return make_op_call(call, self.module)
        raise InternalError(f"the match has no call of {' or '.join(names)}")


@dataclass(frozen=True, slots=True)
class _PartialMatch:
    """Calls that are matched so far, by index, and what patterns stand for."""

    calls: frozenset[int] = frozenset()
    bound: Mapping[int, Value | None] = field(default_factory=dict)

    def binding(self, pattern: Pattern, value: Value | None, *calls: int) -> _PartialMatch:
        return replace(
            self, calls=self.calls.union(calls), bound={**self.bound, id(pattern): value}
        )


def match_pattern(pattern: Pattern, index: int, graph: PatternGraph) -> tuple[int, ...] | None:
    """The indices of the calls that `pattern` covers when it ends in call `index`."""
    for state in _match_ending_at(pattern, index, graph, _PartialMatch()):
        if _is_closed(state.calls, index, graph):
            return tuple(sorted(state.calls))
    return None


def _match_ending_at(
    pattern: Pattern, index: int, graph: PatternGraph, state: _PartialMatch
) -> Iterator[_PartialMatch]:
    match pattern:
        case AlternativesPattern(choices=choices):
            for choice in choices:
                yield from _match_ending_at(choice, index, graph, state)
        case OpPattern() if index in graph.free:
            yield from _match_call(pattern, index, graph, state)


def _is_closed(calls: Collection[int], last: int, graph: PatternGraph) -> bool:
    inner = (v.name for i in calls if i != last for v in graph.function.body[i].outputs)
    return all(graph.readers.get(name, frozenset()) <= set(calls) for name in inner)


def _match_value(
    pattern: Pattern, value: Value | None, graph: PatternGraph, state: _PartialMatch
) -> Iterator[_PartialMatch]:
    """Every way in which `value` is what the pattern says."""
    if isinstance(pattern, AlternativesPattern):
        for choice in pattern.choices:
            yield from _match_value(choice, value, graph, state)
        return
    if id(pattern) in state.bound:
        if state.bound[id(pattern)] == value:
            yield state
        return
    match pattern:
        case Wildcard(absent=absent):
            if value is not None or absent:
                yield state.binding(pattern, value)
        case ConstantPattern(absent=absent):
            if absent if value is None else value.constant is not None:
                yield state.binding(pattern, value)
        case OpPattern() if value is not None:
            maker = graph.makers.get(value.name)
            if maker is not None and maker in graph.free:
                yield from _match_call(pattern, maker, graph, state.binding(pattern, value))


def _match_call(
    pattern: OpPattern, index: int, graph: PatternGraph, state: _PartialMatch
) -> Iterator[_PartialMatch]:
    call = graph.function.body[index]
    if (
        call.op != pattern.op
        or not pattern.takes(call.attrs)
        or pattern.attrs.keys() - call.attrs.keys()
    ):
        return
    state = replace(state, calls=state.calls | {index})
    if pattern.inputs is None:
        yield state
        return
    count = len(pattern.inputs)
    given = (*call.inputs, *(None for _ in range(count - len(call.inputs))))
    if any(value is not None for value in given[count:]):
        return
    yield from _match_inputs(pattern.inputs, given[:count], graph, state)


def _match_inputs(
    patterns: tuple[Pattern, ...],
    values: tuple[Value | None, ...],
    graph: PatternGraph,
    state: _PartialMatch,
) -> Iterator[_PartialMatch]:
    if not patterns:
        yield state
        return
    for found in _match_value(patterns[0], values[0], graph, state):
        yield from _match_inputs(patterns[1:], values[1:], graph, found)


def format_pattern(pattern: Pattern) -> str:
    """The pattern as a person reads it."""
    match pattern:
        case AlternativesPattern(choices=choices):
            return " | ".join(map(format_pattern, choices))
        case OpPattern(op=name, inputs=inputs, attrs=attrs):
            words = ["..."] if inputs is None else list(map(format_pattern, inputs))
            words += [f"{key}={_format_constraint(wanted)}" for key, wanted in attrs.items()]
            return f"{name}({', '.join(words)})"
        case ConstantPattern(absent=absent):
            return "constant?" if absent else "constant"
        case Wildcard(absent=absent):
            return "any?" if absent else "any"
        case _:
            raise InternalError(f"{type(pattern).__name__} is no pattern")


def _format_constraint(wanted: AttrConstraint) -> str:
    if callable(wanted):
        return "where it passes"
    if isinstance(wanted, frozenset):
        return "one of " + ", ".join(sorted(map(repr, wanted)))
    return repr(wanted)
