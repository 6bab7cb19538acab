"""Interface of operator importers: a node, and calls, evaluated on constant inputs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from firmwright.base.dtypes import Array, DType, find_dtype
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.onnx.integer_formulas import rounding, truncation
from firmwright.frontends.onnx.protobuf import Message
from firmwright.ir.core import Constant, Span
from firmwright.ir.graph import Call, OpCall, TensorType, Value, unique_name
from firmwright.ir.graph.attributes.base import NO_ATTRS, OpAttrs, check_attrs
from firmwright.ir.graph.attributes.movement import (
    AxisAttrs,
    BroadcastAttrs,
    DynamicGatherAttrs,
    GatherAttrs,
    SplitAttrs,
    StridedSliceAttrs,
    TransposeAttrs,
)
from firmwright.ir.graph.attributes.values import (
    ExpressionAttrs,
    ReductionAttrs,
    ReductionStep,
)
from firmwright.ops.expression_language import INPUT_NAMES
from firmwright.ops.formula_texts import substitute_names
from firmwright.ops.opdef import OpTable


@dataclass(frozen=True, slots=True, eq=False)
class ConstantValue:
    """A value known at compile time; its constant in the module is called `name`."""

    array: Array
    name: str
    quantization: Quantization | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.array.shape)

    @property
    def type(self) -> TensorType:
        dtype = supported_dtype(self.array.dtype.name)
        return TensorType(self.shape, dtype, self.quantization)


OnnxValue: TypeAlias = Value | ConstantValue


def supported_dtype(name: str) -> DType:
    """Return the element type called `name`, or raise NotSupportedError."""
    dtype = find_dtype(name)
    if dtype is None:
        raise NotSupportedError(f"element type {name}")
    return dtype


@dataclass(frozen=True, slots=True)
class DataLength:
    """Axis of a tensor of greatest length, and the number of its elements in use."""

    axis: int
    count: OnnxValue


def vector_shape(count: int, axis: int, rank: int) -> tuple[int, ...]:
    return tuple(count if k == axis else 1 for k in range(rank))


@dataclass(slots=True)
class CallEmitter:
    """Collects calls and constants; `span` and `stem` belong to the current node."""

    ops: OpTable
    calls: list[Call] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    span: Span = Span("")
    stem: str = ""
    lengths: dict[str, DataLength] = field(default_factory=dict)
    """The values whose length depends on the data, by name."""
    _known: dict[int, tuple[ConstantValue, Value]] = field(default_factory=dict)

    def const(self, array: Array, part: str = "constant") -> ConstantValue:
        return ConstantValue(np.asarray(array), f"{self.stem}/{part}")

    def value(self, tensor: OnnxValue) -> Value:
        """Return the value as an operand; add a constant to the table once."""
        if isinstance(tensor, Value):
            return tensor
        if id(tensor) not in self._known:
            kind = tensor.type
            if kind.elements == 0:
                raise NotSupportedError(f"a tensor without elements, {tensor.name}")
            name = unique_name(tensor.name, self.names)
            self.constants[name] = Constant.from_array(name, tensor.array, kind.dtype)
            # It is stored too, because ids are unique among living objects only.
            self._known[id(tensor)] = (tensor, Value(name, kind, name))
        return self._known[id(tensor)][1]

    def call(
        self,
        op: str,
        /,
        *inputs: OnnxValue | None,
        attrs: OpAttrs = NO_ATTRS,
        result: TensorType | DType | None = None,
    ) -> OnnxValue:
        """Emit a call of `op` with one result.

        `result` is the result's dtype, or a type for the properties that are not
        inferred; the default is that of the first input.
        """
        if result is None:
            first = next(item for item in inputs if item is not None)
            result = replace(first.type, shape=())
        elif isinstance(result, DType):
            result = TensorType((), result)
        return self.multi_call(op, *inputs, declared=(result,), attrs=attrs)[0]

    def multi_call(
        self,
        op: str,
        /,
        *inputs: OnnxValue | None,
        declared: Sequence[TensorType],
        attrs: OpAttrs = NO_ATTRS,
    ) -> tuple[OnnxValue, ...]:
        """Emit a call and return all results.

        `declared` holds the types that are not inferred.
        """
        check_attrs(op, attrs)
        constants = tuple(map(self._constant, inputs))
        types = tuple(None if item is None else item.type for item in inputs)
        described = OpCall(op, types, tuple(declared), attrs, constants)
        inferred = self.ops[op].infer(described)
        for kind in (*filter(None, types), *inferred):
            if kind.elements == 0:
                raise NotSupportedError("a tensor without elements")
        if all(isinstance(item, ConstantValue | None) for item in inputs):
            return self._evaluate(replace(described, outputs=inferred), inputs)
        operands = tuple(None if item is None else self.value(item) for item in inputs)
        results: list[Value] = []
        for kind in inferred:
            name = unique_name(f"{self.stem}/{op}", self.names)
            results.append(Value(name, kind))
        outputs = tuple(results)
        self.calls.append(Call(op, operands, outputs, attrs, self.span))
        return outputs

    def counted(self, x: OnnxValue, axis: int, count: OnnxValue) -> OnnxValue:
        """Return x with only `count` elements along `axis` in use."""
        value = self.value(x)
        self.lengths[value.name] = DataLength(axis, count)
        return value

    def maker(self, x: OnnxValue) -> Call | None:
        """Return the last call with this very object as a result, or None."""
        for call in reversed(self.calls):
            if any(output is x for output in call.outputs):
                return call
        return None

    def _evaluate(
        self, call: OpCall, inputs: Sequence[OnnxValue | None]
    ) -> tuple[OnnxValue, ...]:
        arrays: list[Array] = []
        for item in inputs:
            if isinstance(item, ConstantValue):
                arrays.append(item.array)
            else:
                arrays.append(np.zeros(0))
        with np.errstate(all="ignore"):  # infinity and NaN are valid results
            results = self.ops[call.op].reference(call, arrays)
        name = f"{self.stem}/{call.op}"
        constants: list[OnnxValue] = []
        for array, kind in zip(results, call.outputs, strict=True):
            constant = ConstantValue(np.asarray(array), name, kind.quantization)
            constants.append(constant)
        return tuple(constants)

    def _constant(self, tensor: OnnxValue | None) -> Constant | None:
        if isinstance(tensor, ConstantValue):
            return Constant.from_array(tensor.name, tensor.array, tensor.type.dtype)
        if tensor is None or not tensor.constant:
            return None
        return self.constants[tensor.constant]

    def expression(self, formula: str, *inputs: OnnxValue) -> OnnxValue:
        """Emit an expression of a, b, c...; one-element constants become literals."""
        operands: list[OnnxValue] = []
        names: dict[str, str] = {}
        for name, tensor in zip(INPUT_NAMES, inputs, strict=False):
            literal = self._literal(tensor, inputs)
            if literal is not None:
                names[name] = literal
                continue
            position = _index_of(tensor, operands)
            if position == len(operands):
                operands.append(tensor)
            names[name] = INPUT_NAMES[position]
        attrs = ExpressionAttrs(formula=substitute_names(formula, names))
        dtype = operands[0].type.dtype
        return self.call("expression", *operands, attrs=attrs, result=dtype)

    def _literal(self, tensor: OnnxValue, inputs: Sequence[OnnxValue]) -> str | None:
        if not isinstance(tensor, ConstantValue) or tensor.array.size != 1:
            return None
        ranks = [len(item.shape) for item in inputs if isinstance(item, Value)]
        if len(tensor.shape) > max(ranks, default=-1):
            return None
        number = tensor.array.astype(tensor.type.dtype.computed.np).item()
        return f"{tensor.type.dtype.name}({number!r})"

    def reduction(
        self,
        formula: str,
        step: ReductionStep,
        axes: Sequence[int],
        *inputs: OnnxValue,
        keep: bool = True,
    ) -> OnnxValue:
        """Emit a reduction by `step` of an expression over the inputs a, b, ..."""
        attrs = ReductionAttrs(
            formula=formula, step=step, axes=_ints(axes), keep_dims=keep
        )
        return self.call("reduction", *inputs, attrs=attrs)

    def gather(self, x: OnnxValue, axis: int, indices: Array) -> OnnxValue:
        places = _ints(indices.reshape(-1).tolist())
        attrs = GatherAttrs(axis=axis, indices=places, shape=_ints(indices.shape))
        return self.call("gather", x, attrs=attrs)

    def transpose(self, x: OnnxValue, perm: Sequence[int]) -> OnnxValue:
        if list(perm) == list(range(len(perm))):
            return x
        return self.call("transpose", x, attrs=TransposeAttrs(perm=_ints(perm)))

    def reshape(self, x: OnnxValue, shape: Sequence[int]) -> OnnxValue:
        if tuple(shape) == x.shape:
            return x
        if isinstance(x, ConstantValue):
            return replace(x, array=x.array.reshape(tuple(shape)))
        return self.call("reshape", x, result=replace(x.type, shape=_ints(shape)))

    def copy(self, x: OnnxValue, name: str = "") -> Value:
        """Emit a copy of x, called `name` if that is free."""
        source = self.value(x)
        free = unique_name(name or f"{self.stem}/copy", self.names)
        result = Value(free, source.type)
        self.calls.append(Call("reshape", (source,), (result,), NO_ATTRS, self.span))
        return result

    def cast(self, x: OnnxValue, dtype: DType) -> OnnxValue:
        if x.type.dtype == dtype:
            return x
        source = x.type.dtype.computed
        if source != x.type.dtype:
            x = self.expression(f"{source.name}(a)", x)
        if source.is_float and dtype.computed.is_int:
            formula = rounding(dtype) if dtype.computed_as else truncation(dtype)
            return self.expression(formula, x)
        return x if source == dtype else self.expression(f"{dtype.name}(a)", x)

    def broadcast(self, x: OnnxValue, shape: Sequence[int]) -> OnnxValue:
        if x.shape == tuple(shape):
            return x
        return self.call("broadcast_to", x, attrs=BroadcastAttrs(shape=_ints(shape)))

    def slice(
        self,
        x: OnnxValue,
        begin: Sequence[int],
        counts: Sequence[int],
        steps: Sequence[int] = (),
    ) -> OnnxValue:
        strides = tuple(steps) or (1,) * len(begin)
        if tuple(counts) == x.shape and all(step == 1 for step in strides):
            return x
        attrs = StridedSliceAttrs(
            begin=_ints(begin), strides=_ints(strides), counts=_ints(counts), shrunk=()
        )
        return self.call("strided_slice", x, attrs=attrs)

    def split(
        self,
        x: OnnxValue,
        axis: int,
        sizes: Sequence[int],
        declared: Sequence[TensorType],
    ) -> tuple[OnnxValue, ...]:
        """Emit a split along `axis`; `declared` are the types of the parts."""
        attrs = SplitAttrs(axis=axis, sizes=_ints(sizes))
        return self.multi_call("split", x, declared=declared, attrs=attrs)

    def gather_along(self, x: OnnxValue, axis: int, places: OnnxValue) -> OnnxValue:
        """Emit a gather of elements along `axis` at places computed at run time."""
        attrs = DynamicGatherAttrs(mode="along", axis=axis)
        return self.call("dynamic_gather", x, places, attrs=attrs)

    def slice_axis(self, x: OnnxValue, axis: int, first: int, count: int) -> OnnxValue:
        begin, counts = [0] * len(x.shape), list(x.shape)
        begin[axis], counts[axis] = first, count
        return self.slice(x, begin, counts)

    def index_axis(self, x: OnnxValue, axis: int, index: int) -> OnnxValue:
        """Emit the element at `index` along `axis`, which the result does not have."""
        shape = x.shape
        part = self.slice_axis(x, axis, index, 1)
        return self.reshape(part, (*shape[:axis], *shape[axis + 1 :]))

    def concat(self, parts: Sequence[OnnxValue], axis: int) -> OnnxValue:
        quantizations = {part.type.quantization for part in parts}
        if len(quantizations) > 1:
            parts = list(map(self._as_stored, parts))
        if len(parts) == 1:
            return parts[0]
        return self.call("concatenation", *parts, attrs=AxisAttrs(axis=axis))

    def _as_stored(self, x: OnnxValue) -> OnnxValue:
        """Return the numbers as stored, without their quantization."""
        return self.call("reshape", x, result=replace(x.type, quantization=None))


def _ints(values: Iterable[int]) -> tuple[int, ...]:
    """Return the values without numpy's types, which computations on arrays leave."""
    return tuple(map(int, values))


def _index_of(wanted: OnnxValue, items: Sequence[OnnxValue]) -> int:
    """Return the index of this very object, or the number of items without it."""
    for index, item in enumerate(items):
        if item is wanted:
            return index
    return len(items)


Results: TypeAlias = Sequence[OnnxValue]
Importer: TypeAlias = Callable[["NodeContext"], "Results | OnnxValue"]
"""An importer returns no results if the operator's definition as a function applies."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """A node with attributes, inputs, opset and emitter.

    An omitted input is None; `body` imports a subgraph.
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

    @property
    def rank(self) -> int:
        return len(self.shape(0))

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)

    def has(self, index: int) -> bool:
        return self.optional(index) is not None

    def input(self, index: int) -> OnnxValue:
        value = self.optional(index)
        if value is None:
            raise NotSupportedError(f"a node without input {index}")
        return value

    def all_inputs(self) -> list[OnnxValue]:
        return [self.input(index) for index in range(len(self.inputs))]

    def optional(self, index: int) -> OnnxValue | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def shape(self, index: int) -> tuple[int, ...]:
        return self.input(index).shape

    def dtype(self, index: int) -> DType:
        return self.input(index).type.dtype

    def array(self, index: int, what: str) -> Array:
        """Return a constant input; the error for other inputs calls it `what`."""
        value = self.input(index)
        if not isinstance(value, ConstantValue):
            raise NotSupportedError(f"{what} that are not constant")
        return value.array

    def scalar(self, index: int, what: str) -> Any:
        """Return the first element of a constant input, with the errors of `array`."""
        array = self.array(index, what)
        if array.size == 0:
            raise NotSupportedError(f"{what} without elements")
        return array.reshape(-1)[0].item()

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        return _ints(self.array(index, what).reshape(-1))

    def axis(self, default: int | None = None, rank: int | None = None) -> int:
        """Return the attribute `axis`, counted from 0.

        `rank` defaults to that of input 0.
        """
        axis = self.attr("axis", default)
        size = self.rank if rank is None else rank
        return normalize_axis(axis, size)
