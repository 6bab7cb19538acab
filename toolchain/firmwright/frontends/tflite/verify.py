"""Verification of a decoded model: indices, order and definitions across tables.

1. Subgraphs exist; references to them are in range, not recursive, and expand to a
   limited number of operators.
2. Tensor indices are in range; only inputs of operators may be omitted (-1).
3. A tensor is defined at most once: as a graph input, a constant, a variable or an
   output. A variable tensor that is an output counts as an output.
4. Operators read only tensors defined before them; graph outputs are defined at the
   end.
"""

from collections.abc import Iterable
from typing import NoReturn

from firmwright.base.errors import ModelError
from firmwright.base.resource_limits import OPERANDS_MAX, check_count, check_expansion
from firmwright.frontends.tflite.decoded_model import (
    NO_TENSOR,
    RawModel,
    RawNode,
    RawSubgraph,
)


def verify_raw_model(model: RawModel) -> None:
    """Raise ModelError at the first violation of the rules in the module docstring."""
    if not model.subgraphs:
        _fail(model.file, "it has no subgraph.")
    for index, subgraph in enumerate(model.subgraphs):
        _SubgraphVerifier(model.file, index, subgraph).verify()
    _verify_references(model)


class _SubgraphVerifier:
    def __init__(self, file: str, index: int, subgraph: RawSubgraph) -> None:
        self.where = f"{file}: subgraph {index}"
        self.subgraph = subgraph
        self.defined: set[int] = set()

    def verify(self) -> None:
        written = set(self.subgraph.inputs)
        for node in self.subgraph.nodes:
            written.update(node.outputs)
        for tensor in self.subgraph.tensors:
            is_state = tensor.is_variable and tensor.index not in written
            if tensor.buffer is not None or is_state:
                self.define(tensor.index, self.where)
        for index in self.subgraph.inputs:
            self.define(index, f"{self.where}, inputs")
        for node in self.subgraph.nodes:
            self.verify_node(node)
        for index in self.subgraph.outputs:
            self.read(index, f"{self.where}, outputs")

    def verify_node(self, node: RawNode) -> None:
        op = node.op if node.op.isprintable() else ascii(node.op)
        where = f"{self.where}, node {node.span.op_index} ({op})"
        operands = len(node.inputs) + len(node.outputs)
        what = "the operator has {} inputs and outputs"
        check_count(operands, OPERANDS_MAX, what, where)
        for index in node.inputs:
            if index != NO_TENSOR:
                self.read(index, where)
        for index in node.outputs:
            self.define(index, where)

    def check_index(self, index: int, where: str) -> None:
        count = len(self.subgraph.tensors)
        if not 0 <= index < count:
            _fail(where, f"tensor {index} does not exist; there are {count}.")

    def read(self, index: int, where: str) -> None:
        self.check_index(index, where)
        if index not in self.defined:
            what = f"{self.describe(index)} is read before anything has written it."
            _fail(where, what)

    def define(self, index: int, where: str) -> None:
        self.check_index(index, where)
        if index in self.defined:
            _fail(where, f"{self.describe(index)} is defined a second time.")
        self.defined.add(index)

    def describe(self, index: int) -> str:
        name = self.subgraph.tensors[index].name
        return f"tensor {index} ({name if name.isprintable() else ascii(name)})"


def _verify_references(model: RawModel) -> None:
    bodies: dict[str, tuple[int, tuple[str, ...]]] = {}
    for index, subgraph in enumerate(model.subgraphs):
        callees = tuple(_callees(model, subgraph))
        bodies[f"subgraph {index}"] = len(subgraph.nodes), callees
    check_expansion(bodies, model.file)


def _callees(model: RawModel, subgraph: RawSubgraph) -> Iterable[str]:
    for node in subgraph.nodes:
        for name, value in node.options.items():
            if name != "subgraph" and not name.endswith("subgraph_index"):
                continue
            if not isinstance(value, int) or not 0 <= value < len(model.subgraphs):
                what = f"it calls subgraph {value}, which does not exist."
                _fail(str(node.span), what)
            yield f"subgraph {value}"


def _fail(where: str, what: str) -> NoReturn:
    raise ModelError.broken(what, where)
