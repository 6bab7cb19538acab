"""The interface between the ONNX importer and the importers of operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from firmwright.base.dtypes import Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.call_emitter import (
    CallEmitter,
    ConstantValue,
    OnnxValue,
    dtype_of,
    shape_of,
)
from firmwright.frontends.onnx.protobuf import Message

Results: TypeAlias = Sequence[OnnxValue]
Importer: TypeAlias = Callable[["NodeContext"], "Results | OnnxValue"]


@dataclass(frozen=True, slots=True)
class NodeContext:
    """A node with its attributes, its inputs (None if omitted), the opset and the call emitter.

    `body(graph, bound)` imports a subgraph in place and returns its outputs.
    """

    node: Message
    attrs: Mapping[str, Any]
    inputs: tuple[OnnxValue | None, ...]
    opset: int
    emit: CallEmitter
    body: Callable[[Message, Mapping[str, OnnxValue]], list[OnnxValue]]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs, "" for omitted ones."""
        return tuple(self.node.output)

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> OnnxValue:
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise NotSupportedError(f"a node without input {index}")
        return value

    def optional(self, index: int) -> OnnxValue | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def shape(self, index: int) -> tuple[int, ...]:
        return shape_of(self.input(index))

    def dtype(self, index: int) -> DType:
        return dtype_of(self.input(index))

    def array(self, index: int, what: str) -> Array:
        """Return an input that must be constant; `what` names it in the error."""
        value = self.input(index)
        if not isinstance(value, ConstantValue):
            raise NotSupportedError(f"{what} that are not constant")
        return value.array

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        return tuple(int(n) for n in np.asarray(self.array(index, what)).reshape(-1))

    def axis(self, default: int | None = None, name: str = "axis", rank: int | None = None) -> int:
        """Return an axis attribute, counted from 0; `rank` defaults to that of input 0."""
        axis = self.attr(name, default)
        size = len(self.shape(0)) if rank is None else rank
        if not isinstance(axis, int) or not -size <= axis < size:
            raise NotSupportedError(f"axis {axis} of {size} dimensions")
        return axis % size
