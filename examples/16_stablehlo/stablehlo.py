"""A front end that Firmwright does not have: StableHLO, the form that JAX exports.

`read_stablehlo` translates each operation by calls of `GraphBuilder`, or refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

import firmwright as fw
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.graph import Value

Tensor = Value | np.ndarray  # a value of the network, or a constant
FORMULAS = {
    "add": "a + b",
    "subtract": "a - b",
    "multiply": "a * b",
    "divide": "a / b",
    "maximum": "where(a != a, a, max(a, b))",
    "minimum": "where(a != a, a, min(a, b))",
    "exponential": "exp(a)",
    "round_nearest_even": "rint(a)",
}
STEPS = {"add": ("add", 0), "maximum": ("max", -np.inf)}  # with the initial value
_LOCATION = re.compile(r' loc\((?:[^()"]|"[^"]*"|\([^()]*\))*\)|^#loc.*\n', re.M)
_REGION = re.compile(r"\(\{\n(.*?)\}\)", re.DOTALL)
_TENSOR = re.compile(r"tensor<((?:\d+x)*)(ui|i|f)(\d+)>")
_IMAGES = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"


def types_in(text: str) -> list[tuple[tuple[int, ...], str]]:
    found = []
    for lengths, kind, bits in _TENSOR.findall(text):
        dtype = {"ui": "uint", "i": "int", "f": "float"}[kind] + bits
        found.append((tuple(map(int, lengths.split("x")[:-1])), dtype))
    return found


@dataclass(frozen=True)
class Operation:
    """One line: what it computes, its operands, the type of its result, its text."""

    name: str
    inputs: Sequence[Tensor]
    shape: tuple[int, ...]
    dtype: str
    text: str

    def listed(self, name: str, default: Sequence[int] = ()) -> tuple[int, ...]:
        """Return an attribute such as `dims = [0, 1]` or `dims = array<i64: 2, 2>`."""
        found = re.search(rf"\b{name} = (?:array<i64: |\[)([][\d, -]*)[]>]", self.text)
        return tuple(map(int, re.findall(r"-?\d+", found[1]) if found else default))

    def elements(self) -> np.ndarray:
        """Return the elements of a constant: all bytes, bits of numbers, or numbers."""
        literal, dtype = re.search(r"dense<(.*?)> :", self.text)[1], self.dtype
        if literal.startswith('"'):
            array = np.frombuffer(bytes.fromhex(literal[3:-1]), dtype)
            return array.reshape(self.shape)
        values = []
        for word in re.findall(r"[^\[\], ]+", literal):
            bits = bytes.fromhex(word[2:])[::-1] if "0x" in word else b""
            values.append(np.frombuffer(bits, dtype)[0] if bits else float(word))
        return np.resize(np.array(values).astype(dtype), self.shape)

    def step(self) -> str:
        name = "add" if " stablehlo.add " in self.text else "maximum"
        if not np.array_equal(self.inputs[1], STEPS[name][1]):
            raise ValueError(f"not supported: {self.text[:80]}")
        return STEPS[name][0]


@dataclass
class Translation:
    """A network under construction, and the lines of each function."""

    graph: GraphBuilder
    functions: dict[str, list[str]] = field(default_factory=dict)

    def call(self, op: str, *inputs: Tensor, **attrs: object) -> Value:
        constant = self.graph.constant
        values = (constant(x) if isinstance(x, np.ndarray) else x for x in inputs)
        return self.graph.call(op, *values, **attrs)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        if isinstance(x, np.ndarray):
            return x.astype(dtype)
        return self.call("expression", x, formula=f"{dtype}(a)")

    def move(self, x: Tensor, perm: Sequence[int], shape: Sequence[int]) -> Tensor:
        """Transpose, then reshape; of a constant, this is done here."""
        if isinstance(x, np.ndarray):
            return x.transpose(perm).reshape(shape)
        if list(perm) != sorted(perm):
            x = self.call("transpose", x, perm=tuple(perm))
        return self.call("reshape", x, shape=tuple(shape))

    def run(self, function: str, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Add the operations of a function; return its results."""
        head, *lines = self.functions[function]
        values = dict(zip(re.findall(r"%\w+(?=:)", head), inputs, strict=True))
        for line in lines:
            names = re.findall(r"%\w+", line.split(" : ")[0])
            if line.startswith("return"):
                break
            op = re.match(r'%\w+ = "?(?:stablehlo\.)?(\w+)', line)[1]
            operands = [values[name] for name in names[1:] if name in values]
            operation = Operation(op, operands, *types_in(line)[-1], line)
            values[names[0]] = self.add(operation)
        return [values[name] for name in names]

    def add(self, o: Operation) -> Tensor:
        axes = range(len(o.inputs[0].shape)) if o.inputs else ()
        match o.name:
            case "constant":
                return o.elements()
            case "call":
                return self.run(re.search(r"@(\w+)", o.text)[1], o.inputs)[0]
            case "convert":
                return self.cast(o.inputs[0], o.dtype)
            case "reshape" | "transpose":
                return self.move(o.inputs[0], o.listed("dims", axes), o.shape)
            case "broadcast_in_dim":
                lengths = dict(zip(o.listed("dims"), o.inputs[0].shape, strict=True))
                aligned = [lengths.get(axis, 1) for axis in range(len(o.shape))]
                x = self.move(o.inputs[0], axes, aligned)
                is_whole = x.shape == o.shape
                return x if is_whole else self.call("broadcast_to", x, shape=o.shape)
            case "dot_general" if ", contracting_dims = [1] x [0]" in o.text:
                return self.product(o)
            case "convolution" if _IMAGES in o.text and "lhs_dilate" not in o.text:
                return self.convolution(o)
            case "reduce":
                return self.reduce("a", o.step(), o.listed("dimensions"), o.inputs[0])
            case "reduce_window" if "padding" not in o.text:
                return self.pool(o)
            case _ if o.name in FORMULAS:
                return self.call("expression", *o.inputs, formula=FORMULAS[o.name])
        raise ValueError(f"not supported: {o.text[:80]}")

    def reduce(self, formula: str, step: str, axes: object, *inputs: Tensor) -> Value:
        attrs = {"formula": formula, "step": step, "axes": axes, "keep_dims": False}
        return self.call("reduction", *inputs, **attrs)

    def product(self, o: Operation) -> Tensor:
        """Reduce [rows, 1, depth] * [1, columns, depth] along the last axis."""
        (rows, depth), (_, columns) = (x.shape for x in o.inputs)
        a = self.move(o.inputs[0], (0, 1), (rows, 1, depth))
        b = self.move(o.inputs[1], (1, 0), (1, columns, depth))
        formula = "a * b" if "float" in o.dtype else "int32(a) * int32(b)"
        return self.reduce(formula, "add", (2,), a, b)

    def convolution(self, o: Operation) -> Tensor:
        """In `conv_nd` channels come first, and integers are those of the result."""
        operands = []
        for x, perm in zip(o.inputs, ((0, 3, 1, 2), (3, 2, 0, 1)), strict=True):
            shape = [x.shape[axis] for axis in perm]
            operands.append(self.move(self.cast(x, o.dtype), perm, shape))
        y = self.call(
            "conv_nd",
            *operands,
            stride=o.listed("stride", (1, 1)),
            dilation=o.listed("rhs_dilate", (1, 1)),
            before=o.listed("pad", (0, 0, 0, 0))[::2],
            outputs=o.shape[1:3],
            groups=int(re.search(r"feature_group_count = (\d+)", o.text)[1]),
        )
        return self.move(y, (0, 2, 3, 1), o.shape)

    def pool(self, o: Operation) -> Tensor:
        """The window of `pool_nd` has all axes, after a batch and a channel of one."""
        x, ones = o.inputs[0], (1,) * len(o.shape)
        attrs = {
            "kind": {"max": "max", "add": "sum"}[o.step()],
            "size": o.listed("window_dimensions"),
            "stride": o.listed("window_strides", ones),
            "dilation": ones,
            "before": (0,) * len(ones),
        }
        x = self.move(x, range(len(ones)), (1, 1, *x.shape))
        y = self.call("pool_nd", x, outputs=o.shape, **attrs)
        return self.move(y, range(len(y.shape)), o.shape)


def read_stablehlo(text: str, name: str) -> fw.Model:
    """Return the function @main of a module as a model."""
    text = _REGION.sub(lambda m: m[0].replace("\n", " "), _LOCATION.sub("", text))
    network, lines = Translation(GraphBuilder(name)), list[str]()
    for line in map(str.strip, text.splitlines()):
        if head := re.match(r"func\.func \w+ @(\w+)", line):
            lines = network.functions[head[1]] = []
        lines.append(line)
    types = types_in(network.functions["main"][0].split(") ->")[0])
    inputs = [network.graph.input(f"x{k}", *kind) for k, kind in enumerate(types)]
    return network.graph.model(*network.run("main", inputs))
