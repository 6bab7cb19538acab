"""Remedies for nodes that `quantize` leaves in floats.

Exporters write a function without an operator of its own as several nodes, which are
recognized by their shape: GELU by erf or tanh, normalizations over a mean, softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from firmwright.base.operator_texts import read_operator_texts
from firmwright.oracle.onnx_quantizer import PreparedNode

_PATTERNS = read_operator_texts(__file__, "patterns")
_OPERATORS = read_operator_texts(__file__, "operators")
_DEPTH_MAX = 8
"""No pattern has a longer path between two of its nodes."""
Members = list[PreparedNode]


@dataclass(frozen=True)
class _Graph:
    """The nodes of a model with the maker and the readers of each result."""

    nodes: Sequence[PreparedNode]
    inputs: Collection[str]
    makers: dict[str, PreparedNode] = field(init=False, default_factory=dict)
    readers: dict[str, list[PreparedNode]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.nodes:
            self.makers[node.result] = node
            for name in dict.fromkeys(node.inputs):
                self.readers.setdefault(name, []).append(node)

    def variables(self, node: PreparedNode) -> list[str]:
        """Return the inputs that are no constants."""
        variables: list[str] = []
        for name in dict.fromkeys(node.inputs):
            if name in self.makers or name in self.inputs:
                variables.append(name)
        return variables

    def made_by(self, name: str, *ops: str) -> PreparedNode | None:
        """Return the node that computes `name`, if it is one of `ops`."""
        maker = self.makers.get(name)
        return maker if maker is not None and maker.op in ops else None

    def operand(self, node: PreparedNode, *ops: str) -> PreparedNode | None:
        """Return the first operand of the node that one of `ops` computes."""
        found = (self.made_by(name, *ops) for name in node.inputs)
        return next(filter(None, found), None)

    def reader(self, node: PreparedNode, *ops: str) -> PreparedNode | None:
        """Return the first node among `ops` that reads the result of a node."""
        for reader in self.readers.get(node.result, ()):
            if reader.op in ops:
                return reader
        return None

    def between(self, start: str, end: PreparedNode) -> Members:
        """Return the nodes on the paths from the value `start` to the result `end`."""
        after = self._reached([start], lambda name: self.readers.get(name, ()))
        before = {end.result} | self._reached([end.result], self._operand_makers)
        return [self.makers[name] for name in sorted(after & before)]

    def _operand_makers(self, name: str) -> Members:
        names = self.makers[name].inputs if name in self.makers else ()
        return [self.makers[operand] for operand in names if operand in self.makers]

    def _reached(
        self, names: Iterable[str], step: Callable[[str], Iterable[PreparedNode]]
    ) -> set[str]:
        """Return the results that at most `_DEPTH_MAX` steps lead to."""
        found: set[str] = set()
        current = set(names)
        for _ in range(_DEPTH_MAX):
            following: set[str] = set()
            for name in current:
                following.update(node.result for node in step(name))
            current = following - found
            found |= current
        return found


def find_remedies(
    nodes: Sequence[PreparedNode], inputs: Collection[str]
) -> Mapping[str, str]:
    """Return remedies by the results of nodes; `inputs` are those of the model."""
    graph = _Graph(nodes, inputs)
    remedies: dict[str, str] = {}
    for name, find in _FINDERS.items():
        for members in find(graph):
            for node in members:
                remedies.setdefault(node.result, _PATTERNS[name])
    for node in nodes:
        if node.op in _OPERATORS and _applies(graph, node):
            remedies.setdefault(node.result, _OPERATORS[node.op])
    return remedies


def _applies(graph: _Graph, node: PreparedNode) -> bool:
    """Return whether the remedy of an operator helps with this node."""
    match node.op:
        case "Div":
            variables = graph.variables(node)
            return variables == [node.inputs[0]] and len(node.inputs) == 2
        case "Max" | "Min":
            return len(graph.variables(node)) < len(node.inputs)
    return True


def _gelu(graph: _Graph) -> Iterator[Members]:
    """Find x * (1 + erf(x / √2)) / 2, and the form with tanh of a polynomial."""
    for node in graph.nodes:
        if node.op not in ("Erf", "Tanh"):
            continue
        plus_one = graph.reader(node, "Add")
        product = plus_one and graph.reader(plus_one, "Mul")
        if product and len(graph.variables(product)) == 1:  # the half
            product = graph.reader(product, "Mul")
        argument = graph.operand(node, "Div", "Mul")
        if not (plus_one and product and argument):
            continue
        if len(graph.variables(plus_one)) != 1:
            continue
        for x in _gelu_operands(graph, node, product):
            members = graph.between(x, product)
            if node in members:
                last = graph.reader(product, "Mul")
                has_half = last is not None and len(graph.variables(last)) == 1
                yield [*members, last] if last and has_half else members


def _gelu_operands(
    graph: _Graph, node: PreparedNode, product: PreparedNode
) -> Iterator[str]:
    """Yield the value x of a GELU: an operand of the product, or what it halves."""
    for name in graph.variables(product):
        half = graph.made_by(name, "Mul")
        names = [name] if half is None else [name, *graph.variables(half)]
        for x in names:
            members = graph.between(x, node)
            cubes = [item for item in members if item.op in ("Add", "Pow")]
            if members and (node.op == "Erf" or cubes):
                yield x
                return


def _layer_normalization(graph: _Graph) -> Iterator[Members]:
    """Find (x - mean(x)) / sqrt(mean((x - mean(x))²) + epsilon)."""
    for root in graph.nodes:
        if root.op != "Sqrt":
            continue
        square = _mean_of_squares(graph, root)
        centered = square and graph.operand(square, "Sub")
        quotient = graph.reader(root, "Div", "Reciprocal")
        if not (centered and quotient):
            continue
        mean = graph.operand(centered, "ReduceMean")
        if mean is not None and mean.inputs[0] == centered.inputs[0]:
            yield graph.between(centered.inputs[0], quotient)


def _rms_normalization(graph: _Graph) -> Iterator[Members]:
    """Find x / sqrt(mean(x²) + epsilon)."""
    for root in graph.nodes:
        if root.op != "Sqrt":
            continue
        square = _mean_of_squares(graph, root)
        quotient = graph.reader(root, "Div", "Reciprocal")
        if square and quotient:
            x = square.inputs[0]
            product = graph.reader(quotient, "Mul")
            end = quotient
            if quotient.op == "Reciprocal" and product and x in product.inputs:
                end = product
            yield graph.between(x, end)


def _mean_of_squares(graph: _Graph, root: PreparedNode) -> PreparedNode | None:
    """Return the node of the squares whose mean, plus a constant, is under a root."""
    total = graph.operand(root, "Add")
    mean = total and graph.operand(total, "ReduceMean")
    square = mean and graph.operand(mean, "Pow", "Mul")
    if square and len(graph.variables(square)) == 1:
        return square
    return None


def _softmax(graph: _Graph) -> Iterator[Members]:
    """Find exp(x) / sum(exp(x)), also with the largest x subtracted before."""
    for node in graph.nodes:
        if node.op != "Exp":
            continue
        total = graph.reader(node, "ReduceSum")
        quotient = total and graph.reader(total, "Div")
        if not (total and quotient and node.result in quotient.inputs):
            continue
        start = node.inputs[0]
        shifted = graph.made_by(start, "Sub")
        largest = shifted and graph.operand(shifted, "ReduceMax")
        if shifted and largest and largest.inputs[0] == shifted.inputs[0]:
            start = shifted.inputs[0]
        yield graph.between(start, quotient)


_FINDERS: Mapping[str, Callable[[_Graph], Iterator[Members]]] = {
    "gelu": _gelu,
    "layer_normalization": _layer_normalization,
    "rms_normalization": _rms_normalization,
    "softmax": _softmax,
}
