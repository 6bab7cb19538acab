"""Random ONNX graphs of floats, integers and booleans, of any opset from 7 on.

A seed determines the graph and its opset. Floats are rounded differently in functions
such as Tanh, so operators with steps, such as Floor or ArgMax, read only floats that
equal those of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import onnx
from onnx import TensorProto, helper
from tests.onnx.onnx_models import Net

Array = NDArray[Any]
OLDEST, NEWEST = 7, 24
LARGEST = 700
"""The most elements of a result."""
FLOAT, INT64, INT32, BOOL = "float32", "int64", "int32", "bool"
CODES = {
    FLOAT: TensorProto.FLOAT,
    INT64: TensorProto.INT64,
    INT32: TensorProto.INT32,
    BOOL: TensorProto.BOOL,
}
SMOOTH: dict[str, tuple[int, dict[str, Any]]] = {
    "Sigmoid": (7, {}),
    "Tanh": (7, {}),
    "Elu": (7, {"alpha": 0.7}),
    "Selu": (7, {}),
    "Softplus": (7, {}),
    "Softsign": (7, {}),
    "HardSigmoid": (7, {"alpha": 0.3, "beta": 0.45}),
    "Erf": (9, {}),
    "Celu": (12, {"alpha": 1.5}),
    "HardSwish": (14, {}),
    "Mish": (18, {}),
    "Gelu": (20, {}),
    "Atan": (7, {}),
    "Asinh": (9, {}),
}
"""Functions that do not enlarge errors: first opset and attributes."""
EXACT: dict[str, tuple[int, dict[str, Any]]] = {
    "Abs": (7, {}),
    "Neg": (7, {}),
    "Relu": (7, {}),
    "LeakyRelu": (7, {"alpha": 0.125}),
    "Identity": (7, {}),
}
STEEP: dict[str, tuple[int, dict[str, Any]]] = {
    "Floor": (7, {}),
    "Ceil": (7, {}),
    "Exp": (7, {}),
    "Sin": (7, {}),
    "Cos": (7, {}),
    "Sign": (9, {}),
    "Round": (11, {}),
    "ThresholdedRelu": (10, {"alpha": 0.5}),
    "Shrink": (9, {"lambd": 0.4, "bias": 0.1}),
    "Sinh": (9, {}),
    "Cosh": (9, {}),
}
"""Functions with steps, or that enlarge errors."""
ARITHMETIC = ("Add", "Sub", "Mul")
COMPARISONS: dict[str, dict[str, int]] = {
    "Less": {FLOAT: 7, INT64: 9, INT32: 9},
    "Greater": {FLOAT: 7, INT64: 9, INT32: 9},
    "Equal": {INT64: 7, INT32: 7, BOOL: 7, FLOAT: 11},
    "LessOrEqual": {FLOAT: 12, INT64: 12, INT32: 12},
    "GreaterOrEqual": {FLOAT: 12, INT64: 12, INT32: 12},
}
"""The first opset that takes each type."""
REDUCTIONS = (
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSumExp",
    "ReduceProd",
)


@dataclass(frozen=True, slots=True)
class Item:
    """A value of the graph; `limit` is the exclusive bound of an index, else 0."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_exact: bool = True
    limit: int = 0


@dataclass
class TypedGraph:
    """A graph of random nodes; every layer is a method that adds one."""

    seed: int
    items: list[Item] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    finals: list[str] = field(default_factory=list)
    """Results of the model that no node reads."""

    LAYERS = (
        *("smooth", "smooth", "exact", "steep", "arithmetic", "arithmetic"),
        *("division", "extreme", "comparison", "logic", "where", "reduction"),
        *("arg", "cast", "softmax", "clip", "top"),
    )

    def __post_init__(self) -> None:
        self.rng = np.random.Generator(np.random.PCG64(self.seed))
        self.opset = int(self.rng.integers(OLDEST, NEWEST + 1))
        self.net = Net(self.seed, self.opset)

    def data(self) -> bytes:
        shape = (1, *self.ints(1, 5, 1), *self.ints(2, 7, 2))
        self.add_input("x", FLOAT, shape)
        self.add_input("rows", FLOAT, tuple(self.ints(2, 6, 2)))
        if self.chance(0.5):
            like = shape if self.chance(0.5) else shape[int(self.rng.integers(1, 4)) :]
            self.add_input("z", self.choice([FLOAT, INT64, INT32, BOOL]), like)
        count = int(self.rng.integers(5, 15))
        while count:
            before = len(self.items)
            getattr(self, self.choice(self.LAYERS))()
            count -= len(self.items) > before
        inputs = {item.name for item in self.net.inputs}
        results = [i.name for i in self.items if i.name not in self.used | inputs]
        self.net.inputs = [item for item in self.net.inputs if item.name in self.used]
        return self.net.model(*results, *self.finals)

    # ---- choices ---------------------------------------------------------------------

    def choice(self, values: Sequence[Any]) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def ints(self, low: int, high: int, count: int) -> list[int]:
        return [int(value) for value in self.rng.integers(low, high, count)]

    def pick(
        self,
        *dtypes: str,
        exact: bool = False,
        fits: Callable[[tuple[int, ...]], bool] = bool,
    ) -> Item | None:
        """Return an earlier value of a type, of at least one axis."""
        found = [
            item
            for item in self.items
            if item.dtype in dtypes and (item.is_exact or not exact)
            if item.shape and fits(item.shape)
        ]
        return self.choice(found) if found else None

    def axes(self, rank: int) -> list[int]:
        count = int(self.rng.integers(1, rank + 1))
        return sorted(int(k) for k in self.rng.choice(rank, count, replace=False))

    # ---- nodes -----------------------------------------------------------------------

    def add_input(self, name: str, dtype: str, shape: Sequence[int]) -> None:
        self.net.input(name, shape, CODES[dtype])
        self.items.append(Item(name, dtype, tuple(shape)))

    def constant(self, values: Any, dtype: str = INT64) -> str:
        return self.net.weight(np.array(values, dtype))

    def add(
        self,
        op: str,
        inputs: Sequence[Item | str],
        dtype: str = "",
        *,
        is_exact: bool = True,
        limit: int = 0,
        outputs: int = 1,
        **attrs: Any,
    ) -> None:
        """Add a node with results of a type, by default that of its first input."""
        read = [item for item in inputs if isinstance(item, Item)]
        names = [item.name if isinstance(item, Item) else item for item in inputs]
        self.net.node(op, *names, outputs=outputs, **attrs)
        node = self.net.nodes[-1]
        shapes = self._shapes(node, read)
        if any(np.prod(shape) > LARGEST or not np.prod(shape) for shape in shapes):
            self.net.nodes.pop()
            return
        self.used.update(item.name for item in read)
        kind = dtype or read[0].dtype
        exact = kind != FLOAT or (is_exact and all(item.is_exact for item in read))
        for name, shape in zip(node.output, shapes, strict=True):
            self.items.append(Item(name, kind, shape, exact, limit))

    def _shapes(self, node: Any, read: Sequence[Item]) -> list[tuple[int, ...]]:
        known = {i.name: (CODES[i.dtype], list(i.shape)) for i in read}
        inputs = [helper.make_tensor_value_info(n, *k) for n, k in known.items()]
        outputs = [helper.make_empty_tensor_value_info(y) for y in node.output]
        weights = [w for w in self.net.weights if w.name in node.input]
        graph = helper.make_graph([node], "node", inputs, outputs, weights)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets)
        inferred = onnx.shape_inference.infer_shapes(
            model, strict_mode=True, data_prop=True
        )
        shapes = []
        for item in inferred.graph.output:
            sizes = item.type.tensor_type.shape.dim
            assert all(size.HasField("dim_value") for size in sizes), node
            shapes.append(tuple(size.dim_value for size in sizes))
        return shapes

    # ---- elementwise -----------------------------------------------------------------

    def _unary(
        self, table: dict[str, tuple[int, dict[str, Any]]], *, exact: bool, rounds: bool
    ) -> None:
        known = [op for op, (since, _) in table.items() if since <= self.opset]
        op, x = self.choice(known), self.pick(FLOAT, exact=exact)
        if x is not None:
            self.add(op, [x], is_exact=not rounds, **table[op][1])

    def smooth(self) -> None:
        self._unary(SMOOTH, exact=False, rounds=True)

    def exact(self) -> None:
        self._unary(EXACT, exact=False, rounds=False)

    def steep(self) -> None:
        self._unary(STEEP, exact=True, rounds=True)

    def operand(self, a: Item, *, low: float = -2.0) -> Item | str:
        """Return a constant or an earlier value that broadcasts with `a`."""
        alike = [
            i for i in self.items if i.dtype == a.dtype and _fits(i.shape, a.shape)
        ]
        if alike and self.chance(0.6):
            return self.choice(alike)
        axes = [n if self.chance(0.6) else 1 for n in a.shape]
        shape = axes[int(self.rng.integers(len(axes) + 1)) :]
        values = self.rng.uniform(low, 2, shape)
        return self.constant(
            values if a.dtype == FLOAT else np.ceil(4 * values), a.dtype
        )

    def arithmetic(self) -> None:
        a = self.pick(FLOAT, FLOAT, INT64, INT32)
        if a is not None:
            pair = [a, self.operand(a)]
            if self.chance(0.3):
                pair.reverse()
            self.add(self.choice(ARITHMETIC), pair, a.dtype, is_exact=False)

    def division(self) -> None:
        """Add a quotient or remainder by constants that are not 0."""
        a = self.pick(FLOAT, INT64, INT32)
        if a is None:
            return
        b = self.constant(self.rng.uniform(1, 5, a.shape[-1:]), a.dtype)
        is_remainder = a.dtype != FLOAT and self.opset >= 10 and self.chance(0.5)
        self.add("Mod" if is_remainder else "Div", [a, b], is_exact=False)

    def extreme(self) -> None:
        """Add a Max, Min, Sum or Mean of two or three values."""
        a = self.pick(FLOAT)
        if a is not None:
            op = self.choice(["Max", "Min", "Sum", "Mean"])
            if self.opset < 8:
                alike = [
                    i for i in self.items if (i.dtype, i.shape) == (FLOAT, a.shape)
                ]
                others = [self.choice(alike)]
            else:
                others = [self.operand(a) for _ in range(self.choice([1, 2]))]
            self.add(op, [a, *others], is_exact=op in ("Max", "Min"))

    def clip(self) -> None:
        x = self.pick(FLOAT)
        if x is None:
            return
        if self.opset < 11:
            self.add("Clip", [x], min=-0.5, max=1.25)
        else:
            low = self.constant(-0.5, FLOAT) if self.chance(0.7) else ""
            self.add("Clip", [x, low, self.constant(1.25, FLOAT)])

    def comparison(self) -> None:
        op = self.choice(list(COMPARISONS))
        types = [k for k, since in COMPARISONS[op].items() if since <= self.opset]
        a = self.pick(*types, exact=True) if types else None
        if a is not None:
            b = self.operand(a)
            if isinstance(b, str) or b.is_exact:
                self.add(op, [a, b], BOOL)

    def logic(self) -> None:
        a = self.pick(BOOL)
        if a is None:
            return
        if self.chance(0.3):
            self.add("Not", [a])
        else:
            self.add(self.choice(["And", "Or", "Xor"]), [a, self.operand(a)])

    def where(self) -> None:
        condition = self.pick(BOOL)
        if condition is None or self.opset < 9:
            return
        alike = [i for i in self.items if _fits(i.shape, condition.shape)]
        values = [i for i in alike if i.dtype in (FLOAT, INT64)]
        if values:
            a = self.choice(values)
            self.add("Where", [condition, a, self.operand(a)], a.dtype)

    def cast(self) -> None:
        x = self.pick(FLOAT, INT64, INT32, BOOL, exact=True)
        if x is not None:
            dtype = self.choice([k for k in CODES if k != x.dtype])
            self.add("Cast", [x], dtype, to=CODES[dtype])

    # ---- axes ------------------------------------------------------------------------

    def reduction(self) -> None:
        op, x = self.choice(REDUCTIONS), self.pick(FLOAT)
        if x is None:
            return
        axes, attrs = self.axes(len(x.shape)), {"keepdims": int(self.chance(0.5))}
        if self.opset >= 11 and self.chance(0.3):
            axes = [axis - len(x.shape) for axis in axes]
        inputs: list[Item | str] = [x]
        if self.opset >= (13 if op == "ReduceSum" else 18):
            inputs.append(self.constant(axes))
        else:
            attrs["axes"] = axes
        self.add(op, inputs, is_exact=op in ("ReduceMax", "ReduceMin"), **attrs)

    def softmax(self) -> None:
        x, op = self.pick(FLOAT), self.choice(["Softmax", "Softmax", "LogSoftmax"])
        if x is not None:
            axis = int(self.rng.integers(len(x.shape)))
            self.add(op, [x], is_exact=False, axis=axis)

    def arg(self) -> None:
        x = self.pick(FLOAT, exact=True)
        if x is None:
            return
        axis = int(self.rng.integers(len(x.shape)))
        attrs = {"axis": axis, "keepdims": int(self.chance(0.5))}
        if self.opset >= 12 and self.chance(0.4):
            attrs["select_last_index"] = 1
        op = self.choice(["ArgMax", "ArgMin"])
        self.add(op, [x], INT64, limit=x.shape[axis], **attrs)

    def top(self) -> None:
        x = self.pick(FLOAT, exact=True)
        if x is None or self.opset < 10:
            return
        axis = int(self.rng.integers(len(x.shape)))
        count = self.constant([int(self.rng.integers(1, x.shape[axis] + 1))])
        attrs = {"largest": int(self.chance(0.5))} if self.opset >= 11 else {}
        self.add("TopK", [x, count], outputs=2, axis=axis, **attrs)
        if self.items[-1].name.endswith("_1"):
            last = self.items.pop()
            self.items.append(Item(last.name, INT64, last.shape, True, x.shape[axis]))


def _fits(part: Sequence[int], whole: Sequence[int]) -> bool:
    """Return whether `part` broadcasts to the shape `whole`."""
    if not part or len(part) > len(whole):
        return False
    ends = whole[len(whole) - len(part) :]
    return all(m in (1, n) for m, n in zip(part, ends, strict=True))
