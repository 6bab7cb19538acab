"""Writer of .tflite files with several operators and subgraphs, by the public schema.

    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "int8", (1, 4), 0.5, 3)
    y = main.tensor("y", "int8", (1, 4), 0.5, 3)
    main.op("RELU", [x], [y])
    main.outputs(y)
    data = file.data()

Operator names are those of the schema, or `custom:NAME`. The name of the options table
precedes its fields, which have the names of the schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from tests.ops.tflite_writer import flexbuffer

VERSIONS = {"ADD": 2, "BROADCAST_TO": 2, "CONCATENATION": 2, "FULLY_CONNECTED": 4}
"""Versions of operators that old interpreters refuse; 1 if not listed."""


class GraphFile:
    """A subgraph; tensors are identified by their index."""

    def __init__(self, file: ModelFile, name: str) -> None:
        self.file = file
        self.table = schema.SubGraphT()
        self.table.name = name
        self.table.tensors, self.table.operators = [], []
        self.table.inputs, self.table.outputs = [], []

    def tensor(
        self,
        name: str,
        dtype: str = "int8",
        shape: Sequence[int] = (),
        scale: float | Sequence[float] = 0.0,
        zero_point: int = 0,
        *,
        axis: int = 0,
        variable: bool = False,
    ) -> int:
        tensor = schema.TensorT()
        tensor.name, tensor.shape = name, list(shape)
        tensor.type = getattr(schema.TensorType, dtype.upper())
        tensor.isVariable = variable
        if scale:
            quant = schema.QuantizationParametersT()
            quant.scale = np.atleast_1d(np.array(scale, np.float32))
            quant.zeroPoint = np.full(quant.scale.shape, zero_point, np.int64)
            quant.quantizedDimension = axis
            tensor.quantization = quant
        self.table.tensors.append(tensor)
        return len(self.table.tensors) - 1

    def input(self, name: str, *kind: Any) -> int:
        index = self.tensor(name, *kind)
        self.table.inputs.append(index)
        return index

    def constant(
        self, name: str, data: NDArray[Any], scale: float = 0.0, zero_point: int = 0
    ) -> int:
        index = self.tensor(name, data.dtype.name, data.shape, scale, zero_point)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(data.tobytes(), np.uint8)
        self.table.tensors[index].buffer = len(self.file.model.buffers)
        self.file.model.buffers.append(buffer)
        return index

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        table: str = "",
        /,
        **options: Any,
    ) -> None:
        operator = schema.OperatorT()
        operator.opcodeIndex = self.file.code(name)
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if name.startswith("custom:"):
            operator.customOptions = flexbuffer(options)
        elif table:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, table)
            operator.builtinOptions = getattr(schema, f"{table}T")()
            for field, value in options.items():
                assert hasattr(operator.builtinOptions, field)
                setattr(operator.builtinOptions, field, value)
        self.table.operators.append(operator)

    def outputs(self, *indices: int) -> None:
        self.table.outputs += indices

    # ---- variables -------------------------------------------------------------------

    def handle(self, name: str) -> int:
        tensor = self.tensor(f"{name}/handle", "resource")
        self.op(
            "VAR_HANDLE",
            [],
            [tensor],
            "VarHandleOptions",
            container="",
            sharedName=name,
        )
        return tensor

    def read(self, handle: int, name: str, *kind: Any) -> int:
        tensor = self.tensor(name, *kind)
        self.op("READ_VARIABLE", [handle], [tensor], "ReadVariableOptions")
        return tensor

    def assign(self, handle: int, value: int) -> None:
        self.op("ASSIGN_VARIABLE", [handle, value], [], "AssignVariableOptions")


class ModelFile:
    """A model; its first graph is the main graph."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.operatorCodes = []
        self.model.subgraphs = []
        self.model.buffers = [schema.BufferT()]
        self.model.signatureDefs = []
        self.codes: dict[str, int] = {}

    def graph(self, name: str) -> GraphFile:
        graph = GraphFile(self, name)
        self.model.subgraphs.append(graph.table)
        return graph

    def signature(
        self,
        key: str,
        graph: int,
        inputs: Mapping[str, int],
        outputs: Mapping[str, int],
    ) -> None:
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = key, graph
        signature.inputs = [_named(name, index) for name, index in inputs.items()]
        signature.outputs = [_named(name, index) for name, index in outputs.items()]
        self.model.signatureDefs.append(signature)

    def code(self, name: str) -> int:
        if name not in self.codes:
            code = schema.OperatorCodeT()
            kind = "CUSTOM" if name.startswith("custom:") else name
            number = getattr(schema.BuiltinOperator, kind)
            code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)
            code.version = VERSIONS.get(name, 1)
            if kind == "CUSTOM":
                code.customCode = name.removeprefix("custom:")
            self.codes[name] = len(self.model.operatorCodes)
            self.model.operatorCodes.append(code)
        return self.codes[name]

    def data(self) -> bytes:
        builder = flatbuffers.Builder(1 << 12)
        builder.Finish(self.model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())


def _named(name: str, index: int) -> Any:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name, index
    return entry
