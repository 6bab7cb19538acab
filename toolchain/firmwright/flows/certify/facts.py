"""Facts of a compilation that a proof bundle states: steps, buffers, parameters.

They are hints of where the checker finds what it recomputes. A wrong one makes a bundle
that is rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.json_input import Json, JsonObject
from firmwright.base.quant import Rounding
from firmwright.compilation_summary import OperatorSummary
from firmwright.flows.certify import check_bundle as checker
from firmwright.flows.certify.table_orders import (
    find_start_order,
    find_weight_order,
    find_winograd_order,
    is_stream,
)
from firmwright.ops.double_requantize import find_exact_multipliers
from firmwright.ops.requantize import Requantization
from firmwright.pipeline import Compilation
from firmwright.schedules.epilogue import accumulator_bounds
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

    Operators that execute row by row, in turn, are one step, whose last one writes a
    whole tensor. A reshape, which is no code, is in the step before it.
    """
    steps: list[list[int]] = []
    plan = compiled.summary.plan
    buffers = () if plan is None else plan.buffers
    whole = {buffer.name for buffer in buffers if buffer.kind != "ring"}
    is_open = False
    for operator in compiled.summary.operators:
        node = node_of(operator)
        if node is None:
            continue
        in_rows = re.search(r"_rows?\d*$", operator.kernel)
        if in_rows and is_open:
            steps[-1].append(node)
        else:
            steps.append([node])
        is_open = bool(in_rows) and operator.name not in whole
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
        owner = re.match(r"\w+?_(\d+)(_rows?\d*)?\.", buffer.name)
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


@dataclass(frozen=True, slots=True)
class _Linked:
    """A compilation, its C and its image, in which facts are found."""

    compiled: Compilation
    image: checker.Firmware
    source: str

    def tables(self, operator: OperatorSummary, name: str) -> dict[str, Array]:
        """Return the tables of an operator, by symbol; `name` is a pattern.

        Compilers put the values of small tables into instructions.
        """
        own = re.compile(rf"(\w+_{operator.index}(?:_\w+?)?)\.({name})")
        found: dict[str, Array] = {}
        for constant_name, constant in self.compiled.module.constants.items():
            symbol = f"{self.compiled.c_prefix}_{constant_name.replace('.', '_')}"
            if own.fullmatch(constant_name) and symbol in self.image.symbols:
                found[symbol] = constant.array()
        return found


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """What the image has of each layer, by its number, and the orders of its tables."""

    layers: JsonObject
    orders: Mapping[str, Array]


def find_layers(
    compiled: Compilation,
    network: checker.QuantizedNetwork,
    image: checker.Firmware,
    source: str,
) -> LayerFacts:
    """Return where the image has the weights and parameters of each layer.

    What has a form that the checker does not know is left out.
    """
    linked = _Linked(compiled, image, source)
    layers: dict[str, Json] = {str(index): {} for index in network.layers}
    orders: dict[str, Array] = {}
    for operator in compiled.summary.operators:
        index = node_of(operator)
        if index in network.layers:
            layers[str(index)] = _find_layer(linked, operator, network, index, orders)
    return LayerFacts(layers, orders)


def _find_layer(
    linked: _Linked,
    operator: OperatorSummary,
    network: checker.QuantizedNetwork,
    index: int,
    orders: dict[str, Array],
) -> JsonObject:
    entry: dict[str, Json] = {}
    rows: Array | None = None
    for symbol, table in linked.tables(operator, "order").items():
        entry["rows"] = {"symbol": symbol, "kind": table.dtype.str}
        rows = table.astype(np.int64)
    part = network.part(index, rows)
    requantization = _find_requantization(linked, operator, part)
    lefts = np.zeros(len(part.rows), np.int64)
    if requantization is not None:
        entry["requantization"] = requantization.claim
        lefts = requantization.lefts
    weights = linked.tables(operator, "weights")
    for symbol in weights:
        data = linked.image.read(*linked.image.symbols[symbol])
        claim: dict[str, Json] = {"symbol": symbol}
        order = find_weight_order(part, data)
        if order is None and (order := find_winograd_order(part, lefts, data)):
            claim["winograd"] = lefts.tolist()
        if order is not None:
            entry["weights"] = {**claim, **order.to_json()}
            orders[symbol] = order.numbers
    for symbol, table in linked.tables(operator, "bias").items():
        values = table.reshape(-1).astype(np.int64)
        for shifts in (np.zeros_like(lefts), lefts):
            order = find_start_order(part.starts << shifts, values)
            if order is not None:
                claim = {"symbol": symbol, "lefts": shifts.tolist()}
                entry["starts"] = {**claim, **order.to_json()}
                orders[symbol] = order.numbers
                break
        for stream in weights:
            if is_stream(linked.image, part, stream, symbol):
                entry["weights"] = {"symbol": stream, "is_stream": True}
                entry["starts"] = {"symbol": symbol}
    return entry


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A layer in the C: its function, final shift and tables [row, column]."""

    function: str
    shift: int
    tables: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class _FoundRequantization:
    """A claim about a requantization, and the left shifts of its sums by row."""

    claim: JsonObject
    lefts: Array


def _find_requantization(
    linked: _Linked, operator: OperatorSummary, part: checker.Layer
) -> _FoundRequantization | None:
    """Return where the image has the parameters of a layer's requantization.

    Other forms than one product and one shift are left out.
    """
    kernel = _find_kernel(linked, operator)
    if kernel is not None:
        for folded in _candidates(part):
            entry = _places_of(folded, kernel, linked.source)
            if entry is not None:
                claim = {"function": kernel.function, **entry}
                return _FoundRequantization(claim, np.array(folded.left, np.int64))
    return None


def _find_kernel(linked: _Linked, operator: OperatorSummary) -> _Kernel | None:
    function = f"{linked.compiled.c_prefix}_{operator.kernel}"
    body = checker.kernel_body(linked.source, function)
    shifts = {int(s) for s in re.findall(r"saturate_i8_asr(\d+)\(", body)}
    if len(shifts) != 1:
        return None
    tables = linked.tables(operator, "requant(?:_small)?")
    return _Kernel(function, shifts.pop(), tables)


def _candidates(layer: checker.Layer) -> Iterator[FoldedRequantize]:
    """Yield the forms that a schedule may have chosen for a layer.

    It does not know the ranges of inputs.
    """
    low, high = accumulator_bounds(layer.starts, layer.rows)
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


def find_live_channels(
    compiled: Compilation, graph: checker.Graph
) -> dict[str, list[int]]:
    """Return the channels that the firmware computes of tensors without some."""
    by_name = dict(compiled.module.results.live_channels)
    found: dict[str, list[int]] = {}
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
