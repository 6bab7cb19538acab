"""Folding of transposes into adjacent expressions and reductions.

An `expression` or `reduction` that reads a transpose reads its source through a
permutation (`perms`) instead. If all readers of its result are transposes, it produces
the transposed result. This is exact: reductions keep their order of summation.
"""

from collections.abc import Sequence
from dataclasses import replace

from firmwright.ir.graph.attributes.movement import TransposeAttrs
from firmwright.ir.graph.attributes.values import ExpressionAttrs, ReductionAttrs
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.passes.map_functions import (
    graph_pass,
    merge_into_producers,
    names_of,
)

EXPRESSION_OPS = ("expression", "reduction")
Perm = tuple[int, ...]


def fold_transposes(function: Function) -> Function:
    if not any(call.op == "transpose" for call in function.body):
        return function

    def source_of(call: Call) -> Value | None:
        return call.inputs[0] if call.op == "transpose" else None

    def merge(producer: Call, call: Call) -> Call | None:
        if producer.target != call.target:
            return None
        return _turned(producer, _perm(call))

    return merge_into_producers(_into_readers(function), source_of, merge)


def input_permutations(call: Call) -> tuple[Perm, ...]:
    """Return the permutation through which each input of an expression is read."""
    plain: list[Perm] = []
    for value in call.inputs:
        if value is not None:
            plain.append(_identity(len(value.type.shape)))
    return call.attributes(ExpressionAttrs).perms or tuple(plain)


def with_input_permutations(call: Call, perms: tuple[Perm, ...]) -> Call:
    """Return a call that reads its inputs through `perms`, without identities."""
    is_plain = all(perm == _identity(len(perm)) for perm in perms)
    attrs = replace(call.attributes(ExpressionAttrs), perms=() if is_plain else perms)
    return replace(call, attrs=attrs)


def _perm(call: Call) -> Perm:
    return call.attributes(TransposeAttrs).perm


def _identity(rank: int) -> Perm:
    return tuple(range(rank))


def _composed(outer: Perm, inner: Sequence[int]) -> Perm:
    """Return the permutation that takes axis `outer[inner[i]]` as its axis i."""
    return tuple(outer[axis] for axis in inner)


# ---- a transposition that formulas read ----------------------------------------------


def _into_readers(function: Function) -> Function:
    turned: dict[str, tuple[Value, Perm]] = {}
    read_elsewhere = names_of(function.sinks)
    for call in function.body:
        if call.op not in EXPRESSION_OPS:
            read_elsewhere |= names_of(call.variables)
    body: list[Call] = []
    for call in function.body:
        x = call.inputs[0] if call.op == "transpose" else None
        y = call.outputs[0]
        if x is not None and y.name not in read_elsewhere and not is_placed(y):
            turned[y.name] = (x, _perm(call))
        elif call.op in EXPRESSION_OPS:
            body.append(_reading_sources(call, turned))
        else:
            body.append(call)
    return replace(function, body=tuple(body)) if turned else function


def _reading_sources(call: Call, turned: dict[str, tuple[Value, Perm]]) -> Call:
    inputs, perms = [], []
    for value, own in zip(call.inputs, input_permutations(call), strict=True):
        assert value is not None  # formulas have no optional inputs
        source, perm = turned.get(value.name, (value, _identity(len(own))))
        inputs.append(source)
        perms.append(_composed(perm, own))
    if tuple(inputs) == call.inputs:
        return call
    return with_input_permutations(replace(call, inputs=tuple(inputs)), tuple(perms))


# ---- transposes of results -----------------------------------------------------------


def _turned(maker: Call, perm: Perm) -> Call | None:
    """Return an expression that computes the transposed result, or None."""
    if maker.op not in EXPRESSION_OPS:
        return None
    perms = input_permutations(maker)
    rank = max(map(len, perms), default=0)
    if any(len(own) != rank for own in perms):
        return None
    if maker.op == "expression":
        turned = tuple(_composed(own, perm) for own in perms)
        return with_input_permutations(maker, turned)
    attrs = maker.attributes(ReductionAttrs)
    axes: Perm = attrs.axes
    if attrs.keep_dims:
        order = perm
        if [axis for axis in order if axis in axes] != list(axes):
            return None
    else:
        left = tuple(axis for axis in range(rank) if axis not in axes)
        order = (*_composed(left, perm), *axes)
    new_axes = tuple(place for place, axis in enumerate(order) if axis in axes)
    attrs = replace(attrs, axes=new_axes)
    turned = tuple(_composed(own, order) for own in perms)
    return with_input_permutations(replace(maker, attrs=attrs), turned)


PASS = graph_pass("fold-transpose", fold_transposes)
