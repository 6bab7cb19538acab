"""Facts of a compilation that a proof bundle states: steps, buffers, parameters.

They are hints of where the checker finds what it recomputes. A wrong one makes a bundle
that is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.json_input import Json, JsonObject
from firmwright.base.quant import Rounding
from firmwright.compilation_summary import OperatorSummary
from firmwright.flows.certify import check_bundle as checker
from firmwright.ops.double_requantize import find_exact_multipliers
from firmwright.ops.requantize import Requantization
from firmwright.pipeline import Compilation
from firmwright.schedules.folded_requantize import (
    FoldedRequantize,
    fit_requantize,
    fold_requantize,
)

_NODE: Final = re.compile(r"subgraph 0, node (\d+)")
_SHIFTS: Final = (1, 12, 8, 16, 20)
"""The least final shifts with which schedules fold a requantization."""


def node_of(operator: OperatorSummary) -> int | None:
    """Return the number of an operator in the model file, or None."""
    match = _NODE.search(operator.span)
    return int(match[1]) if match else None


def find_steps(compiled: Compilation, graph: checker.Graph) -> list[list[int]]:
    """Return the operators of the model file in the order of execution.

    Operators that execute row by row, in turn, are one step; a reshape, which is no
    code, is in the step before it.
    """
    steps: list[list[int]] = []
    was_in_rows = False
    for operator in compiled.summary.operators:
        node = node_of(operator)
        if node is None:
            continue
        in_rows = "_rows" in operator.kernel
        if in_rows and was_in_rows:
            steps[-1].append(node)
        else:
            steps.append([node])
        was_in_rows = in_rows
    for index, view in enumerate(graph.nodes):
        if view.code == checker.RESHAPE:
            for nodes in steps:
                if any(view.inputs[0] in graph.nodes[i].outputs for i in nodes):
                    nodes.append(index)
    return steps


def find_buffers(
    compiled: Compilation, graph: checker.Graph, source: str, steps: list[list[int]]
) -> JsonObject:
    """Return the tensors of each buffer by its name in the C, or whose scratch it is.

    The C lists the buffers in the order of the plan.
    """
    plan = compiled.summary.plan
    places = re.findall(r"_IN_\w+\((\w+),\s+\d+,", source)
    buffers = () if plan is None else plan.buffers
    tensors = _tensors_by_name(compiled, graph)
    found: dict[str, Json] = {}
    for place, buffer in zip(places, buffers, strict=True):
        owner = re.match(r"\w+?_(\d+)(_rows\d+)?\.", buffer.name)
        if owner:
            operator = compiled.summary.operator(int(owner[1]))
            node = None if operator is None else node_of(operator)
            step = next(i for i, nodes in enumerate(steps) if node in nodes)
            found[place] = {"scratch_of": step}
            continue
        name = buffer.name.removesuffix("_rows")
        entry: dict[str, Json] = {"tensors": list(tensors.get(name, []))}
        if buffer.kind == "ring":
            entry["rows"] = True
        found[place] = entry
    return found


def _tensors_by_name(
    compiled: Compilation, graph: checker.Graph
) -> dict[str, list[int]]:
    """Return the tensors of the model file that are in each buffer."""
    found: dict[str, list[int]] = {}
    for tensor, info in zip(graph.inputs, compiled.summary.io.inputs, strict=True):
        found[info.name] = [tensor]
    for operator in compiled.summary.operators:
        node = node_of(operator)
        if node is not None:
            found.setdefault(operator.name, []).append(graph.nodes[node].outputs[0])
    for view in graph.nodes:
        if view.code == checker.RESHAPE:
            for tensors in found.values():
                if view.inputs[0] in tensors:
                    tensors.append(view.outputs[0])
    return found


def _layers(
    compiled: Compilation, graph: checker.Graph, facts: Mapping[str, Any]
) -> Iterator[tuple[OperatorSummary, int, checker.Layer]]:
    """Yield the layers of products with their operators and numbers in the model."""
    for operator in compiled.summary.operators:
        index = node_of(operator)
        if index is None:
            continue
        node = graph.nodes[index]
        if node.code in checker.ACTIVATION_OPTION:
            live = facts["live"].get(str(node.outputs[0]))
            yield operator, index, checker.Layer(graph, node, facts["numerics"], live)


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A layer in the C: its function, final shift and tables [row, column]."""

    function: str
    shift: int
    tables: Mapping[str, Array]


def find_requantizations(
    compiled: Compilation,
    graph: checker.Graph,
    image: checker.Firmware,
    source: str,
    facts: Mapping[str, Any],
) -> list[Json]:
    """Return where the image has the parameters of each layer's requantization.

    Layers with another form than one product and one shift are left out.
    """
    found: list[Json] = []
    for operator, node, layer in _layers(compiled, graph, facts):
        kernel = _find_kernel(compiled, operator, image, source)
        if kernel is None:
            continue
        for folded in _candidates(layer):
            entry = _places_of(folded, kernel, source)
            if entry is not None:
                found.append({"node": node, "function": kernel.function, **entry})
                break
    return found


def _find_kernel(
    compiled: Compilation,
    operator: OperatorSummary,
    image: checker.Firmware,
    source: str,
) -> _Kernel | None:
    function = f"{compiled.c_prefix}_{operator.kernel}"
    body = checker.kernel_body(source, function)
    shifts = {int(s) for s in re.findall(r"saturate_i8_asr(\d+)\(", body)}
    if len(shifts) != 1:
        return None
    own = re.compile(rf"(\w+_{operator.index}(?:_\w+?)?)\.(requant(?:_small)?)")
    tables: dict[str, Array] = {}
    for name, constant in compiled.module.constants.items():
        symbol = f"{compiled.c_prefix}_{name.replace('.', '_')}"
        # Compilers put the values of small tables into instructions.
        if own.fullmatch(name) and symbol in image.symbols:
            tables[symbol] = constant.array()
    return _Kernel(function, shifts.pop(), tables)


def _candidates(layer: checker.Layer) -> Iterator[FoldedRequantize]:
    """Yield the forms that a schedule may have chosen for a layer."""
    low, high = layer.bounds()
    rounding = Rounding.ONCE if layer.in_double else Rounding.TWICE
    params = Requantization(
        _common(layer.multipliers),
        _common(layer.shifts),
        rounding,
        layer.y.zeros[0],
        *layer.clamps,
    )
    if layer.in_double:
        factors = sorted(set(layer.factors.tolist()))
        exact = find_exact_multipliers(params, factors, low, high)
        if exact is None:
            return
        params = exact
    fitted = fit_requantize(params, low, high)
    if fitted is not None:
        yield fitted
    for shift in _SHIFTS:
        folded = fold_requantize(params, low, high, shift)
        if folded is not None:
            yield folded


def _common(values: Array) -> tuple[int, ...]:
    """Return one value if all channels have it, else those of the channels."""
    listed = tuple(values.tolist())
    return listed[:1] if len(set(listed)) == 1 else listed


def _places_of(
    folded: FoldedRequantize, kernel: _Kernel, source: str
) -> dict[str, Json] | None:
    """Return where the image and the C have the parameters of a form, or None."""
    if folded.shift != kernel.shift:
        return None
    multiplier = np.array(folded.multiplier)
    entry: dict[str, Json] = {
        "shift": folded.shift,
        "left": {"values": list(folded.left)},
    }
    halves = checker.half_units(folded.multiplier)
    found = _place(multiplier, kernel, source)
    addend = _place(np.array(folded.addend), kernel, source)
    if addend is None and (np.array(folded.addend) == folded.middle + halves).all():
        addend = {"half_unit": 1, "literal": folded.middle}
    sign = _place(np.array(folded.sign), kernel, source)
    if sign is None and (np.array(folded.sign) == -2 * halves).all():
        sign = {"half_unit": -2}
    if found is None or addend is None or sign is None:
        return None
    return {**entry, "multiplier": found, "addend": addend, "sign": sign}


def _place(values: Array, kernel: _Kernel, source: str) -> dict[str, Json] | None:
    """Return the table column, less a literal, or the literal that has the values."""
    if not values.any():
        return {}
    for name, table in kernel.tables.items():
        columns = table.reshape(len(table), -1).astype(np.int64)
        for column in range(columns.shape[1]):
            entries = columns[: len(values), column]
            if len(entries) == 1:
                entries = np.repeat(entries, len(values))
            rests = (
                set((values - entries).tolist()) if len(entries) == len(values) else ()
            )
            (rest,) = rests if len(rests) == 1 else (None,)
            if rest is not None and (not rest or str(abs(rest)) in source):
                stride = columns.shape[1]
                return {
                    "symbol": name,
                    "kind": table.dtype.str,
                    "start": column,
                    "stride": stride,
                    "literal": rest,
                }
    if len(set(values.tolist())) == 1 and str(abs(int(values[0]))) in source:
        return {"literal": int(values[0])}
    return None


def find_live_channels(compiled: Compilation, graph: checker.Graph) -> JsonObject:
    """Return the channels that the firmware computes of tensors without some."""
    by_name = dict(compiled.module.results.live_channels)
    found: dict[str, Json] = {}
    for operator in compiled.summary.operators:
        node = node_of(operator)
        if node is not None and operator.tensor in by_name:
            tensor = graph.nodes[node].outputs[0]
            found[str(tensor)] = list(by_name[operator.tensor])
    for reshape in graph.nodes:
        source = str(reshape.inputs[0])
        if reshape.code == checker.RESHAPE and source in found:
            found[str(reshape.outputs[0])] = found[source]
    return found


def find_starts(
    compiled: Compilation,
    graph: checker.Graph,
    image: checker.Firmware,
    facts: Mapping[str, Any],
) -> list[Json]:
    """Return the tables of start values in the image whose form the checker knows."""
    found: list[Json] = []
    for operator, node, layer in _layers(compiled, graph, facts):
        own = rf"{compiled.c_prefix}_\w+_{operator.index}(_\w+)?_bias"
        symbols = [symbol for symbol in image.symbols if re.fullmatch(own, symbol)]
        if len(symbols) != 1:
            continue
        table = image.constant(symbols[0], "<i4")[: layer.channels]
        for left, paired in product((0, 8), (False, True)):
            starts = layer.packed_starts(left, is_paired=paired)
            if len(table) == len(starts) and (table == starts).all():
                entry: dict[str, Json] = {"node": node, "symbol": symbols[0]}
                found.append({**entry, "left": left, "paired": paired})
                break
    return found
