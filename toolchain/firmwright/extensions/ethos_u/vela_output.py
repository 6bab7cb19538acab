"""Operators `ethos-u` of models that Vela has compiled: their memory becomes options.

Such an operator reads a command stream, weights, one or two scratch tensors that
nothing writes, and its inputs. The metadata OfflineMemoryAllocation has the offsets of
tensors in the scratch memory: int32 numbers, of which the first three are version,
subgraphs and number of tensors.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.errors import ModelError
from firmwright.frontends.tflite.decoded_model import (
    RawModel,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.rewrites import ModelRewrite
from firmwright.ir.core import Attrs

ETHOS_U = "custom:ethos-u"
_METADATA = "OfflineMemoryAllocation"
_HEADER = 3
_SCRATCH = slice(2, 4)


def describe_npu_memory(model: RawModel) -> RawModel:
    """Replace the scratch inputs of operators `ethos-u` by options."""
    if not any(node.op == ETHOS_U for graph in model.subgraphs for node in graph.nodes):
        return model
    data = model.metadata.get(_METADATA, b"")
    numbers = [int(n) for n in np.frombuffer(data[: len(data) // 4 * 4], "<i4")]
    graphs = tuple(
        _graph(graph, numbers[_HEADER:], model.file) for graph in model.subgraphs
    )
    return replace(model, subgraphs=graphs)


def _graph(graph: RawSubgraph, offsets: Sequence[int], file: str) -> RawSubgraph:
    nodes = (
        _node(node, graph.tensors, offsets, file) if node.op == ETHOS_U else node
        for node in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


def _node(
    node: RawNode, tensors: Sequence[RawTensor], offsets: Sequence[int], file: str
) -> RawNode:
    scratch = [
        tensors[index] for index in node.inputs[_SCRATCH] if 0 <= index < len(tensors)
    ]
    inputs = (*node.inputs[: _SCRATCH.start], *node.inputs[_SCRATCH.stop :])
    placed = (*inputs[_SCRATCH.start :], *node.outputs)
    is_known = all(
        0 <= index < len(offsets) and offsets[index] >= 0 for index in placed
    )
    if len(scratch) < 2 or not is_known:
        raise ModelError.broken(
            f"the operator ethos-u lacks scratch tensors, or offsets in {_METADATA}.",
            where=file,
        )
    arena, fast = scratch
    is_shared = arena.index == fast.index or offsets[arena.index] == offsets[fast.index]
    options: Attrs = {
        "arena_bytes": arena.shape[0],
        "fast_bytes": 0 if is_shared else fast.shape[0],
        "offsets": tuple(offsets[index] for index in placed),
    }
    return replace(node, inputs=inputs, options=options)


MODEL_REWRITES: tuple[ModelRewrite, ...] = (describe_npu_memory,)
