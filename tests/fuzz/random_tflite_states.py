"""Random .tflite graphs with branches, loops, variables and recurrent layers.

A seed determines the graph. Subgraphs have the same random layers as the main graph.
The reference and the firmware run the samples of a graph in the same order, so that
its state is compared too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from tests.fuzz.random_tflite import KINDS, Made
from tests.fuzz.random_tflite_rare import RareGraph

MOST_DEPTH = 2
"""The most branches and loops around an operator."""
MOST_ROUNDS = 5
KEPT = ("int8", "float32", "int32")
"""Types of variables."""
GATES = 4
GATE_SCALE, CELL_SCALES = 2.0**-12, (2.0**-11, 2.0**-9, 2.0**-13)
OF_IMAGES = (
    *("conv", "depthwise", "dense", "pool", "join", "slice", "pad", "rows"),
    *("window", "window_by_channel", "transpose_conv"),
)
"""Layers that need an image of the graph's type, which subgraphs may not have."""
LONGEST_RECURRENCE = 48
"""The most elements of the input of a recurrent layer."""


def random_stateful_graph(seed: int) -> bytes:
    return StatefulGraph(seed, KINDS[seed % len(KINDS)]).data()


class StatefulGraph(RareGraph):
    """A graph in which many layers have state or run subgraphs."""

    LAYERS = (
        *RareGraph.LAYERS,
        *("branches", "branches", "branches", "loop", "loop", "loop"),
        *("kept", "kept", "kept", "kept", "recurrent", "recurrent", "filter"),
    )

    def __init__(self, seed: int, kind: str) -> None:
        super().__init__(seed, kind)
        self.depth = 0
        self.variables: dict[str, Made] = {}

    # ---- subgraphs -------------------------------------------------------------------

    @contextmanager
    def subgraph(self, name: str, params: Sequence[Made]) -> Iterator[list[Made]]:
        """Add layers to a new subgraph with inputs like `params`, which it yields."""
        outer = self.graph, self.made, self.used
        self.graph, self.made, self.used = self.file.graph(name), [], set()
        self.depth += 1
        own = [
            self.typed(
                f"{name}/p{k}",
                p.dtype,
                p.shape,
                (p.scale, p.zero_point),
                is_exact=p.is_exact,
                limit=p.limit,
            )
            for k, p in enumerate(params)
        ]
        self.graph.table.inputs += [param.index for param in own]
        yield own
        self.depth -= 1
        self.graph, self.made, self.used = outer

    def some_layers(self, name: str, most: int) -> None:
        """Try up to `most` layers, whose results may remain unused."""
        for step in range(self.rng.randint(0, most)):
            has_image = self.any_of((self.dtype,), exact=True, rank=4) is not None
            layers = [k for k in self.LAYERS if has_image or k not in OF_IMAGES]
            getattr(self, self.rng.choice(layers))(f"{name}/s{step}")

    def combined(self, name: str, a: Made, like: Made) -> Made:
        """Return `a` combined with another tensor, with the type of `like`."""
        alike = [m for m in self.made if (m.dtype, m.shape) == (a.dtype, a.shape)]
        b = self.rng.choice(alike)
        if b is a or self.rng.random() < 0.3:
            b = self.constant(name, a, self.part_of(a.shape))
        ops = ["ADD", "SUB"] if a.dtype == "float32" else ["ADD", "SUB", "MUL"]
        op = self.rng.choice(ops)
        result = self.typed(
            f"{name}/y",
            a.dtype,
            a.shape,
            (like.scale, like.zero_point),
            is_exact=False,
        )
        options: dict[str, object] = {"fusedActivationFunction": 0}
        if op != "MUL":
            options["potScaleInt16"] = False
        self.connect(op, [a, b], [result], f"{op.title()}Options", **options)
        return result

    def carried(self) -> list[Made]:
        """Return one or two tensors that a subgraph may compute with."""
        fitting = [
            m
            for m in self.made
            if m.shape and m.dtype in ("int8", "int16", "float32", "int32")
        ]
        count = min(len(fitting), self.rng.randint(1, 2))
        return self.rng.sample(fitting, count)

    def condition(self, name: str) -> Made | None:
        """Return a condition of one element, which depends on the inputs."""
        x = self.any_of(("bool",)) or self._compared(f"{name}/more")
        if x is None:
            return None
        axes = list(range(len(x.shape)))
        op = self.rng.choice(["REDUCE_ANY", "REDUCE_ALL"])
        whole = self.typed(name, "bool", (), (0.0, 0))
        options = {"keepDims": False}
        self.connect(
            op, [x, self.ints(name, axes)], [whole], "ReducerOptions", **options
        )
        return whole

    def _compared(self, name: str) -> Made | None:
        """Return where a tensor is greater than constants."""
        a = self.any_of(("int8", "float32", "int32"), exact=True)
        if a is None:
            return None
        b = self.same_scale_constant(name, a, self.part_of(a.shape))
        result = self.typed(name, "bool", a.shape, (0.0, 0))
        self.connect("GREATER", [a, b], [result], "GreaterOptions")
        return result

    def branches(self, name: str) -> None:
        """Add an IF with one or two results."""
        if self.depth >= MOST_DEPTH:
            return
        condition, params = self.condition(f"{name}/if"), self.carried()
        if condition is None or not params:
            return
        kinds = [
            replace(p, is_exact=False, limit=0)
            if self.rng.random() < 0.5 or not p.scale
            else self._rescaled(p)
            for p in params
        ]
        indices = []
        for side in ("then", "else"):
            indices.append(len(self.file.model.subgraphs))
            with self.subgraph(f"{name}/{side}", params) as own:
                self.some_layers(f"{name}/{side}", 3)
                results = [
                    self.combined(f"{name}/{side}{k}", p, kind)
                    for k, (p, kind) in enumerate(zip(own, kinds, strict=True))
                ]
                self.graph.outputs(*[result.index for result in results])
        results = [self._result(f"{name}/r{k}", kind) for k, kind in enumerate(kinds)]
        options = {"thenSubgraphIndex": indices[0], "elseSubgraphIndex": indices[1]}
        self.connect("IF", [condition, *params], results, "IfOptions", **options)

    def _rescaled(self, like: Made) -> Made:
        scale, zero_point = self.quantization_of(like.dtype)
        return replace(like, scale=scale, zero_point=zero_point, is_exact=False)

    def _result(self, name: str, kind: Made) -> Made:
        quantization = (kind.scale, kind.zero_point)
        return self.typed(name, kind.dtype, kind.shape, quantization, is_exact=False)

    def _start(self, name: str) -> Made:
        """Return the first value of a counter, which may depend on the inputs."""
        found = [m for m in self.made if m.limit and m.dtype == "int32"]
        found = [m for m in found if m.limit <= MOST_ROUNDS and m.shape]
        if found and self.rng.random() < 0.7:
            x = self.rng.choice(found)
            begin, size = [0] * len(x.shape), [1] * len(x.shape)
            operands = [x, self.ints(f"{name}/b", begin), self.ints(f"{name}/n", size)]
            part = self.typed(f"{name}/first", "int32", size, (0.0, 0))
            self.connect("SLICE", operands, [part])
            start = self.typed(f"{name}/start", "int32", (1,), (0.0, 0))
            self.connect("RESHAPE", [part, self.ints(f"{name}/one", [1])], [start])
            return start
        number = np.array([self.rng.randint(0, MOST_ROUNDS)], np.int32)
        index = self.graph.constant(f"{name}/start", number)
        return Made(index, "int32", (1,), 0.0, 0)

    def loop(self, name: str) -> None:
        """Add a WHILE that counts to `MOST_ROUNDS` from a start."""
        if self.depth >= MOST_DEPTH:
            return
        params = self.carried()
        if not params:
            return
        # Values change from round to round, so they are no indices.
        params = [replace(p, limit=0, is_exact=p.dtype != "float32") for p in params]
        carried = [self._start(name), *params]
        first = len(self.file.model.subgraphs)
        with self.subgraph(f"{name}/cond", carried) as own:
            most = self.graph.constant(f"{name}/m", np.array([MOST_ROUNDS], np.int32))
            more = self.typed(f"{name}/more", "bool", (1,), (0.0, 0))
            self.connect("LESS", [own[0], most], [more], "LessOptions")
            self.graph.outputs(more.index)
        body = len(self.file.model.subgraphs)
        with self.subgraph(f"{name}/body", carried) as own:
            one = self.graph.constant(f"{name}/1", np.array([1], np.int32))
            following = self.typed(f"{name}/next", "int32", (1,), (0.0, 0))
            options = {"fusedActivationFunction": 0, "potScaleInt16": False}
            self.connect("ADD", [own[0], one], [following], "AddOptions", **options)
            self.some_layers(f"{name}/body", 2)
            results = [following]
            for k, param in enumerate(own[1:]):
                # An unchanged value must keep its place: LiteRT copies them one by one.
                keeps = k > 0 and self.rng.random() < 0.3
                combined = self.combined(f"{name}/{k}", param, param)
                results.append(param if keeps else combined)
            self.graph.outputs(*[result.index for result in results])
        results = [self._result(f"{name}/r{k}", p) for k, p in enumerate(carried)]
        options = {"condSubgraphIndex": first, "bodySubgraphIndex": body}
        self.connect("WHILE", carried, results, "WhileOptions", **options)

    # ---- variables -------------------------------------------------------------------

    def add_input(self, name: str, dtype: str, shape: Sequence[int]) -> None:
        super().add_input(name, dtype, shape)
        if name == "x":
            self._add_variables(shape)

    def _add_variables(self, shape: Sequence[int]) -> None:
        """Initialize up to two variables once; the shape is that of the input."""
        for number in range(self.rng.randint(0, 2)):
            dtype = self.rng.choice(KEPT)
            quantization = self.quantization_of(dtype)
            kind = Made(-1, dtype, tuple(shape), *quantization, is_exact=False)
            self.variables[f"v{number}"] = kind
        if not self.variables:
            return
        index = len(self.file.model.subgraphs)
        main = self.graph
        with self.subgraph("once", []):
            for name, kind in self.variables.items():
                start = self.same_scale_constant(f"{name}/first", kind, kind.shape)
                self.graph.assign(self.graph.handle(name), start.index)
        main.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=index)

    def _read(self, name: str, variable: str) -> Made:
        kind, graph = self.variables[variable], self.graph
        result = self._result(name, kind)
        handle = graph.handle(variable)
        graph.op("READ_VARIABLE", [handle], [result.index], "ReadVariableOptions")
        return result

    def kept(self, name: str) -> None:
        """Read a variable, and mostly assign it a value computed from it."""
        if not self.variables:
            return
        variable = self.rng.choice(list(self.variables))
        kind = self.variables[variable]
        before = self._read(f"{name}/before", variable)
        if self.rng.random() < 0.3:
            return
        after = self.combined(name, before, kind)
        self.used.add(before.index)
        self.graph.assign(self.graph.handle(variable), after.index)
        if self.rng.random() < 0.3:
            self._read(f"{name}/after", variable)

    # ---- recurrent layers ------------------------------------------------------------

    def _shaped(self, name: str, rank: int) -> Made | None:
        """Return a tensor of this rank, reshaped if there is none."""
        kinds = ("float32",) if self.kind == "hybrid" else ("int8", "float32")
        x = self.any_of(kinds, exact=self.kind == "hybrid")
        if x is None or int(np.prod(x.shape)) > LONGEST_RECURRENCE:
            return None
        if len(x.shape) == rank:
            return x
        flat, shape = int(np.prod(x.shape)), [1] * rank
        for axis in range(rank - 1):
            shape[axis] = self.rng.choice([n for n in (1, 2, 3) if flat % n == 0])
            flat //= shape[axis]
        shape[-1] = flat
        result = self._part(f"{name}/x", x, tuple(shape))
        operands = [x, self.ints(f"{name}/x", shape)]
        self.connect("RESHAPE", operands, [result], "ReshapeOptions", newShape=shape)
        return result

    def _matrix(self, name: str, shape: Sequence[int], x: Made) -> int:
        """Add weights for the input `x`."""
        if x.dtype == "float32" and self.kind != "hybrid":
            values = self.values.normal(size=shape).astype(np.float32)
            return self.graph.constant(name, values)
        w = self.values.integers(-127, 128, shape).astype(np.int8)
        index = self.graph.constant(name, w)
        scale = (2 ** self.values.uniform(-8, -5, 1)).astype(np.float32)
        self.quantize(index, scale, 0, 0)
        return index

    def _bias(self, name: str, count: int, x: Made, weights: int) -> int:
        if x.dtype == "float32":
            values = self.values.normal(size=count).astype(np.float32)
            return self.graph.constant(name, values)
        values = self.values.integers(-2000, 2000, count).astype(np.int32)
        index = self.graph.constant(name, values)
        own = np.asarray(self.graph.table.tensors[weights].quantization.scale)
        self.quantize(index, own * np.float32(x.scale), 0, 0)
        return index

    def _variable_tensor(
        self, name: str, dtype: str, shape: Sequence[int], scale: float, zero_point: int
    ) -> int:
        graph = self.graph
        return graph.tensor(name, dtype, shape, scale, zero_point, variable=True)

    def recurrent(self, name: str) -> None:
        """Add a UNIDIRECTIONAL_SEQUENCE_LSTM."""
        x = self._shaped(name, 3) if self.depth == 0 else None
        if x is None:
            return
        is_time_major, units = self.rng.random() < 0.5, self.rng.randint(1, 5)
        batches, inputs = x.shape[1 if is_time_major else 0], x.shape[2]
        sizes = [inputs] * GATES + [units] * GATES
        weights = [
            self._matrix(f"{name}/w{k}", (units, size), x)
            for k, size in enumerate(sizes)
        ]
        biases = [
            self._bias(f"{name}/b{k}", units, x, w)
            for k, w in enumerate(weights[:GATES])
        ]
        scale, zero_point = self.quantization_of(x.dtype)
        cell = "int16" if x.dtype == "int8" else "float32"
        cell_scale = self.rng.choice(CELL_SCALES) if x.dtype == "int8" else 0.0
        shape = (batches, units)
        state = self._variable_tensor(f"{name}/h", x.dtype, shape, scale, zero_point)
        cells = self._variable_tensor(f"{name}/c", cell, shape, cell_scale, 0)
        operands = [x, *weights, -1, -1, -1, *biases, -1, -1, state, cells]
        result = self.typed(
            name, x.dtype, (*x.shape[:2], units), (scale, zero_point), is_exact=False
        )
        options: dict[str, object] = {
            "fusedActivationFunction": 4,
            "timeMajor": is_time_major,
            "cellClip": self.rng.choice([0.0, 0.4]),
        }
        if self.kind == "hybrid":
            options["asymmetricQuantizeInputs"] = self.rng.random() < 0.5
        table = "UnidirectionalSequenceLSTMOptions"
        inner = [*operands, -1, -1, -1, -1]
        self.connect("UNIDIRECTIONAL_SEQUENCE_LSTM", inner, [result], table, **options)
        if x.dtype == "int8":
            gates = [
                self.graph.tensor(f"{name}/i{k}", "int16", (0,), GATE_SCALE, 0)
                for k in range(GATES)
            ]
            hidden = self.graph.tensor(f"{name}/i4", "int8", (0,), scale, zero_point)
            self.graph.table.operators[-1].intermediates = [*gates, hidden]

    def filter(self, name: str) -> None:
        """Add an SVDF."""
        x = self._shaped(name, 2) if self.depth == 0 else None
        if x is None:
            return
        rank, units, memory = self.rng.randint(1, 2), self.rng.randint(1, 4), 4
        filters = rank * units
        features = self._matrix(f"{name}/w", (filters, x.shape[1]), x)
        times, state_scale = self._times(f"{name}/t", (filters, memory), x)
        bias = self._bias(f"{name}/b", units, x, features)
        if x.dtype == "int8":
            scales = np.array([state_scale * 1e-4], np.float32)
            self.quantize(bias, scales, 0, 0)
        kind = "int16" if x.dtype == "int8" else "float32"
        shape = (x.shape[0], filters * memory)
        state = self._variable_tensor(f"{name}/s", kind, shape, state_scale, 0)
        scale, zero_point = self.quantization_of(x.dtype)
        result = self.typed(
            name, x.dtype, (x.shape[0], units), (scale, zero_point), is_exact=False
        )
        options: dict[str, object] = {"rank": rank}
        # The kernel of int8 always applies RELU.
        is_plain = x.dtype != "int8" and self.rng.random() < 0.5
        options["fusedActivationFunction"] = 0 if is_plain else 1
        if self.kind == "hybrid":
            options["asymmetricQuantizeInputs"] = self.rng.random() < 0.5
        operands = [x, features, times, bias, state]
        self.connect("SVDF", operands, [result], "SVDFOptions", **options)

    def _times(self, name: str, shape: Sequence[int], x: Made) -> tuple[int, float]:
        """Return the weights of time, and the scale of the state."""
        if x.dtype != "int8":
            return self._matrix(name, shape, x), 0.0
        w = self.values.integers(-9000, 9000, shape).astype(np.int16)
        index = self.graph.constant(name, w)
        self.quantize(index, np.array([1e-4], np.float32), 0, 0)
        return index, 8e-4
