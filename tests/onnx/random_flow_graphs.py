"""Random ONNX graphs with branches, loops, scans and functions of the model.

Bodies have the same random layers as the graph, and read its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import onnx
from onnx import TensorProto, helper
from tests.onnx.random_float_graphs import BOOL, CODES, FLOAT, INT32, INT64, Item
from tests.onnx.random_further_graphs import FurtherGraph

MOST_DEPTH = 2
"""The most branches and loops around an operator."""
DOMAIN = "firmwright.tests"


def random_flow_model(seed: int) -> bytes:
    """Return the model of the seed, which also determines its opset."""
    return FlowGraph(seed).data()


class FlowGraph(FurtherGraph):
    """A graph in which many layers run bodies."""

    LAYERS = (
        *FurtherGraph.LAYERS,
        *("branches", "loop", "scan", "function") * 4,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.depth = 0
        self.functions: list[Any] = []

    def data(self) -> bytes:
        model = onnx.load_from_string(super().data())
        model.functions.extend(self.functions)
        return bytes(model.SerializeToString())

    # ---- bodies ----------------------------------------------------------------------

    def _begin(self) -> tuple[list[Any], int]:
        self.depth += 1
        outer, self.net.nodes = self.net.nodes, []
        self.net.nested += len(outer)
        return outer, len(self.items)

    def _end(
        self,
        name: str,
        outer: tuple[list[Any], int],
        inputs: Sequence[Item],
        results: Sequence[Item],
    ) -> Any:
        """Return the nodes since `_begin` as a graph."""
        nodes, count = outer
        graph = helper.make_graph(
            self.net.nodes,
            name,
            [_info(item) for item in inputs],
            [_info(item) for item in results],
        )
        self.depth -= 1
        # Names of the nodes in bodies must not occur again.
        self.net.nested += len(self.net.nodes) + 1 - len(nodes)
        self.net.nodes = nodes
        del self.items[count:]
        return graph

    def some_layers(self, most: int) -> None:
        """Try up to `most` layers, whose results may remain unused."""
        finals = len(self.finals)
        for _ in range(int(self.rng.integers(most + 1))):
            getattr(self, self.choice(self.LAYERS))()
        del self.finals[finals:]

    def combined(self, like: Item, *, first: Item | None = None) -> Item:
        """Return a new value of the type and shape of `like`, computed from `first`."""
        alike = [
            i for i in self.items if (i.dtype, i.shape) == (like.dtype, like.shape)
        ]
        a = first or self.choice(alike)
        b = self.operand(like) if self.chance(0.5) else self.choice(alike)
        op = self.choice(["Add", "Sub"])
        return self.keep(self.raw(op, a, b), like.dtype, like.shape)

    def carried(self) -> Item | None:
        return self.pick(FLOAT, FLOAT, INT64, INT32)

    def scalar_condition(self, x: Item | str, dtype: str) -> str:
        """Return whether the first element of `x` is greater than a constant."""
        flat = self.raw("Reshape", x, self.constant([-1]))
        first = self.raw("Gather", flat, self.constant(0), axis=0)
        return str(
            self.raw("Greater", first, self.constant(self.choice([0, 1]), dtype))
        )

    def branches(self) -> None:
        """Add an If of one or two results."""
        source = self.pick(FLOAT, INT64, INT32, exact=True)
        if self.depth >= MOST_DEPTH or source is None or self.opset < 11:
            return
        kinds = [self.carried() for _ in range(int(self.rng.integers(1, 3)))]
        kinds = [kind for kind in kinds if kind is not None]
        condition = self.scalar_condition(source, source.dtype)
        graphs = {}
        for side in ("then_branch", "else_branch"):
            outer = self._begin()
            self.some_layers(3)
            results = [self.combined(kind) for kind in kinds if kind is not None]
            graphs[side] = self._end(side, outer, [], results)
        names = self.raw("If", condition, outputs=len(kinds), **graphs)
        names = names if isinstance(names, list) else [names]
        for name, kind in zip(names, kinds, strict=True):
            assert kind is not None
            self.keep(name, kind.dtype, kind.shape)

    def loop(self) -> None:
        """Add a Loop of a few rounds, which a condition may end earlier."""
        start = self.carried()
        if self.depth >= MOST_DEPTH or start is None or self.opset < 11:
            return
        rounds = int(self.rng.integers(1, 5))
        is_counted = start.dtype == FLOAT or self.chance(0.5)
        outer = self._begin()
        number = f"{self.net.nested}_{len(outer[0])}"
        step = Item(f"step{number}", INT64, ())
        going = Item(f"going{number}", BOOL, ())
        state = Item(f"state{number}", start.dtype, start.shape, start.dtype != FLOAT)
        self.items.append(state)
        self.some_layers(2)
        following = self.combined(start, first=state)
        again = self.raw("Identity", going)
        if not is_counted:
            again = self.scalar_condition(following, start.dtype)
        results = [Item(again, BOOL, ()), following]
        if is_counted:
            results.append(self.combined(start))
        body = self._end("body", outer, [step, going, state], results)
        operands = [self.constant(rounds), self.constant(True, BOOL), start]
        names = self.raw("Loop", *operands, outputs=len(results) - 1, body=body)
        names = names if isinstance(names, list) else [names]
        self.keep(names[0], start.dtype, start.shape)
        if is_counted:
            self.keep(names[1], start.dtype, (rounds, *start.shape))

    def scan(self) -> None:
        """Add a Scan over the first axis, with or without a state."""
        x = self.pick(FLOAT, INT64, fits=lambda s: len(s) >= 2 and s[0] <= 6)
        if self.depth >= MOST_DEPTH or x is None or self.opset < 11:
            return
        outer = self._begin()
        number = f"{self.net.nested}_{len(outer[0])}"
        row = Item(f"row{number}", x.dtype, x.shape[1:], x.is_exact)
        self.items.append(row)
        states, results, starts = [], [], []
        if self.chance(0.5):
            total = Item(f"total{number}", x.dtype, x.shape[1:], x.dtype != FLOAT)
            self.items.append(total)
            states, starts = [total], [self.constant(np.zeros(x.shape[1:]), x.dtype)]
            results = [self.combined(row, first=total)]
        self.some_layers(2)
        results.append(self.combined(row, first=row))
        body = self._end("row", outer, [*states, row], results)
        attrs: dict[str, Any] = {"body": body, "num_scan_inputs": 1}
        if self.chance(0.3):
            attrs["scan_input_directions"] = [1]
        names = self.raw("Scan", *starts, x, outputs=len(results), **attrs)
        names = names if isinstance(names, list) else [names]
        if states:
            self.keep(names[0], x.dtype, x.shape[1:])
        self.keep(names[-1], x.dtype, x.shape)

    def function(self) -> None:
        """Call a function of the model, a new one or an earlier one."""
        x = self.pick(FLOAT)
        if x is None or self.depth:
            return
        known = [item.name for item in self.functions]
        name = self.choice([*known, ""]) if known else ""
        if not name:
            name = f"function{len(known)}"
            first, second = (self.choice(["Relu", "Tanh", "Sigmoid"]) for _ in "ab")
            nodes = [
                helper.make_node(first, ["a"], ["c"]),
                helper.make_node("Mul", ["c", "b"], ["d"]),
                helper.make_node(second, ["d"], ["e"]),
                helper.make_node("Sub", ["e", "a"], ["y"]),
            ]
            opsets = [helper.make_opsetid("", self.opset)]
            made = helper.make_function(DOMAIN, name, ["a", "b"], ["y"], nodes, opsets)
            self.functions.append(made)
        y = self.raw(name, x, self.operand(x), domain=DOMAIN)
        self.keep(y, FLOAT, x.shape)


def _info(item: Item) -> Any:
    code: int = CODES.get(item.dtype, TensorProto.FLOAT)
    return helper.make_tensor_value_info(item.name, code, list(item.shape))
