"""Emission of graph calls for ONNX operators.

The operator's reference evaluates calls with only constant inputs.
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
    """A value known at compile time; a constant of the module is named after `name`."""

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
    if isinstance(tensor, Value):
        return tensor.type.dtype
    dtype = find_dtype(tensor.array.dtype.name)
    if dtype is None:
        raise NotSupportedError(f"element type {tensor.array.dtype.name}")
    return dtype


@dataclass(slots=True)
class CallEmitter:
    """Collects calls and constants; `span` and `stem` belong to the node being imported."""

    ops: OpTable
    calls: list[Call] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    span: Span = Span("")
    stem: str = ""
    _known: dict[int, tuple[ConstantValue, Value]] = field(default_factory=dict)

    def unique(self, name: str) -> str:
        candidate, count = name, 0
        while candidate in self.names:
            count += 1
            candidate = f"{name}:{count}"
        self.names.add(candidate)
        return candidate

    def const(self, array: Array, part: str = "constant") -> ConstantValue:
        return ConstantValue(np.asarray(array), f"{self.stem}/{part}")

    def value(self, tensor: OnnxValue) -> Value:
        """Return the value as a call operand; add a constant to the constant table once."""
        if isinstance(tensor, Value):
            return tensor
        cached = self._known.get(id(tensor))
        if cached is not None:
            return cached[1]
        kind = TensorType(tensor.shape, dtype_of(tensor), tensor.quantization)
        if kind.elements == 0:
            raise NotSupportedError(f"a tensor without elements, {tensor.name}")
        name = self.unique(tensor.name)
        self.constants[name] = Constant.from_array(name, tensor.array, kind.dtype)
        value = Value(name, kind, name)
        # The constant is stored too, because ids are unique among living objects only.
        self._known[id(tensor)] = (tensor, value)
        return value

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
        """Emit a call of `op` with one result.

        `like`, or `dtype` and `shape`, give its type; the first input's type is the default.
        """
        first = next(item for item in inputs if item is not None)
        quantization = self._type(first).quantization if dtype is None else None
        kind = like or TensorType(tuple(shape), dtype or dtype_of(first), quantization)
        return self.multi_result_call(op, inputs, attrs or {}, (kind,))[0]

    def multi_result_call(
        self,
        op: str,
        inputs: Sequence[OnnxValue | None],
        attrs: Mapping[str, Attr],
        declared: Sequence[TensorType],
    ) -> tuple[OnnxValue, ...]:
        """Emit a call and return all results; `declared` holds types that are not inferred."""
        constants = tuple(self._constant(item) for item in inputs)
        types = tuple(None if item is None else self._type(item) for item in inputs)
        described = OpCall(op, types, tuple(declared), attrs, constants)
        inferred = self.ops[op].infer(described)
        if any(kind.elements == 0 for kind in (*(t for t in types if t), *inferred)):
            raise NotSupportedError("a tensor without elements")
        if all(item is None or isinstance(item, ConstantValue) for item in inputs):
            return self._evaluate(replace(described, outputs=inferred), inputs)
        operands = tuple(None if item is None else self.value(item) for item in inputs)
        outputs = tuple(Value(self.unique(f"{self.stem}/{op}"), kind) for kind in inferred)
        self.calls.append(Call(op, operands, outputs, dict(attrs), self.span))
        return outputs

    def _evaluate(
        self, described: OpCall, inputs: Sequence[OnnxValue | None]
    ) -> tuple[OnnxValue, ...]:
        arrays = [item.array if isinstance(item, ConstantValue) else np.zeros(0) for item in inputs]
        with np.errstate(all="ignore"):  # infinity and NaN are valid results
            results = self.ops[described.op].reference(described, arrays)
        return tuple(
            ConstantValue(np.asarray(array), f"{self.stem}/{described.op}", kind.quantization)
            for array, kind in zip(results, described.outputs, strict=True)
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

    def expression(self, formula: str, *inputs: OnnxValue) -> OnnxValue:
        """Emit an expression over inputs a, b, c...; one-element constants become literals."""
        operands: list[OnnxValue] = []
        names: dict[str, str] = {}
        for name, tensor in zip(INPUT_NAMES, inputs, strict=False):
            literal = self._literal(tensor, inputs)
            if literal is not None:
                names[name] = literal
            else:
                position = next((k for k, t in enumerate(operands) if t is tensor), len(operands))
                if position == len(operands):
                    operands.append(tensor)
                names[name] = INPUT_NAMES[position]
        text = substitute_names(formula, names)
        return self.call("expression", operands, {"formula": text}, dtype=dtype_of(operands[0]))

    def _literal(self, tensor: OnnxValue, inputs: Sequence[OnnxValue]) -> str | None:
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
