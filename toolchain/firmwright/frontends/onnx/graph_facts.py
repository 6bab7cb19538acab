"""Types and constants of a model's values, by shape inference of the package onnx."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from firmwright.base.dtypes import Array
from firmwright.frontends.onnx.protobuf import Message, dtype_name, onnx_package
from firmwright.frontends.onnx.shape_inference import bodies, infer_shapes

Sizes: TypeAlias = tuple[int | str | None, ...]
"""The shape of a tensor: numbers, names of sizes, and None for unknown ones."""


@dataclass
class GraphFacts:
    """Types and constants of a model's values.

    Without a model, as in the body of a function, nothing is known.
    """

    model: Message | None = None

    @cached_property
    def names(self) -> set[str]:
        """Return the names of all values."""
        names: set[str] = set()
        for graph in () if self.model is None else _graphs(self.model.graph):
            for item in (*graph.input, *graph.initializer):
                names.add(item.name)
            for node in graph.node:
                names.update(node.output)
        return names

    @cached_property
    def _types(self) -> Mapping[str, Message]:
        if self.model is None:
            return {}
        shapes = onnx_package().shape_inference
        try:
            model = infer_shapes(self.model)
        except (RuntimeError, ValueError, shapes.InferenceError):
            model = self.model
        types: dict[str, Message] = {}
        for graph in _graphs(model.graph):
            for info in (*graph.value_info, *graph.input, *graph.output):
                types[info.name] = info.type.tensor_type
            for tensor in graph.initializer:
                info = onnx_package().helper.make_tensor_type_proto(
                    tensor.data_type, tensor.dims
                )
                types[tensor.name] = info.tensor_type
        return types

    @cached_property
    def _constants(self) -> Mapping[str, Message]:
        tensors: dict[str, Message] = {}
        for graph in () if self.model is None else _graphs(self.model.graph):
            tensors.update((item.name, item) for item in graph.initializer)
            for node in graph.node:
                for item in node.attribute:
                    if node.op_type == "Constant" and item.name == "value":
                        tensors[node.output[0]] = item.t
        return tensors

    def shape(self, name: str) -> Sizes | None:
        kind = self._types.get(name)
        if kind is None or not kind.HasField("shape"):
            return None
        sizes: list[int | str | None] = []
        for dim in kind.shape.dim:
            is_fixed = dim.HasField("dim_value")
            sizes.append(dim.dim_value if is_fixed else dim.dim_param or None)
        return tuple(sizes)

    def dtype(self, name: str) -> str:
        """Return the element type; float32, which most are, if it is unknown."""
        kind = self._types.get(name)
        return dtype_name(kind.elem_type) if kind and kind.elem_type else "float32"

    def constant(self, name: str) -> Array | None:
        tensor = self._constants.get(name)
        return None if tensor is None else onnx_package().numpy_helper.to_array(tensor)


def _graphs(graph: Message) -> Iterator[Message]:
    """Yield a graph and the bodies of its nodes."""
    yield graph
    for node in graph.node:
        for item in node.attribute:
            for body in bodies(item):
                yield from _graphs(body)
