"""A call of an operator with all that determines its result.

`OperatorMeaning` is what the IR needs of an operator's definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from firmwright.base.dtypes import Array
from firmwright.base.errors import InternalError
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.base import NO_ATTRS, AttrsT, OpAttrs, typed_attrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.settings import NumericsProfile

CustomOpPredicate: TypeAlias = Callable[[str, str], bool]
"""Returns whether a backend or plug-in implements a foreign operator (domain, name)."""


def accept_no_custom_op(domain: str, name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call: input and output types, attributes, constants and profile.

    The type of an absent input is None.

    `constants[i]` is set if input i is a constant. `scopes` are the pools of the
    inputs, then of the outputs; "" leaves the choice to the planner, and () leaves all
    choices to it. With `any_weights` the code must suit all values of the weights, with
    `all_channels` it computes even channels that are constant. With `no_nan` it may
    assume that no float is NaN.
    """

    op: str
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    attrs: OpAttrs = NO_ATTRS
    constants: tuple[Constant | None, ...] = ()
    numerics: NumericsProfile = "litert"
    scopes: tuple[str, ...] = ()
    any_weights: bool = False
    all_channels: bool = False
    no_nan: bool = False

    def attributes(self, kind: type[AttrsT]) -> AttrsT:
        """Return the attributes as `kind`; raise InternalError if they are not."""
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
        """Return an input that `infer` or a pattern requires to be constant."""
        constant = self.constant(index)
        if constant is None:
            raise InternalError(f"{self.op}: input {index} is not constant")
        return constant.array()


class OperatorMeaning(Protocol):
    """What the IR itself needs of an operator's definition (`ops.opdef.OpDef`)."""

    @property
    def infer(self) -> Callable[[OpCall], tuple[TensorType, ...]]: ...

    @property
    def reference(self) -> Callable[[OpCall, Sequence[Array]], tuple[Array, ...]]: ...


MeaningTable: TypeAlias = Mapping[str, OperatorMeaning]
"""The operators by name."""
