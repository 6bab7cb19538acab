"""Writes .tflite files of several operators and subgraphs with the published schema's classes.

    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "int8", (1, 4), 0.5, 3)
    y = main.tensor("y", "int8", (1, 4), 0.5, 3)
    main.op("RELU", [x], [y])
    main.outputs(y)
    data = file.data()

An operator's name is that of the schema, or `custom:NAME`; its options are the fields of its table,
in the schema's own names, behind the table's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray
from tflite_writer import flexbuffer


class GraphFile:
    """A subgraph; tensors are known by their index in it."""

    def __init__(self, file: ModelFile, name: str) -> None:
        self.file = file
        self.made = schema.SubGraphT()
        self.made.name = name
        self.made.tensors, self.made.operators = [], []
        self.made.inputs, self.made.outputs = [], []

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
        made = schema.TensorT()
        made.name, made.shape = name, list(shape)
        made.type = getattr(schema.TensorType, dtype.upper())
        made.isVariable = variable
        if scale:
            quant = schema.QuantizationParametersT()
            quant.scale = np.atleast_1d(np.array(scale, np.float32))
            quant.zeroPoint = np.full(quant.scale.shape, zero_point, np.int64)
            quant.quantizedDimension = axis
            made.quantization = quant
        self.made.tensors.append(made)
        return len(self.made.tensors) - 1

    def input(self, name: str, *kind: Any) -> int:
        index = self.tensor(name, *kind)
        self.made.inputs.append(index)
        return index

    def constant(
        self, name: str, data: NDArray[Any], scale: float = 0.0, zero_point: int = 0
    ) -> int:
        index = self.tensor(name, data.dtype.name, data.shape, scale, zero_point)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(data.tobytes(), np.uint8)
        self.made.tensors[index].buffer = len(self.file.model.buffers)
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
        made = schema.OperatorT()
        made.opcodeIndex = self.file.code(name)
        made.inputs, made.outputs = list(inputs), list(outputs)
        if name.startswith("custom:"):
            made.customOptions = flexbuffer(options)
        elif table:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, table)
            made.builtinOptions = getattr(schema, f"{table}T")()
            for field, value in options.items():
                assert hasattr(made.builtinOptions, field)
                setattr(made.builtinOptions, field, value)
        self.made.operators.append(made)

    def outputs(self, *indices: int) -> None:
        self.made.outputs += indices

    # ---- variables -----------------------------------------------------------------------------

    def handle(self, name: str) -> int:
        made = self.tensor(f"{name}/handle", "resource")
        self.op("VAR_HANDLE", [], [made], "VarHandleOptions", container="", sharedName=name)
        return made

    def read(self, handle: int, name: str, *kind: Any) -> int:
        made = self.tensor(name, *kind)
        self.op("READ_VARIABLE", [handle], [made], "ReadVariableOptions")
        return made

    def assign(self, handle: int, value: int) -> None:
        self.op("ASSIGN_VARIABLE", [handle, value], [], "AssignVariableOptions")


class ModelFile:
    """A model: its first graph is the one that runs."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.operatorCodes = []
        self.model.subgraphs = []
        self.model.buffers = [schema.BufferT()]
        self.model.signatureDefs = []
        self.codes: dict[str, int] = {}

    def graph(self, name: str) -> GraphFile:
        made = GraphFile(self, name)
        self.model.subgraphs.append(made.made)
        return made

    def signature(
        self, key: str, graph: int, inputs: Mapping[str, int], outputs: Mapping[str, int]
    ) -> None:
        made = schema.SignatureDefT()
        made.signatureKey, made.subgraphIndex = key, graph
        made.inputs = [_named(name, index) for name, index in inputs.items()]
        made.outputs = [_named(name, index) for name, index in outputs.items()]
        self.model.signatureDefs.append(made)

    def code(self, name: str) -> int:
        if name not in self.codes:
            made = schema.OperatorCodeT()
            kind = "CUSTOM" if name.startswith("custom:") else name
            number = getattr(schema.BuiltinOperator, kind)
            made.builtinCode, made.deprecatedBuiltinCode = number, min(number, 127)
            made.version = {"ADD": 2, "CONCATENATION": 2, "FULLY_CONNECTED": 4}.get(name, 1)
            if kind == "CUSTOM":
                made.customCode = name.removeprefix("custom:")
            self.codes[name] = len(self.model.operatorCodes)
            self.model.operatorCodes.append(made)
        return self.codes[name]

    def data(self) -> bytes:
        builder = flatbuffers.Builder(1 << 12)
        builder.Finish(self.model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())


def _named(name: str, index: int) -> Any:
    made = schema.TensorMapT()
    made.name, made.tensorIndex = name, index
    return made
