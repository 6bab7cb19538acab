"""Patterns over graph functions, by which backends declare the calls they support.

    x = wildcard()
    conv = op("conv2d", x, constant(), constant(), stride=(1, 1))
    either = conv.optional(lambda inner: op("relu", inner)) | op("relu6", conv)
    swish = op("mul", x, op("sigmoid", x))      # one pattern object is one value

A pattern is matched from its last call upwards. Only outputs of that call may be used
outside the match.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from firmwright.base.errors import InternalError
from firmwright.ir.core import Attr, Target
from firmwright.ir.graph.attributes.base import OpAttrs, attribute_specs
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule

AttrConstraint: TypeAlias = "Attr | frozenset[Attr] | Callable[[Attr], bool]"
"""A required attribute value, a set of permitted values, or a predicate."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Base class of patterns; a pattern is equal only to itself."""

    def __or__(self, other: Pattern) -> Pattern:
        return AlternativesPattern((self, other))

    def optional(self, wrap: Callable[[Pattern], Pattern]) -> Pattern:
        """Match `wrap(self)`, or only this pattern if that does not match."""
        return wrap(self) | self


@dataclass(frozen=True, eq=False)
class ValuePattern(Pattern):
    """Any value, or a constant if `is_constant`; if `absent`, also an omitted one."""

    is_constant: bool
    absent: bool

    def accepts(self, value: Value | None) -> bool:
        if value is None:
            return self.absent
        return value.constant is not None or not self.is_constant


@dataclass(frozen=True, eq=False)
class OpPattern(Pattern):
    """A call of `op`; unlisted inputs must be absent, unless `inputs` is None."""

    op: str
    inputs: tuple[Pattern, ...] | None
    attrs: Mapping[str, AttrConstraint] = field(default_factory=dict)

    def accepts(self, attrs: OpAttrs) -> bool:
        """Return whether each constrained attribute exists and passes its test."""
        specs = attribute_specs(type(attrs))
        for name, test in self.attrs.items():
            if name not in specs:
                return False
            if not _attr_matches(getattr(attrs, specs[name].field), test):
                return False
        return True


def _attr_matches(value: Attr, wanted: AttrConstraint) -> bool:
    if callable(wanted):
        return wanted(value)
    return value in wanted if isinstance(wanted, frozenset) else value == wanted


@dataclass(frozen=True, eq=False)
class AlternativesPattern(Pattern):
    """The first of `choices` that matches."""

    choices: tuple[Pattern, ...]


def wildcard(*, absent: bool = False) -> Pattern:
    return ValuePattern(False, absent)


def constant(*, absent: bool = False) -> Pattern:
    return ValuePattern(True, absent)


def op(name: str, /, *inputs: Pattern, **attrs: AttrConstraint) -> Pattern:
    """Match a call of operator `name`; without `inputs` its inputs are unrestricted."""
    return OpPattern(name, inputs or None, attrs)


def custom_op(name: str, /, *inputs: Pattern, domain: str = "") -> Pattern:
    return OpPattern("custom", inputs or None, {"name": name, "domain": domain})


def call_patterns(pattern: Pattern) -> Iterator[OpPattern]:
    match pattern:
        case AlternativesPattern(choices=choices):
            for choice in choices:
                yield from call_patterns(choice)
        case OpPattern(inputs=inputs):
            for part in inputs or ():
                yield from call_patterns(part)
            yield pattern


@dataclass(frozen=True)
class PatternGraph:
    """A function indexed for matching; `free` holds the calls that may be matched."""

    function: Function
    module: IRModule
    free: Collection[int]

    @cached_property
    def makers(self) -> Mapping[str, int]:
        return self.function.makers

    @cached_property
    def readers(self) -> Mapping[str, frozenset[int]]:
        """The indices of the calls that use each value; -1 is use outside the body."""
        users: dict[str, set[int]] = {value.name: {-1} for value in self.function.sinks}
        for index, call in enumerate(self.function.body):
            for value in call.inputs:
                if value is not None:
                    users.setdefault(value.name, set()).add(index)
        return {name: frozenset(readers) for name, readers in users.items()}


@dataclass(frozen=True, slots=True)
class Match:
    """The calls covered by a pattern, as passed to predicates.

    `calls` are in function order; the last one ends the pattern. `target` is the target
    instance that would execute them, `version` the version of its backend, `function`
    has the calls.
    """

    calls: tuple[Call, ...]
    module: IRModule
    target: Target
    version: str
    function: Function

    @property
    def ops(self) -> tuple[OpCall, ...]:
        return tuple(make_op_call(call, self.module) for call in self.calls)

    def call(self, *names: str) -> OpCall:
        for call in self.calls:
            if call.op in names:
                return make_op_call(call, self.module)
        raise InternalError(f"the match has no call of {' or '.join(names)}")


@dataclass(frozen=True, slots=True)
class _PartialMatch:
    calls: frozenset[int] = frozenset()
    bound: Mapping[int, Value | None] = field(default_factory=dict)

    def binding(
        self, pattern: Pattern, value: Value | None, *calls: int
    ) -> _PartialMatch:
        bound = {**self.bound, id(pattern): value}
        return replace(self, calls=self.calls.union(calls), bound=bound)


def match_pattern(
    pattern: Pattern, index: int, graph: PatternGraph
) -> tuple[int, ...] | None:
    """Return the calls that `pattern` covers if it ends in call `index`, else None."""
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
    """Return whether nothing else needs the inner values of a match."""
    covered = set(calls)
    for index in covered - {last}:
        for value in graph.function.body[index].outputs:
            if is_placed(value):
                return False  # the user placed it
            if not graph.readers.get(value.name, frozenset()) <= covered:
                return False
    return True


def _match_value(
    pattern: Pattern, value: Value | None, graph: PatternGraph, state: _PartialMatch
) -> Iterator[_PartialMatch]:
    if isinstance(pattern, AlternativesPattern):
        for choice in pattern.choices:
            yield from _match_value(choice, value, graph, state)
        return
    if id(pattern) in state.bound:
        if state.bound[id(pattern)] == value:
            yield state
        return
    match pattern:
        case ValuePattern() if pattern.accepts(value):
            yield state.binding(pattern, value)
        case OpPattern() if value is not None:
            maker = graph.makers.get(value.name)
            if maker is not None and maker in graph.free:
                bound = state.binding(pattern, value)
                yield from _match_call(pattern, maker, graph, bound)


def _match_call(
    pattern: OpPattern, index: int, graph: PatternGraph, state: _PartialMatch
) -> Iterator[_PartialMatch]:
    call = graph.function.body[index]
    if call.op != pattern.op or not pattern.accepts(call.attrs):
        return
    state = replace(state, calls=state.calls | {index})
    if pattern.inputs is None:
        yield state
        return
    count = len(pattern.inputs)
    operands = call.inputs + (None,) * (count - len(call.inputs))
    if not any(operands[count:]):
        yield from _match_inputs(pattern.inputs, operands[:count], graph, state)


def _match_inputs(
    patterns: tuple[Pattern, ...],
    values: tuple[Value | None, ...],
    graph: PatternGraph,
    state: _PartialMatch,
) -> Iterator[_PartialMatch]:
    if not patterns:
        yield state
        return
    for first_match in _match_value(patterns[0], values[0], graph, state):
        yield from _match_inputs(patterns[1:], values[1:], graph, first_match)


def format_pattern(pattern: Pattern) -> str:
    match pattern:
        case AlternativesPattern(choices=choices):
            return " | ".join(map(format_pattern, choices))
        case OpPattern(op=name, inputs=inputs, attrs=attrs):
            words = ["..."] if inputs is None else list(map(format_pattern, inputs))
            for key, test in attrs.items():
                words.append(f"{key}={_format_constraint(test)}")
            return f"{name}({', '.join(words)})"
        case ValuePattern(is_constant=is_constant, absent=absent):
            return ("constant" if is_constant else "any") + ("?" if absent else "")
        case _:
            raise InternalError(f"{type(pattern).__name__} is not a pattern")


def _format_constraint(wanted: AttrConstraint) -> str:
    if callable(wanted):
        return "where it passes"
    if isinstance(wanted, frozenset):
        return "one of " + ", ".join(sorted(map(repr, wanted)))
    return repr(wanted)
