"""The interface of operator definitions (one module each in `ops`) and of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from firmwright.base.dtypes import Array, DType
from firmwright.base.errors import InternalError, ModelError
from firmwright.ir.core import Attrs, Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.attributes.base import NO_ATTRS, AttrsT, OpAttrs, typed_attrs
from firmwright.ir.graph.nodes import Call, TensorType, Value

CustomOpPredicate: TypeAlias = Callable[[str, str], bool]
"""Returns whether a backend or plug-in implements the foreign operator (domain, name)."""


def accept_no_custom_op(domain: str, name: str) -> bool:
    return False


NumericsProfile: TypeAlias = Literal["litert", "tflm", "onnx"]
DefinedIn: TypeAlias = Literal["both", "each", "litert", "tflm", "neither"]
"""The profiles of TFLite with an operator: both, with one result or each with its own."""


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


@dataclass(frozen=True, slots=True)
class RowWindow:
    """The input rows (axis 1 of 4) on which one output row depends, the same for every input.

    Output row r reads `window_height` input rows from `stride * r - pad_before`. Rows outside the
    input read as `pad_value`; None if the operator never reads them or treats them differently.
    `whole_inputs`, such as per-channel factors, are read completely.
    """

    window_height: int = 1
    stride: int = 1
    pad_before: int = 0
    pad_value: float | None = None
    whole_inputs: frozenset[int] = frozenset()

    def row_inputs(self, call: Call) -> tuple[Value, ...]:
        whole = {call.inputs[index] for index in self.whole_inputs}
        return tuple(value for value in call.variables if value not in whole)

    def for_bands(self, count: int) -> RowWindow:
        height = self.stride * (count - 1) + self.window_height
        return replace(self, window_height=height, stride=self.stride * count)


@dataclass(frozen=True, slots=True)
class RowReduction:
    """A reduction over all rows, computed one row at a time.

    `accumulate(call, b, x, acc)` adds rows `x` of shape (1, rows, W, C) to `acc`, which has `count`
    elements of `dtype`, initially zero. `finish(call, b, acc, y)` computes the output from `acc`.
    """

    dtype: DType
    count: int
    accumulate: Callable[[OpCall, Any, Any, Any], None]
    finish: Callable[[OpCall, Any, Any, Any], None]


SUBVIEWS_OF, SUBVIEW_OFFSETS = "subviews_of", "offsets"
"""Attributes of a call that a `Subviews` describes and that needs no code."""


@dataclass(frozen=True, slots=True)
class Subviews:
    """A data movement without a copy: tensors that are slices of one larger tensor.

    `of` is "input" if the outputs are slices of the first input, and "output" if the inputs are
    slices of the output. `offsets` are the element offsets of the slices.
    """

    of: Literal["input", "output"]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpDef:
    """One operator: type inference, numpy reference and default lowering.

    `lower` receives an `ops.kernel.Kernel` with its parameters declared. `is_view` is set if the
    output has the bytes of the input; `subviews` describes a call that needs no copy. `row_access`
    describes row-by-row computation; None means that it is impossible. `restrictions` lists
    unsupported uses.
    """

    name: str
    infer: Callable[[OpCall], tuple[TensorType, ...]]
    reference: Callable[[OpCall, Sequence[Array]], tuple[Array, ...]]
    lower: Callable[[OpCall, Any], None]
    dtypes: tuple[str, ...] = ()
    numerics: DefinedIn = "both"
    macs: Callable[[OpCall], int] = lambda call: 0
    is_view: bool = False
    subviews: Callable[[OpCall], Subviews | None] = lambda call: None
    row_access: Callable[[OpCall], RowWindow | RowReduction | None] = lambda call: None
    restrictions: str = ""

    @property
    def profiles(self) -> tuple[NumericsProfile, ...]:
        return tuple(p for p in ("litert", "tflm") if self.numerics in ("both", "each", p))


OpTable: TypeAlias = Mapping[str, OpDef]
