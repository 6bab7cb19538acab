"""Call order: no worse than the file's, optimal on small graphs, blind to names."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Quantization
from firmwright.choose import thresholds
from firmwright.choose.call_order import (
    PeakBytes,
    ScheduledTensor,
    ScheduleGraph,
    ScheduleState,
    beam_search_order,
    build_schedule_graph,
    find_min_peak_order,
    min_peak_order,
    reorder_calls,
)
from firmwright.flows.model.model import Model
from firmwright.flows.verify.verification import verify
from firmwright.ir.graph.attributes.base import NO_ATTRS, OpAttrs
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.attributes.movement import AxisAttrs
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.verify import verify_graph
from firmwright.ir.module import IoBinding, IRModule
from firmwright.ir.printer import parse_module
from firmwright.ops.registry import op_table
from firmwright.pipeline import Options, compile_model, load_module
from tests import mlperf_tiny

OPS = op_table()
SCALE = Quantization((0.5,), (0,))

# Two branches that each grow before they shrink: the file grows both first.
BRANCHES = """firmwright ir 2
module @branches
graph @main(%x: i8[1,8,8,4] quant(0.5, 0)) -> (%y) {
  %a: i8[1,8,8,32] quant(0.5, 0) = concatenation(%x, %x, %x, %x, %x, %x, %x, %x) {axis=3}
  %b: i8[1,8,8,24] quant(0.5, 0) = concatenation(%x, %x, %x, %x, %x, %x) {axis=3}
  %c: i8[1,32] quant(0.5, 0) = mean(%a) {axes=[1, 2], keep_dims=false}
  %d: i8[1,24] quant(0.5, 0) = mean(%b) {axes=[1, 2], keep_dims=false}
  %y: i8[1,56] quant(0.5, 0) = concatenation(%c, %d) {axis=1}
}
"""


class Graph:
    """Builds graphs of `relu`, `add`, and `concatenation`."""

    def __init__(self, prefix: str = "t") -> None:
        self.prefix = prefix
        self.calls: list[Call] = []
        self.x = self._value("x", 8)

    def _value(self, name: str, channels: int) -> Value:
        return Value(
            f"{self.prefix}{name}", TensorType((1, 4, 4, channels), INT8, SCALE)
        )

    def call(self, op: str, *inputs: Value) -> Value:
        shapes = [value.type.shape[3] for value in inputs]
        channels = sum(shapes) if op == "concatenation" else shapes[0]
        result = self._value(str(len(self.calls)), channels)
        attrs: dict[str, OpAttrs] = {
            "add": ActivationAttrs(activation="none"),
            "concatenation": AxisAttrs(axis=3),
        }
        self.calls.append(Call(op, inputs, (result,), attrs.get(op, NO_ATTRS)))
        return result

    def module(self) -> IRModule:
        used_names = {value for call in self.calls for value in call.inputs}
        ends = [
            call.outputs[0] for call in self.calls if call.outputs[0] not in used_names
        ]
        main = Function("main", (self.x,), tuple(self.calls), tuple(ends))
        module = IRModule("graph", {"main": main})
        verify_graph(main, module, OPS)
        return module


def cells(seed: int, count: int, prefix: str = "t") -> IRModule:
    """Return cells of five blocks, as in neural architecture search."""
    rng, graph = random.Random(seed), Graph(prefix)
    before, last = graph.x, graph.call("relu", graph.x)
    for _ in range(count):
        states = [before, last]
        unused: list[Value] = []
        for _ in range(5):
            pair = rng.sample(states, 2)
            widest = max(value.type.shape[3] for value in pair)
            grown = [_grown(graph, value, widest) for value in pair]
            result = graph.call("add", *grown)
            unused = [value for value in unused if value not in pair] + [result]
            states.append(result)
        before, last = last, graph.call("relu", unused[0])
        if len(unused) > 1:
            last = graph.call("concatenation", last, unused[1])
    return graph.module()


def _grown(graph: Graph, value: Value, channels: int) -> Value:
    """Return `value` with at least that many channels."""
    have = value.type.shape[3]
    if have == channels or channels % have:
        return value if have == channels else graph.call("relu", value)
    return graph.call("concatenation", *[value] * (channels // have))


def wired(seed: int, count: int, prefix: str = "t") -> IRModule:
    """Return calls that read one or two recent tensors."""
    rng, graph = random.Random(seed), Graph(prefix)
    result = [graph.x]
    for _ in range(count):
        first = rng.choice(result[-6:])
        alike = [
            value
            for value in result[-6:]
            if value.type == first.type and value != first
        ]
        match rng.randrange(4):
            case 0 if alike:
                result.append(graph.call("add", first, rng.choice(alike)))
            case 1 if first.type.shape[3] < 64:
                result.append(graph.call("concatenation", first, first))
            case _:
                result.append(graph.call("relu", first))
    return graph.module()


def graphs(deep: bool) -> Iterator[IRModule]:
    for seed in range(40 if deep else 8):
        yield wired(seed, 6 + 2 * (seed % 8))
    for seed in range(12 if deep else 3):
        yield wired(seed, 12 + seed)


def steps(module: IRModule) -> ScheduleGraph:
    entry = module.entry
    assert isinstance(entry, Function)
    return build_schedule_graph(module, entry, OPS)


def names(module: IRModule) -> list[str]:
    entry = module.entry
    assert isinstance(entry, Function)
    return [call.outputs[0].name for call in entry.body]


def all_orders(found: ScheduleGraph) -> Iterator[tuple[int, ...]]:
    """Yield every topological order by brute force."""

    def longer(order: tuple[int, ...], done: int) -> Iterator[tuple[int, ...]]:
        if len(order) == len(found.calls):
            yield order
        for call, needed in enumerate(found.before):
            if not done >> call & 1 and not needed & ~done:
                yield from longer((*order, call), done | 1 << call)

    return longer((), 0)


def test_branch_is_completed_before_the_next_one_starts() -> None:
    module = parse_module(BRANCHES)
    assert names(reorder_calls(module, OPS)) == ["b", "d", "a", "c", "y"]


@pytest.mark.host_c
def test_the_reordered_graph_takes_less_and_computes_the_same() -> None:
    module = parse_module(BRANCHES)
    done = compile_model(module, Options())
    alone = compile_model(module.with_stage("reorder-calls"), Options())
    assert done.metadata["workspace_bytes"] < alone.metadata["workspace_bytes"]
    assert [row["name"] for row in done.metadata["operators"]] == [
        "b",
        "d",
        "a",
        "c",
    ], "y is joined"
    assert verify(done, samples=4).mismatches == 0
    assert Model(done.imported).module.entry == module.entry


@pytest.mark.models
@pytest.mark.parametrize("name", mlperf_tiny.FILES)
def test_the_reference_models_keep_their_order(
    name: str, model_path: Callable[[str], Path]
) -> None:
    module = load_module(model_path(name))
    assert reorder_calls(module, OPS) is module


def test_every_order_is_valid_and_no_worse_than_the_files(deep: bool) -> None:
    better = 0
    for module in graphs(deep):
        result = steps(module)
        file = result.peak(range(len(result.calls)))
        ordered = reorder_calls(module, OPS)
        entry = ordered.entry
        assert isinstance(entry, Function)
        verify_graph(entry, ordered, OPS)
        peak = steps(ordered).peak(range(len(result.calls)))
        assert peak.apart <= file.apart
        assert peak.shared <= file.shared
        assert sorted(names(ordered)) == sorted(names(module))
        better += peak < file
    assert better >= 3, "the graphs must be such that order matters"


def test_small_graphs_get_the_best_of_all_orders() -> None:
    for seed in range(12):
        result = steps(wired(seed, 7))
        file = result.peak(range(len(result.calls)))
        peaks = [result.peak(order) for order in all_orders(result)]
        allowed = [peak for peak in peaks if peak.shared <= file.shared]
        assert result.peak(find_min_peak_order(result)) == min(allowed)


def test_beam_search_gives_a_valid_order() -> None:
    for seed in range(6):
        result = steps(wired(seed, 14))
        for width in (1, 4):
            order, done = beam_search_order(result, width), 0
            for call in order:
                assert not result.before[call] & ~done
                done |= 1 << call
            assert sorted(order) == list(range(14))


def test_neural_architecture_search_cells_gain_by_reordering() -> None:
    result = [steps(cells(seed, 3)) for seed in range(10)]
    files = [one.peak(range(len(one.calls))).apart for one in result]
    best = [one.peak(find_min_peak_order(one)).apart for one in result]
    assert sum(mine < file for mine, file in zip(best, files, strict=True)) == 5
    assert (
        max(100 * mine // file for mine, file in zip(best, files, strict=True)) == 100
    )
    assert min(100 * mine // file for mine, file in zip(best, files, strict=True)) == 82


def test_interrupted_search_keeps_the_beam_search_order() -> None:
    result = steps(cells(1, 3))
    remaining = tuple(range(len(result.calls)))
    order = find_min_peak_order(result, states_max=3)
    assert result.peak(order) <= result.peak(remaining)
    assert min_peak_order(result, PeakBytes(1 << 40, 1 << 40), 0, 3) == (None, 0)


def test_order_is_independent_of_names() -> None:
    for make, count in ((cells, 3), (wired, 14)):
        for seed in range(3):
            result = [steps(make(seed, count, prefix)) for prefix in ("t", "zz", "A")]
            assert len({find_min_peak_order(one) for one in result}) == 1


def test_tensor_sizes_follow_the_io_options() -> None:
    module = parse_module(BRANCHES)
    sizes = {
        name: [tensor.size_bytes for tensor in steps(replace(module, io=io)).tensors]
        for name, io in (("pools", IoBinding()), ("caller", IoBinding("caller")))
    }
    assert sizes["pools"] == [256, 2048, 1536, 32, 24, 56]
    assert sizes["caller"] == [0, 2048, 1536, 32, 24, 0]
    remaining = steps(replace(module, io=IoBinding(preserve_input=True)))
    assert [tensor.lives_to_end for tensor in remaining.tensors] == [
        True,
        *[False] * 4,
        True,
    ]


def test_view_takes_no_memory_and_extends_its_source() -> None:
    module = parse_module("""firmwright ir 2
module @views
graph @main(%x: i8[4,4] quant(0.5, 0)) -> (%y) {
  %a: i8[4,4] quant(0.5, 0) = relu(%x)
  %v: i8[16] quant(0.5, 0) = reshape(%a)
  %y: i8[16] quant(0.5, 0) = relu(%v)
}
""")
    result = steps(module)
    assert result.tensors == (
        ScheduledTensor(16, -1, readers=0b001),
        ScheduledTensor(16, 0, readers=0b100),
        ScheduledTensor(16, 2, lives_to_end=True),
    )
    assert result.before == (0, 0b001, 0b010)
    assert result.peak((0, 1, 2)) == PeakBytes(32, 16)


def test_many_parallel_calls_take_few_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [ScheduledTensor(4, -1, (1 << 200) - 1)]
    tensors += [ScheduledTensor(4, call, lives_to_end=True) for call in range(200)]
    graph = ScheduleGraph(tuple(tensors), ((0,),) * 200, (0,) * 200)
    moves, after = [], ScheduleGraph.after

    def count(self: ScheduleGraph, state: ScheduleState, call: int) -> ScheduleState:
        moves.append(call)
        return after(self, state, call)

    monkeypatch.setattr(ScheduleGraph, "after", count)
    assert len(set(beam_search_order(graph))) == 200
    assert len(moves) < 1.5 * thresholds.BEAM_MOVES_MAX
