"""RawModel -> IRModule: names, types and constants become graph values, nodes become calls.

The meaning of every operator comes from its file under `ops/`: this module only finds the record,
hands it the raw node, and collects what cannot be taken. All unsupported operators and dynamic
shapes of a model are reported at once, each with its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from firmwright.base.dtypes import find_dtype
from firmwright.base.errors import UnsupportedError, UnsupportedItem
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.opdef import (
    Array,
    ImportContext,
    NotSupportedError,
    OpCall,
    OpDef,
    OpTable,
)
from firmwright.ir.module import IRModule
from firmwright.ir.raw import NO_TENSOR, RawModel, RawNode, RawSubgraph, RawTensor


def import_model(
    raw: RawModel, name: str, imports: Mapping[str, OpDef], data: bytes, ops: OpTable
) -> IRModule:
    """The module of `raw`'s first subgraph; UnsupportedError names everything that is missing.

    `imports` is the table `tflite:NAME` -> operator that imports it (an importer may answer with
    another of `ops`); `data` the file's bytes (for its hash).
    """
    work = _Import(raw, raw.subgraphs[0], imports, ops)
    function = work.run()
    return IRModule(
        name=name,
        functions={"main": function},
        constants=work.constants,
        attrs={"entry": "main", "source_sha256": hashlib.sha256(data).hexdigest()},
    )


@dataclass
class _Import:
    raw: RawModel
    graph: RawSubgraph
    imports: Mapping[str, OpDef]
    ops: OpTable
    constants: dict[str, Constant] = field(default_factory=dict)
    items: list[UnsupportedItem] = field(default_factory=list)
    values: dict[int, Value] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def run(self) -> Function:
        self._check_model()
        bad = {tensor.index for tensor in self.graph.tensors if not self._is_usable(tensor)}
        calls = [call for node in self.graph.nodes if (call := self._call(node, bad))]
        if self.items:
            raise UnsupportedError(
                self.items,
                where=self.raw.file,
                hint="`firmwright ops` for what is supported, or convert the model with static "
                "shapes and full integer or float quantisation.",
            )
        return Function(
            "main",
            tuple(self._value(index) for index in self.graph.inputs),
            tuple(calls),
            tuple(self._value(index) for index in self.graph.outputs),
        )

    def _check_model(self) -> None:
        if len(self.raw.subgraphs) > 1:
            self._refuse("SUBGRAPHS", self.raw.file, "a model with several subgraphs")
        for tensor in self.graph.tensors:
            place = f"tensor {tensor.index} ({tensor.name})"
            if tensor.dynamic_axes:
                axes = ", ".join(map(str, tensor.dynamic_axes))
                self._refuse("DYNAMIC_SHAPE", place, f"the size of axis {axes} is not fixed")
            elif tensor.is_sparse:
                self._refuse("SPARSE", place, "sparse tensors")
            elif tensor.is_variable:
                self._refuse("VARIABLE", place, "state kept in variables")

    def _is_usable(self, tensor: RawTensor) -> bool:
        return not tensor.dynamic_axes and find_dtype(tensor.dtype) is not None

    def _refuse(self, op: str, where: str, why: str) -> None:
        self.items.append(UnsupportedItem(op, where, why))

    # ---- values ------------------------------------------------------------------------------

    def _type(self, tensor: RawTensor) -> TensorType:
        found = find_dtype(tensor.dtype)
        if found is None:
            raise NotSupportedError(f"element type {tensor.dtype} of tensor {tensor.name}")
        return TensorType(tensor.shape, found, tensor.quantization)

    def _value(self, index: int) -> Value:
        if index not in self.values:
            tensor = self.graph.tensors[index]
            name = self._unique(tensor.name or f"tensor_{index}")
            kind = self._type(tensor)
            constant = None
            if tensor.buffer is not None:
                constant = name
                self.constants[name] = Constant(name, kind.dtype, kind.shape, tensor.buffer)
            self.values[index] = Value(name, kind, constant)
        return self.values[index]

    def _unique(self, name: str) -> str:
        """Tensor names are kept as they are; TFLite allows equal ones, the IR does not."""
        candidate, count = name, 0
        while candidate in self.names:
            count += 1
            candidate = f"{name}:{count}"
        self.names.add(candidate)
        return candidate

    def _array(self, index: int) -> Array | None:
        tensor = self.graph.tensors[index]
        found = find_dtype(tensor.dtype)
        if tensor.buffer is None or found is None:
            return None
        return np.frombuffer(tensor.buffer, found.np).reshape(tensor.shape)

    # ---- calls -------------------------------------------------------------------------------

    def _call(self, node: RawNode, bad: set[int]) -> Call | None:
        used = [index for index in (*node.inputs, *node.outputs) if index != NO_TENSOR]
        opdef = self.imports.get(f"tflite:{node.op}")
        if opdef is None:
            self._refuse(node.op, str(node.span), "this operator is not supported")
            return None
        if bad.intersection(used):
            dtypes = {self.graph.tensors[i].dtype for i in used}
            unknown = sorted(name for name in dtypes if find_dtype(name) is None)
            if unknown:
                self._refuse(node.op, str(node.span), f"element type {', '.join(unknown)}")
            return None
        try:
            return self._checked(opdef, node)
        except NotSupportedError as error:
            self._refuse(node.op, str(node.span), str(error))
            return None

    def _checked(self, opdef: OpDef, node: RawNode) -> Call:
        tensors = self.graph.tensors
        context = ImportContext(
            node,
            tuple(None if i == NO_TENSOR else self._type(tensors[i]) for i in node.inputs),
            tuple(self._type(tensors[i]) for i in node.outputs),
            tuple(None if i == NO_TENSOR else self._array(i) for i in node.inputs),
        )
        imported = opdef.imports[f"tflite:{node.op}"](context)
        kept = [node.inputs[position] for position in imported.inputs]
        inputs = tuple(None if i == NO_TENSOR else self._value(i) for i in kept)
        outputs = tuple(self._value(i) for i in node.outputs)
        self._infer(self.ops[imported.op], Call(imported.op, inputs, outputs, imported.attrs))
        return Call(imported.op, inputs, outputs, imported.attrs, node.span)

    def _infer(self, opdef: OpDef, call: Call) -> None:
        constants = tuple(
            self.constants[v.constant] if v is not None and v.constant else None
            for v in call.inputs
        )
        types = tuple(None if v is None else v.type for v in call.inputs)
        outputs = tuple(v.type for v in call.outputs)
        if any(kind is not None and kind.elements == 0 for kind in (*types, *outputs)):
            raise NotSupportedError("a tensor without elements")
        inferred = opdef.infer(OpCall(call.op, types, outputs, call.attrs, constants))
        for value, kind in zip(call.outputs, inferred, strict=True):
            if (value.type.shape, value.type.dtype) != (kind.shape, kind.dtype):
                raise NotSupportedError(
                    f"its output {value.name} is declared {value.type.dtype.name} "
                    f"{list(value.type.shape)} but is {kind.dtype.name} {list(kind.shape)}"
                )
