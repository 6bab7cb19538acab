"""The tensors and nodes of a subgraph that replaces another one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from firmwright.base.dtypes import Array
from firmwright.frontends.tflite.decoded_model import RawNode, RawSubgraph, RawTensor
from firmwright.ir.core import Attr


@dataclass(slots=True)
class GraphRewriter:
    """Collects the nodes of the new subgraph; its first tensors are `graph`'s."""

    graph: RawSubgraph
    tensors: list[RawTensor] = field(init=False)
    nodes: list[RawNode] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tensors = list(self.graph.tensors)

    def tensor(
        self,
        role: str,
        dtype: str,
        shape: tuple[int, ...],
        data: bytes | None = None,
    ) -> int:
        """Add a tensor without quantization; `role` begins its name."""
        name = f"{self.graph.name or 'graph'}/{role}_{len(self.tensors)}"
        return self.add(RawTensor(0, name, shape, dtype, buffer=data))

    def add(self, tensor: RawTensor) -> int:
        """Add a tensor with the next index, which is returned."""
        index = len(self.tensors)
        self.tensors.append(replace(tensor, index=index))
        return index

    def constant(self, role: str, values: Array) -> int:
        """Add a constant of the type of `values`."""
        return self.tensor(role, values.dtype.name, values.shape, values.tobytes())

    def emit(
        self, source: RawNode, op: str, inputs: Sequence[int], **options: Attr
    ) -> None:
        """Append an operator with the results and the place of `source`."""
        node = replace(
            source, op=op, inputs=tuple(inputs), options=options, custom_options=b""
        )
        self.nodes.append(node)

    def subgraph(self) -> RawSubgraph:
        return replace(self.graph, tensors=tuple(self.tensors), nodes=tuple(self.nodes))
