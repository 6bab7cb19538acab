"""Writes calls of our operators: what importers of ONNX operators build their results with.

A `OnnxValue` is a `Value` of the graph or a `ConstantValue`, an array that is known at compile
time. A call
whose inputs are all known is computed at once, by the operator's own reference: whatever hangs on
shapes and weights alone is folded without further ado. Types come from the operators' shape rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import Array, DType, find_dtype
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.ir.core import Attr, Constant, Span
from firmwright.ir.graph.nodes import Call, TensorType, Value
from firmwright.ir.graph.opdef import OpCall, OpTable
from firmwright.ops.expression_language import INPUT_NAMES, substitute_names


@dataclass(frozen=True, slots=True, eq=False)
class ConstantValue:
    """A tensor whose values are known; `name` is where they come from."""

    array: Array
    name: str
    quantization: Quantization | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.array.shape)


OnnxValue: TypeAlias = Value | ConstantValue


def shape_of(tensor: OnnxValue) -> tuple[int, ...]:
    return tensor.shape if isinstance(tensor, ConstantValue) else tensor.type.shape


def dtype_of(tensor: OnnxValue) -> DType:
    """The element type; NotSupportedError where we have none such."""
    if isinstance(tensor, Value):
        return tensor.type.dtype
    found = find_dtype(tensor.array.dtype.name)
    if found is None:
        raise NotSupportedError(f"element type {tensor.array.dtype.name}")
    return found


@dataclass(slots=True)
class CallEmitter:
    """The calls and constants so far; `span` and `stem` belong to the node that is imported."""

    ops: OpTable
    calls: list[Call] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    span: Span = Span("")
    stem: str = ""
    _known: dict[int, tuple[ConstantValue, Value]] = field(default_factory=dict)

    def unique(self, name: str) -> str:
        """`name`, or `name:1`, `name:2`... if it is taken."""
        candidate, count = name, 0
        while candidate in self.names:
            count += 1
            candidate = f"{name}:{count}"
        self.names.add(candidate)
        return candidate

    # ---- tensors -----------------------------------------------------------------------------

    def const(self, array: Array, part: str = "constant") -> ConstantValue:
        """A tensor made while importing; `part` says what of the node it is."""
        return ConstantValue(np.asarray(array), f"{self.stem}/{part}")

    def value(self, tensor: OnnxValue) -> Value:
        """The tensor as an operand: constants enter the table of constants once."""
        if isinstance(tensor, Value):
            return tensor
        known = self._known.get(id(tensor))
        if known is not None:
            return known[1]
        kind = TensorType(tensor.shape, dtype_of(tensor), tensor.quantization)
        if kind.elements == 0:
            raise NotSupportedError(f"a tensor without elements, {tensor.name}")
        name = self.unique(tensor.name)
        self.constants[name] = Constant.from_array(name, tensor.array, kind.dtype)
        found = Value(name, kind, name)
        # The constant is kept beside it: an id is that of a living object only.
        self._known[id(tensor)] = (tensor, found)
        return found

    # ---- calls -------------------------------------------------------------------------------

    def call(
        self,
        op: str,
        inputs: Sequence[OnnxValue | None],
        attrs: Mapping[str, Attr] | None = None,
        *,
        like: TensorType | None = None,
        dtype: DType | None = None,
        shape: Sequence[int] = (),
    ) -> OnnxValue:
        """The only result of a call of `op`; `like`, or `dtype` and `shape`, declare it.

        Where nothing does it is of the first input's type, quantisation included.
        """
        first = next(item for item in inputs if item is not None)
        moved = self._type(first).quantization if dtype is None else None
        kind = like or TensorType(tuple(shape), dtype or dtype_of(first), moved)
        return self.multi_result_call(op, inputs, attrs or {}, (kind,))[0]

    def multi_result_call(
        self,
        op: str,
        inputs: Sequence[OnnxValue | None],
        attrs: Mapping[str, Attr],
        declared: Sequence[TensorType],
    ) -> tuple[OnnxValue, ...]:
        """All results of a call; `declared` holds what the shape rule does not give."""
        constants = tuple(self._constant(item) for item in inputs)
        types = tuple(None if item is None else self._type(item) for item in inputs)
        described = OpCall(op, types, tuple(declared), attrs, constants)
        inferred = self.ops[op].infer(described)
        if any(kind.elements == 0 for kind in (*(t for t in types if t), *inferred)):
            raise NotSupportedError("a tensor without elements")
        if all(item is None or isinstance(item, ConstantValue) for item in inputs):
            return self._computed(replace(described, outputs=inferred), inputs)
        operands = tuple(None if item is None else self.value(item) for item in inputs)
        outputs = tuple(Value(self.unique(f"{self.stem}/{op}"), kind) for kind in inferred)
        self.calls.append(Call(op, operands, outputs, dict(attrs), self.span))
        return outputs

    def _computed(
        self, described: OpCall, inputs: Sequence[OnnxValue | None]
    ) -> tuple[OnnxValue, ...]:
        arrays = [item.array if isinstance(item, ConstantValue) else np.zeros(0) for item in inputs]
        with np.errstate(all="ignore"):  # infinity and NaN are values among floats
            found = self.ops[described.op].reference(described, arrays)
        return tuple(
            ConstantValue(np.asarray(array), f"{self.stem}/{described.op}", kind.quantization)
            for array, kind in zip(found, described.outputs, strict=True)
        )

    def _type(self, tensor: OnnxValue) -> TensorType:
        if isinstance(tensor, Value):
            return tensor.type
        return TensorType(tensor.shape, dtype_of(tensor), tensor.quantization)

    def _constant(self, tensor: OnnxValue | None) -> Constant | None:
        if isinstance(tensor, ConstantValue):
            return Constant.from_array(tensor.name, tensor.array, dtype_of(tensor))
        if tensor is not None and tensor.constant is not None:
            return self.constants[tensor.constant]
        return None

    # ---- the calls that everyone needs -------------------------------------------------------

    def expression(self, formula: str, *inputs: OnnxValue) -> OnnxValue:
        """A formula over `inputs`, called a, b, c...; constants of one element enter the text."""
        kept: list[OnnxValue] = []
        names: dict[str, str] = {}
        for name, tensor in zip(INPUT_NAMES, inputs, strict=False):
            literal = self._literal(tensor, inputs)
            if literal is not None:
                names[name] = literal
            else:
                position = next((k for k, t in enumerate(kept) if t is tensor), len(kept))
                if position == len(kept):
                    kept.append(tensor)
                names[name] = INPUT_NAMES[position]
        text = substitute_names(formula, names)
        return self.call("expression", kept, {"formula": text}, dtype=dtype_of(kept[0]))

    def _literal(self, tensor: OnnxValue, inputs: Sequence[OnnxValue]) -> str | None:
        """The text of a constant of one element that has no part in the result's shape."""
        if not isinstance(tensor, ConstantValue) or tensor.array.size != 1:
            return None
        rank = max((len(shape_of(t)) for t in inputs if isinstance(t, Value)), default=-1)
        if len(tensor.shape) > rank:
            return None
        return f"{dtype_of(tensor).name}({tensor.array.reshape(-1)[0].item()!r})"

    def transpose(self, x: OnnxValue, perm: Sequence[int]) -> OnnxValue:
        if list(perm) == list(range(len(perm))):
            return x
        return self.call("transpose", [x], {"perm": tuple(perm)})

    def reshape(self, x: OnnxValue, shape: Sequence[int]) -> OnnxValue:
        if tuple(shape) == shape_of(x):
            return x
        if isinstance(x, ConstantValue):
            return ConstantValue(x.array.reshape(tuple(shape)), x.name, x.quantization)
        kind = replace(x.type, shape=tuple(int(n) for n in shape))
        return self.call("reshape", [x], {}, like=kind)

    def copy(self, x: OnnxValue) -> OnnxValue:
        """The same values as a value of its own."""
        source = self.value(x)
        kind = source.type
        outputs = (Value(self.unique(f"{self.stem}/copy"), kind),)
        self.calls.append(Call("reshape", (source,), outputs, {}, self.span))
        return outputs[0]

    def cast(self, x: OnnxValue, dtype: DType) -> OnnxValue:
        if dtype_of(x) == dtype:
            return x
        return self.expression(f"{dtype.name}(a)", x)

    def broadcast(self, x: OnnxValue, shape: Sequence[int]) -> OnnxValue:
        if shape_of(x) == tuple(shape):
            return x
        return self.call("broadcast_to", [x], {"shape": tuple(shape)})

    def slice(
        self, x: OnnxValue, begin: Sequence[int], counts: Sequence[int], steps: Sequence[int] = ()
    ) -> OnnxValue:
        """`counts` elements of each axis from `begin` on."""
        shape = shape_of(x)
        steps = tuple(steps) or (1,) * len(shape)
        if tuple(counts) == shape and all(step == 1 for step in steps):
            return x
        attrs: dict[str, Attr] = {
            "begin": tuple(begin), "strides": tuple(steps), "counts": tuple(counts), "shrunk": (),
        }  # fmt: skip
        return self.call("strided_slice", [x], attrs)

    def concat(self, parts: Sequence[OnnxValue], axis: int) -> OnnxValue:
        if len(parts) == 1:
            return parts[0]
        return self.call("concatenation", parts, {"axis": axis})
