"""Updates of one element of a list, as in a Keras loop over time.

TensorFlow's converter writes them as a concatenation of the elements before, the new
one, and the elements after; they become a DYNAMIC_UPDATE_SLICE.
"""

from dataclasses import dataclass, replace

import numpy as np

from firmwright.frontends.tflite.decoded_model import RawNode, RawSubgraph


def merge_list_updates(graph: RawSubgraph) -> RawSubgraph:
    makers: dict[int, RawNode] = {}
    for node in graph.nodes:
        makers.update(dict.fromkeys(node.outputs, node))
    merger = _Merger(graph, makers)
    for node in graph.nodes:
        if node.op == "CONCATENATION" and len(node.inputs) == 3:
            merger.merge(node)
    nodes: list[RawNode] = []
    used = set(graph.outputs)
    for node in graph.nodes:
        merged = merger.nodes[node.outputs[0]] if node.outputs else node
        nodes.append(merged)
        used.update(merged.inputs)
    kept: list[RawNode] = []
    for node in nodes:
        if node.op != "SLICE" or used.issuperset(node.outputs):
            kept.append(node)
    return replace(graph, nodes=tuple(kept))


@dataclass(frozen=True, slots=True)
class _Merger:
    """`nodes` maps tensors to nodes that compute them; `merge` replaces elements."""

    graph: RawSubgraph
    nodes: dict[int, RawNode]

    def merge(self, node: RawNode) -> None:
        head, item, tail = node.inputs
        before = self._inputs(head, "SLICE")
        after = self._inputs(tail, "SLICE")
        if len(before) != 3 or len(after) != 3 or before[0] != after[0]:
            return
        sizes = self._inputs(before[2], "CONCATENATION")
        begins = self._inputs(after[1], "CONCATENATION")
        if len(sizes) != 2 or len(begins) != 2:
            return
        if not self._is_next(sizes[0], begins[0]):
            return
        constants = ((before[1], 0), (begins[1], 0), (sizes[1], -1), (after[2], -1))
        uses = sum(other.inputs.count(before[2]) for other in self.graph.nodes)
        if uses != 1:
            return
        if not all(self._is_filled(index, value) for index, value in constants):
            return
        start = replace(self.nodes[before[2]], inputs=(sizes[0], begins[1]))
        self.nodes[before[2]] = start
        operands = (before[0], item, before[2])
        update = replace(node, op="DYNAMIC_UPDATE_SLICE", inputs=operands, options={})
        self.nodes[node.outputs[0]] = update

    def _inputs(self, index: int, *ops: str) -> tuple[int, ...]:
        node = self.nodes.get(index)
        return node.inputs if node is not None and node.op in ops else ()

    def _is_next(self, place: int, following: int) -> bool:
        addends = self._inputs(self._scalar(following), "ADD")
        others = [index for index in addends if index != self._scalar(place)]
        return len(addends) == 2 and len(others) == 1 and self._is_filled(others[0], 1)

    def _scalar(self, index: int) -> int:
        while inputs := self._inputs(index, "RESHAPE", "EXPAND_DIMS"):
            index = inputs[0]
        return index

    def _is_filled(self, index: int, value: int) -> bool:
        tensor = self.graph.tensors[index]
        if tensor.buffer is None or tensor.dtype != "int32":
            return False
        return bool((np.frombuffer(tensor.buffer, "<i4") == value).all())
