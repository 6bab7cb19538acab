"""TensorFlow's tensor lists, as in a converted Keras loop over time, become tensors.

A list of n elements of one shape is a tensor [n, *shape], which loops and branches pass
on. The converter writes the operators of lists as those of TensorFlow itself (Flex):

    TensorListReserve(shape, n)        zeros [n, *shape]
    TensorListFromTensor(x, shape)     x
    TensorListGetItem(list, i, shape)  list[i]
    TensorListSetItem(list, i, item)   list, with `item` at i
    TensorListStack(list, shape)       list

Semantics: TensorFlow's list kernels, whose elements are zeros until they are set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from firmwright.frontends.tflite.decoded_model import (
    NO_TENSOR,
    RawModel,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.element_types import find_computed_dtype
from firmwright.frontends.tflite.graph_rewriter import GraphRewriter
from firmwright.ir.core import Attrs

ListKey = tuple[int, int]
"""Indices of the subgraph and of the tensor that is a list."""
_LIST = "variant"
_FLEX = "custom:FlexTensorList"
_OPERANDS = {"Reserve": 2, "FromTensor": 2, "GetItem": 3, "SetItem": 3, "Stack": 2}


def lower_tensor_lists(model: RawModel) -> RawModel:
    """Return the model without lists; unchanged if one of them cannot be a tensor."""
    if not has_tensor_lists(model):
        return model
    if not all(map(_is_known, _nodes(model))):
        return model
    tensors = _ListTypes(model).tensors()
    if tensors is None:
        return model
    graphs: list[RawSubgraph] = []
    for index, graph in enumerate(model.subgraphs):
        graphs.append(_GraphLowering(index, GraphRewriter(graph), tensors).lower())
    return replace(model, subgraphs=tuple(graphs))


def has_tensor_lists(model: RawModel) -> bool:
    return any(map(_list_operator, _nodes(model)))


def _nodes(model: RawModel) -> Iterator[RawNode]:
    for graph in model.subgraphs:
        yield from graph.nodes


def _is_known(node: RawNode) -> bool:
    operator = _list_operator(node)
    if not operator or operator not in _OPERANDS:
        return not operator
    places = (*node.inputs, *node.outputs)
    return len(places) == _OPERANDS[operator] + 1 and NO_TENSOR not in places


def _list_operator(node: RawNode) -> str:
    """Return `SetItem` of custom:FlexTensorListSetItem, "" of other operators."""
    return node.op.removeprefix(_FLEX) if node.op.startswith(_FLEX) else ""


@dataclass(slots=True)
class _ListTypes:
    """Finds the type of each list by what is put in or taken out, in all subgraphs.

    `parents` joins the tensors that are one list, such as the operand of a loop, the
    parameters of its subgraphs and its result; `examples` are tensors of the type of
    such a list, as (length, element).
    """

    model: RawModel
    parents: dict[ListKey, ListKey] = field(default_factory=dict)
    examples: dict[ListKey, list[RawTensor]] = field(default_factory=dict)

    def tensors(self) -> dict[ListKey, RawTensor] | None:
        """Return the tensor that each list becomes; None if types are unknown."""
        for index, graph in enumerate(self.model.subgraphs):
            for node in graph.nodes:
                self._join_subgraphs(index, node)
                if _list_operator(node) == "SetItem":
                    self._join((index, node.inputs[0]), (index, node.outputs[0]))
        for index, graph in enumerate(self.model.subgraphs):
            for node in graph.nodes:
                self._note_example(index, node)
        lists: dict[ListKey, RawTensor] = {}
        for index, graph in enumerate(self.model.subgraphs):
            for tensor in graph.tensors:
                if tensor.dtype == _LIST:
                    kind = self._type((index, tensor.index), tensor)
                    if kind is None:
                        return None
                    lists[index, tensor.index] = kind
        return lists

    def _join_subgraphs(self, index: int, node: RawNode) -> None:
        graphs = self.model.subgraphs
        operands = node.inputs[1:] if node.op == "IF" else node.inputs
        runs: list[int] = []
        for name in ("then", "else", "cond", "body"):
            if f"{name}_subgraph_index" in node.options:
                runs.append(int(str(node.options[f"{name}_subgraph_index"])))
        for run in runs:
            self._join_all(index, operands, run, graphs[run].inputs)
        for run in runs[1:] if node.op == "WHILE" else runs:
            self._join_all(index, node.outputs, run, graphs[run].outputs)
        if node.op == "WHILE":
            self._join_all(index, operands, index, node.outputs)

    def _join_all(
        self, first: int, these: Sequence[int], second: int, those: Sequence[int]
    ) -> None:
        for this, that in zip(these, those, strict=False):
            self._join((first, this), (second, that))

    def _join(self, first: ListKey, second: ListKey) -> None:
        self.parents[self._root(first)] = self._root(second)

    def _root(self, key: ListKey) -> ListKey:
        while (parent := self.parents.get(key, key)) != key:
            key = parent
        return key

    def _note_example(self, index: int, node: RawNode) -> None:
        tensors = self.model.subgraphs[index].tensors
        match _list_operator(node):
            case "SetItem":
                item = tensors[node.inputs[2]]
                place, kind = node.inputs[0], replace(item, shape=(1, *item.shape))
            case "GetItem":
                item = tensors[node.outputs[0]]
                place, kind = node.inputs[0], replace(item, shape=(1, *item.shape))
            case "Stack":
                place, kind = node.inputs[0], tensors[node.outputs[0]]
            case "FromTensor":
                place, kind = node.outputs[0], tensors[node.inputs[0]]
            case _:
                return
        self.examples.setdefault(self._root((index, place)), []).append(kind)

    def _type(self, key: ListKey, tensor: RawTensor) -> RawTensor | None:
        examples = self.examples.get(self._root(key), [])
        kinds = {(item.dtype, len(item.shape)) for item in examples}
        if len(kinds) != 1 or find_computed_dtype(examples[0].dtype) is None:
            return None
        shapes = np.array([item.shape for item in examples])
        shape = tuple(map(int, shapes.max(axis=0)))
        return replace(tensor, dtype=examples[0].dtype, shape=shape)


@dataclass(slots=True)
class _GraphLowering:
    """Replaces the operators of lists in subgraph `index` by those of tensors.

    `lists` are the tensors that lists become, `same` maps a list to the tensor that it
    was made from, and the tensor of a whole list to the list.
    """

    index: int
    rewriter: GraphRewriter
    lists: dict[ListKey, RawTensor]
    same: dict[int, int] = field(default_factory=dict)

    def lower(self) -> RawSubgraph:
        graph = self.rewriter.graph
        for index in range(len(graph.tensors)):
            tensor = self.lists.get((self.index, index))
            if tensor is not None:
                self.rewriter.tensors[index] = tensor
        for node in graph.nodes:
            places = tuple(self.same.get(index, index) for index in node.inputs)
            self._lower_node(replace(node, inputs=places))
        outputs = tuple(self.same.get(index, index) for index in graph.outputs)
        return replace(self.rewriter.subgraph(), outputs=outputs)

    def _lower_node(self, node: RawNode) -> None:
        match _list_operator(node):
            case "Reserve":
                self._reserve(node)
            case "FromTensor" | "Stack":
                self.same[node.outputs[0]] = node.inputs[0]
            case "GetItem":
                operands = node.inputs[:2]
                self.rewriter.emit(node, "GATHER", operands, axis=0, batch_dims=0)
            case "SetItem":
                self._set_item(node)
            case _:
                self.rewriter.nodes.append(node)

    def _reserve(self, node: RawNode) -> None:
        kind = self.rewriter.tensors[node.outputs[0]]
        dtype = find_computed_dtype(kind.dtype)
        assert dtype is not None, "ensured by _ListTypes"
        sizes = [self._number(size) for size in kind.shape[1:]]
        dims = self._pack(node, [node.inputs[1], *sizes])
        zero = self.rewriter.constant("list_zero", np.zeros((), dtype.np))
        self.rewriter.emit(node, "FILL", (dims, zero))

    def _set_item(self, node: RawNode) -> None:
        items, place, item = node.inputs
        kind = self.rewriter.tensors[item]
        row = self.rewriter.tensor("list_item", kind.dtype, (1, *kind.shape))
        zero = self._number(0)
        source = replace(node, outputs=(row,))
        self.rewriter.emit(source, "EXPAND_DIMS", (item, zero))
        rank = len(self.rewriter.tensors[items].shape)
        start = self._pack(node, [place, *[zero] * (rank - 1)])
        self.rewriter.emit(node, "DYNAMIC_UPDATE_SLICE", (items, row, start))

    def _pack(self, node: RawNode, numbers: Sequence[int]) -> int:
        packed = self.rewriter.tensor("list_place", "int32", (len(numbers),))
        source = replace(node, outputs=(packed,))
        options: Attrs = {"values_count": len(numbers), "axis": 0}
        self.rewriter.emit(source, "PACK", numbers, **options)
        return packed

    def _number(self, value: int) -> int:
        return self.rewriter.constant("list_number", np.array(value, np.int32))
