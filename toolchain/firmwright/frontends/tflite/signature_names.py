"""Names of inputs and outputs from the signature of a file that TensorFlow wrote.

TensorFlow's converter calls these tensors `serving_default_image:0` and
`StatefulPartitionedCall_1:0`; the names that the author chose are in the signature.
"""

from dataclasses import replace
from typing import Final

from firmwright.frontends.tflite.decoded_model import RawModel, RawSubgraph

GENERATED: Final = ("serving_default_", "StatefulPartitionedCall", "PartitionedCall")
"""What the names begin with that the converter makes up."""


def name_by_signatures(raw: RawModel) -> RawModel:
    """Return the model in which such tensors have the names of their signature."""
    graphs = list(raw.subgraphs)
    for signature in raw.signatures:
        graph = graphs[signature.subgraph]
        named = (*signature.inputs, *signature.outputs)
        graphs[signature.subgraph] = _renamed(graph, named)
    return replace(raw, subgraphs=tuple(graphs))


def names_in_file(raw: RawModel, subgraph: int) -> dict[str, str]:
    """Return the file's name of each tensor that has another one by a signature."""
    own = raw.subgraphs[subgraph].tensors
    ours = name_by_signatures(raw).subgraphs[subgraph].tensors
    names: dict[str, str] = {}
    for before, after in zip(own, ours, strict=True):
        if before.name != after.name:
            names[after.name] = before.name
    return names


def _renamed(graph: RawSubgraph, named: tuple[tuple[str, int], ...]) -> RawSubgraph:
    tensors = list(graph.tensors)
    taken = {tensor.name for tensor in tensors}
    for name, index in named:
        is_generated = tensors[index].name.startswith(GENERATED)
        if is_generated and name and name not in taken:
            tensors[index] = replace(tensors[index], name=name)
            taken.add(name)
    return replace(graph, tensors=tuple(tensors))
