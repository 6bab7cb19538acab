"""Open sizes of inputs: those that weights imply, and the question to the user.

A size is implied by an operator that joins the axis to weights: a product with weights
of 65 rows needs 65 columns. A tree needs at least the features that it compares.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from firmwright.base.errors import NotSupportedError, UnsupportedItem
from firmwright.frontends.onnx.graph_facts import GraphFacts, Sizes
from firmwright.frontends.onnx.protobuf import (
    Message,
    attribute_value,
    onnx_package,
)

log = logging.getLogger(__name__)

Dimension: TypeAlias = int | str
"""A size, or the name of one that is open."""


@dataclass(frozen=True, slots=True)
class ImpliedSize:
    """The size of an axis, and the node that needs it."""

    size: int
    node: str


ImpliedSizes: TypeAlias = Mapping[str, Mapping[int, ImpliedSize]]
"""The implied sizes of inputs, by name and axis."""


@dataclass(frozen=True, slots=True)
class InputSizes:
    """The shape of an input as far as it is known, and where its sizes come from."""

    name: str
    declared: tuple[Dimension, ...]
    sizes: tuple[Dimension, ...]
    implied: Mapping[int, ImpliedSize]

    @property
    def fixed(self) -> tuple[int, ...] | None:
        """The shape, or None if a size is open."""
        known = tuple(size for size in self.sizes if isinstance(size, int))
        return known if len(known) == len(self.sizes) else None

    @property
    def option(self) -> str:
        return f"--input-shape {self.name}={','.join(map(str, self.sizes))}"

    @property
    def assumption(self) -> str:
        """The sizes assumed for open axes, in words; "" if none is open."""
        parts: list[str] = []
        for axis, (before, after) in enumerate(
            zip(self.declared, self.sizes, strict=True)
        ):
            if before == after:
                continue
            is_named = str(before).isidentifier()
            if axis in self.implied:
                which = f"axis {axis} ({before})" if is_named else f"axis {axis}"
                reason = f", which {self.implied[axis].node} needs"
            else:
                which = f"the batch size {before}" if is_named else "the batch size"
                reason = ""
            parts.append(f"{which} of input {self.name} is taken as {after}{reason}")
        return " and ".join(parts)

    def warn_of_assumption(self, file: str) -> None:
        """Warn once of the sizes assumed for open axes, if there are any."""
        if self.assumption:
            log.warning(
                "%s: %s; %s states it.",
                file,
                self.assumption,
                self.option,
                extra={"once": True},
            )


def known_sizes(
    name: str, declared: tuple[Dimension, ...], implied: ImpliedSizes
) -> InputSizes:
    """Fill in implied sizes; an open first axis, the batch, becomes 1."""
    own, sizes = implied.get(name, {}), list(declared)
    for axis, size in enumerate(declared):
        if isinstance(size, int):
            continue
        if axis in own:
            sizes[axis] = own[axis].size
        elif axis == 0:
            sizes[axis] = 1
    return InputSizes(name, declared, tuple(sizes), own)


def open_sizes_item(inputs: Sequence[InputSizes]) -> UnsupportedItem:
    """Return the question for the sizes that neither file nor weights determine."""
    open_axes: list[str] = []
    names: list[str] = []
    for item in inputs:
        for axis, size in enumerate(item.sizes):
            if not isinstance(size, int):
                open_axes.append(f"axis {axis} ({size}) of {item.name}")
                names.append(size)
    verb = "is" if len(open_axes) == 1 else "are"
    options = " ".join(item.option for item in inputs)
    unique = list(dict.fromkeys(names))
    wanted = "a number" if len(unique) == 1 else "numbers"
    why = (
        f"{' and '.join(open_axes)} {verb} open; add {options} with {wanted} for "
        f"{' and '.join(unique)}"
    )
    needs = [
        f"{axis.node} needs {axis.size}"
        for item in inputs
        for axis in item.implied.values()
    ]
    if needs:
        why += f" ({', '.join(dict.fromkeys(needs))})"
    return UnsupportedItem("DYNAMIC_SHAPE", "the inputs", why)


@dataclass(frozen=True, slots=True)
class _Requirement:
    """The size that an axis of a value must have."""

    value: str
    axis: int
    size: int


@dataclass(frozen=True, slots=True)
class _Node:
    """A node with the shapes of its values."""

    node: Message
    attrs: Mapping[str, Any]
    facts: GraphFacts

    def shape(self, index: int) -> Sizes:
        names = self.node.input
        name = names[index] if index < len(names) else ""
        return (name and self.facts.shape(name)) or ()

    def requires(self, index: int, axis: int, size: object) -> Iterator[_Requirement]:
        if isinstance(size, int) and size > 0:
            yield _Requirement(self.node.input[index], axis, size)


Rule: TypeAlias = Callable[[_Node], Iterator[_Requirement]]


def _matmul(n: _Node) -> Iterator[_Requirement]:
    a, b = n.shape(0), n.shape(1)
    if a and b:
        yield from n.requires(0, -1, b[-2] if len(b) > 1 else b[0])
        yield from n.requires(1, -2 if len(b) > 1 else 0, a[-1])


def _gemm(n: _Node) -> Iterator[_Requirement]:
    weights = n.shape(1)
    if len(weights) == 2:
        inner = weights[1 if n.attrs.get("transB", 0) else 0]
        yield from n.requires(0, 0 if n.attrs.get("transA", 0) else 1, inner)


def _conv(n: _Node) -> Iterator[_Requirement]:
    for channels in n.shape(1)[1:2]:
        if isinstance(channels, int):
            yield from n.requires(0, 1, channels * int(n.attrs.get("group", 1)))


def _as_operand(axis: int, operand: int, own: int, n: _Node) -> Iterator[_Requirement]:
    """Require of `axis` of input 0 what axis `own` of another operand has."""
    for size in n.shape(operand)[own : own + 1]:
        yield from n.requires(0, axis, size)


def _broadcast(n: _Node) -> Iterator[_Requirement]:
    """Require equal sizes; a size of 1 repeats."""
    for mine, other in ((0, 1), (1, 0)):
        pairs = zip(reversed(n.shape(mine)), reversed(n.shape(other)), strict=False)
        for place, (size, wanted) in enumerate(pairs, 1):
            if isinstance(size, str) and wanted != 1:
                yield from n.requires(mine, -place, wanted)


def _features(
    count: Callable[[Mapping[str, Any]], int], n: _Node
) -> Iterator[_Requirement]:
    """Require the number of columns that attributes of ONNX-ML have."""
    return n.requires(0, -1, count(n.attrs))


def _per_output(outputs: Callable[[Mapping[str, Any]], int]) -> Rule:
    def count(attrs: Mapping[str, Any]) -> int:
        return len(attrs.get("coefficients", ())) // max(outputs(attrs), 1)

    return partial(_features, count)


def _longest(*names: str) -> Rule:
    def count(attrs: Mapping[str, Any]) -> int:
        longest = max(len(attrs.get(name, ())) for name in names)
        return longest if longest > 1 else 0

    return partial(_features, count)


def _support_vectors(attrs: Mapping[str, Any]) -> int:
    of_classes = sum(attrs.get("vectors_per_class", ()))
    vectors = int(of_classes or attrs.get("n_supports", 0))
    return len(attrs.get("support_vectors", ())) // max(vectors, 1)


def _tree_features(attrs: Mapping[str, Any]) -> int:
    return 1 + int(max(attrs.get("nodes_featureids", ()), default=-1))


def _linear_scores(attrs: Mapping[str, Any]) -> int:
    return len(attrs.get("intercepts", ()))


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Add", "Div", "Mul", "Sub"), _broadcast),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), partial(_as_operand, 2, 1, 2)),
    "BatchNormalization": partial(_as_operand, 1, 1, 0),
    "Conv": _conv,
    "ConvTranspose": partial(_as_operand, 1, 1, 0),
    "Gemm": _gemm,
    "Imputer": _longest("imputed_value_floats", "imputed_value_int64s"),
    "LayerNormalization": partial(_as_operand, -1, 1, -1),
    "LinearClassifier": _per_output(_linear_scores),
    "LinearRegressor": _per_output(lambda attrs: int(attrs.get("targets", 1))),
    "MatMul": _matmul,
    "SVMClassifier": partial(_features, _support_vectors),
    "SVMRegressor": partial(_features, _support_vectors),
    "Scaler": _longest("offset", "scale"),
    "TreeEnsemble": partial(_features, _tree_features),
    "TreeEnsembleClassifier": partial(_features, _tree_features),
    "TreeEnsembleRegressor": partial(_features, _tree_features),
}

_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")


def implied_sizes(model: Message) -> ImpliedSizes:
    """Return the open sizes of inputs that weights of the model imply."""
    if not any(_asks(info) for info in model.graph.input):
        return {}
    symbols: dict[str, list[tuple[str, int]]] = {}
    named = onnx_package().ModelProto()
    named.CopyFrom(model)
    for info in named.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if _is_open(dim):
                dim.dim_param = dim.dim_param or f"{info.name}:{axis}"
                symbols.setdefault(dim.dim_param, []).append((info.name, axis))
    found: dict[str, dict[int, ImpliedSize]] = {}
    for symbol, size in _sizes_of_symbols(named).items():
        for name, axis in symbols.get(symbol, ()):
            found.setdefault(name, {})[axis] = size
    return found


def _asks(info: Message) -> bool:
    """Return whether a size other than that of the batch is open."""
    dims = info.type.tensor_type.shape.dim
    rest = dims[1:] if len(dims) > 1 else dims
    return any(map(_is_open, rest))


def _is_open(dim: Message) -> bool:
    return not dim.HasField("dim_value") or dim.dim_value < 0


def _sizes_of_symbols(model: Message) -> dict[str, ImpliedSize]:
    facts, found = GraphFacts(model), dict[str, ImpliedSize]()
    for node in model.graph.node:
        title = f"{node.op_type} {node.name or next(iter(node.output), '')}"
        for need in _requirements(node, facts):
            shape = facts.shape(need.value) or ()
            if not -len(shape) <= need.axis < len(shape):
                continue
            symbol = shape[need.axis]
            if not isinstance(symbol, str):
                continue
            known = found.get(symbol)
            if known is None or known.size < need.size:
                found[symbol] = ImpliedSize(need.size, title)
    return found


def _requirements(node: Message, facts: GraphFacts) -> list[_Requirement]:
    """Return the requirements of a node: none if its attributes have other types."""
    rule = _RULES.get(node.op_type)
    if rule is None or node.domain not in _DOMAINS:
        return []
    try:
        attrs = {item.name: attribute_value(item) for item in node.attribute}
        return list(rule(_Node(node, attrs, facts)))
    except (NotSupportedError, TypeError, ValueError):
        return []  # its importer states the error
