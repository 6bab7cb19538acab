"""The calls of a graph at every size of a bounded axis.

The graph of a size has the same calls as that of the largest one, with other shapes and
attributes. Where passes have found something simpler for a size, such as a transpose
that is a view, the call of the other sizes is used with the shapes and attributes that
follow from them, and the whole graph is compared with that of the size by execution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TypeVar

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.size_formula import fit_size_formula
from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.graph.evaluate import evaluate_graph, initial_state
from firmwright.ir.graph.nodes import Call, Function, Value, called_functions
from firmwright.ir.module import IRModule
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ops.opdef import OpTable

T = TypeVar("T")
_FLOAT_TOLERANCE = 1e-4
"""Relative to the greatest value: two graphs may round sums of floats differently."""


@dataclass(frozen=True)
class ResizedGraphs:
    """The calls of the largest size at the sizes of an axis; see `resize_graphs`."""

    axis: BoundedAxis
    modules: Mapping[int, IRModule]
    calls: Mapping[int, Mapping[str, Call]]
    """The calls of each size by the name of their first output."""

    def at(self, call: Call, size: int) -> Call:
        """Return a call of the largest size at another size."""
        return self.calls[size][call.outputs[0].name]

    def is_fixed(self, call: Call) -> bool:
        """Whether the call, with its constants, is the same at all sizes."""
        most = self._described(call, self.axis.most)
        return all(
            self._described(self.at(call, size), size) == most
            for size in self.axis.sizes
        )

    def _described(self, call: Call, size: int) -> object:
        module = self.modules[size]
        parts: list[object] = [call.attrs]
        values: list[Value | None] = [*call.inputs, *call.outputs]
        if called_functions(call):
            for graph in module.graphs[1:]:
                parts.append(graph)
                values += graph.values
        for value in values:
            parts.append(None if value is None else value.type)
            if value is not None and value.constant is not None:
                parts.append(module.constants[value.constant].data)
        return parts


def resize_graphs(
    axis: BoundedAxis,
    modules: Mapping[int, IRModule],
    ops: OpTable,
    intrinsics: IntrinsicTable,
) -> ResizedGraphs:
    """Return the calls at every size; `modules` have a graph as entry.

    Raises NotSupportedError if the graph of a size is another one.
    """
    entry = modules[axis.most].entry_graph
    for module in modules.values():
        states = module.entry_graph.state
        if [s.value.type for s in states] != [s.value.type for s in entry.state]:
            raise NotSupportedError(f"the state has other shapes for each {axis.name}")
    calls: dict[int, dict[str, Call]] = {size: {} for size in axis.sizes}
    own = {size: _by_output(modules[size].entry_graph) for size in axis.sizes}
    values = {size: _by_name(modules[size].entry_graph) for size in axis.sizes}
    changed: set[int] = set()
    for call in entry.body:
        name = call.outputs[0].name
        found: dict[int, Call] = {}
        for size in axis.sizes:
            other = own[size].get(name)
            if other is not None and _signature(other) == _signature(call):
                found[size] = other
        missing = [size for size in axis.sizes if size not in found]
        for size in missing:
            resized = _call_at(found, size, values[size])
            if resized is None:
                why = f"{call.op} at {call.span} is another operator for {axis.name} "
                raise NotSupportedError(why + _listed(missing))
            found[size] = resized
        changed.update(missing)
        for size, resized in found.items():
            calls[size][name] = resized
    for size in sorted(changed):
        _check_equal(axis, size, modules[size], calls[size], entry, ops, intrinsics)
    return ResizedGraphs(axis, modules, calls)


def _by_output(graph: Function) -> dict[str, Call]:
    return {call.outputs[0].name: call for call in graph.body}


def _by_name(graph: Function) -> dict[str, Value]:
    return {value.name: value for value in graph.values}


def _signature(call: Call) -> object:
    """Return what is equal in a call at all sizes."""
    names = [None if value is None else value.name for value in call.inputs]
    return call.op, names, [value.name for value in call.outputs], type(call.attrs)


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes[:4])) + (", ..." if len(sizes) > 4 else "")


def _call_at(
    calls: Mapping[int, Call], size: int, values: Mapping[str, Value]
) -> Call | None:
    """Return a call at a size from those at others, or None if it has no formula.

    `values` are those of the graph of the size, of which the types are known.
    """
    first = next(iter(calls.values()))
    if any(value is not None and value.constant for value in first.inputs):
        return None
    attrs = _fit({n: call.attrs for n, call in calls.items()}, size)
    inputs: list[Value | None] = []
    for index, value in enumerate(first.inputs):
        known = None if value is None else values.get(value.name)
        others = {n: call.inputs[index] for n, call in calls.items()}
        inputs.append(known or _fit(others, size))
    outputs: list[Value | None] = []
    for index, output in enumerate(first.outputs):
        made_there = {n: call.outputs[index] for n, call in calls.items()}
        outputs.append(values.get(output.name) or _fit(made_there, size))
    made = tuple(value for value in outputs if value is not None)
    lacks = attrs is None or len(made) < len(first.outputs)
    for value, resized in zip(first.inputs, inputs, strict=True):
        lacks = lacks or (value is not None and resized is None)
    if lacks or attrs is None:
        return None
    return replace(first, attrs=attrs, inputs=tuple(inputs), outputs=made)


def _fit(values: Mapping[int, T], size: int) -> T | None:
    """Return the value at a size: integers inside it are formulas of the size."""
    first = next(iter(values.values()))
    if all(value == first for value in values.values()):
        return first
    if isinstance(first, int) and not isinstance(first, bool):
        formula = fit_size_formula({n: int(str(v)) for n, v in values.items()})
        return None if formula is None else formula.at(size)  # type: ignore[return-value]  # T is int
    if isinstance(first, tuple):
        rows = {n: tuple(v) for n, v in values.items() if isinstance(v, tuple)}
        if len({len(row) for row in rows.values()}) > 1:
            return None
        parts = []
        for index in range(len(first)):
            parts.append(_fit({n: row[index] for n, row in rows.items()}, size))
        has_all = None not in parts
        return tuple(parts) if has_all else None  # type: ignore[return-value]  # T is a tuple
    if is_dataclass(first) and not isinstance(first, type):
        changes: dict[str, object] = {}
        for item in fields(first):
            own = {n: getattr(v, item.name) for n, v in values.items()}
            part = _fit(own, size)
            if part is None and getattr(first, item.name) is not None:
                return None
            changes[item.name] = part
        return replace(first, **changes)
    return None


def _check_equal(
    axis: BoundedAxis,
    size: int,
    module: IRModule,
    calls: Mapping[str, Call],
    largest: Function,
    ops: OpTable,
    intrinsics: IntrinsicTable,
) -> None:
    """Raise NotSupportedError if these calls compute other outputs than the graph."""
    own = module.entry_graph
    body = tuple(calls[call.outputs[0].name] for call in largest.body)
    made = {value.name: value for call in body for value in call.outputs}
    results = tuple(made.get(value.name, value) for value in own.results)
    other = module.with_function(replace(own, body=body, results=results))
    sample = _sample(own, axis, size)
    with np.errstate(all="ignore"):
        found = [
            evaluate_graph(each, sample, ops, intrinsics, initial_state(each))
            for each in (module, other)
        ]
    for value in made.values():
        if found[1][value.name].shape != value.shape:
            what = f"{value.name} has another shape for {axis.name} {size}"
            raise NotSupportedError(what)
    for value in own.results:
        expected, actual = (values[value.name] for values in found)
        if not _are_close(expected, actual):
            what = f"{value.name} has other values for {axis.name} {size} than for "
            raise NotSupportedError(f"{what}{axis.most}")


def _are_close(expected: Array, actual: Array) -> bool:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    if not np.issubdtype(expected.dtype, np.floating):
        return bool(np.array_equal(expected, actual))
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=1.0))
    tolerance = _FLOAT_TOLERANCE * scale
    return bool(np.allclose(expected, actual, 0.0, tolerance, equal_nan=True))


def _sample(graph: Function, axis: BoundedAxis, size: int) -> dict[str, Array]:
    random = np.random.default_rng(size)
    sample: dict[str, Array] = {}
    for value in graph.params:
        dtype = value.type.dtype.np
        values = random.integers(-100, 100, value.shape)
        sample[value.name] = values.astype(dtype)
        if np.issubdtype(dtype, np.floating):
            sample[value.name] = random.normal(size=value.shape).astype(dtype)
        if value.name == axis.name:
            sample[value.name] = np.array(size, dtype)
    return sample
