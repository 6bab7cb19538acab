"""A call of an operator with all that determines its result, and what the IR needs of operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from firmwright.base.dtypes import Array
from firmwright.base.errors import InternalError, ModelError
from firmwright.ir.core import Attrs, Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.attributes.base import NO_ATTRS, AttrsT, OpAttrs, typed_attrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.settings import NumericsProfile

CustomOpPredicate: TypeAlias = Callable[[str, str], bool]
"""Returns whether a backend or plug-in implements the foreign operator (domain, name)."""


def accept_no_custom_op(domain: str, name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call: input types (None if absent), output types, attributes, constants and profile.

    `constants[i]` is set if input i is a constant. `scopes` are the pools of the inputs, then of
    the outputs; "" leaves the choice to the planner, and () leaves all choices to it. With
    `any_weights` the code must suit all values of the weights, with `all_channels` it computes even
    channels that are constant.
    """

    op: str
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    attrs: Attrs = NO_ATTRS
    constants: tuple[Constant | None, ...] = ()
    numerics: NumericsProfile = "litert"
    scopes: tuple[str, ...] = ()
    any_weights: bool = False
    all_channels: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.attrs, OpAttrs):
            object.__setattr__(self, "attrs", attrs_from_mapping(self.op, self.attrs))

    def attributes(self, kind: type[AttrsT]) -> AttrsT:
        """Return the attributes, which are of class `kind`; raise InternalError otherwise."""
        return typed_attrs(self.op, self.attrs, kind)

    def input_scope(self, index: int) -> str:
        """Return the pool of an input, or "" if the planner chooses it."""
        return self.scopes[index] if index < len(self.inputs) and self.scopes else ""

    def input(self, index: int) -> TensorType:
        """Return the type of a required input; raise InternalError if it is absent."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise InternalError(f"{self.op} has no input {index}")
        return tensor

    def has_input(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    @property
    def output(self) -> TensorType:
        return self.outputs[0]

    def constant(self, index: int) -> Constant | None:
        return self.constants[index] if index < len(self.constants) else None

    def constant_array(self, index: int) -> Array:
        """Return the value of an input that `infer` or a pattern requires to be constant."""
        constant = self.constant(index)
        if constant is None:
            raise InternalError(f"{self.op}: input {index} is not constant")
        return constant.array()

    def int_attr(self, name: str, default: int | None = None) -> int:
        value = self.attrs.get(name, default)
        if not isinstance(value, int):
            raise self._wrong(name, "an integer")
        return value

    def float_attr(self, name: str) -> float:
        value = self.attrs.get(name)
        if not isinstance(value, float):
            raise self._wrong(name, "a float")
        return value

    def ints_attr(self, name: str) -> tuple[int, ...]:
        value = self.attrs.get(name)
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise self._wrong(name, "a list of integers")
        return tuple(int(item) for item in value)  # type: ignore[arg-type]  # checked above

    def str_attr(self, name: str, default: str = "") -> str:
        return str(self.attrs.get(name, default))

    def _wrong(self, name: str, kind: str) -> ModelError:
        """Return the error about an attribute that is absent or of another kind."""
        found = f"is {self.attrs[name]!r}" if name in self.attrs else "is missing"
        return ModelError(f"the attribute {name} of {self.op} {found}, expected {kind}.")


class OperatorMeaning(Protocol):
    """The part of an operator's definition (`ops.opdef.OpDef`) that the IR itself needs."""

    @property
    def infer(self) -> Callable[[OpCall], tuple[TensorType, ...]]: ...

    @property
    def reference(self) -> Callable[[OpCall, Sequence[Array]], tuple[Array, ...]]: ...


MeaningTable: TypeAlias = Mapping[str, OperatorMeaning]
"""The operators by name."""
