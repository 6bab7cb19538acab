"""Writer of small .tflite files, based on the published schema's bindings.

A table is a dict: `{"_": "Tensor", "Name": "x", "Shape": int32([1, 4])}`. Numpy arrays
become vectors of scalars, lists vectors of tables, strings strings, numbers scalars.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import flatbuffers
import numpy as np
import pytest

TableDict = dict[str, Any]


def _write_value(builder: flatbuffers.Builder, value: Any) -> Any:
    match value:
        case dict():
            return _write_table(builder, value)
        case list():
            offsets = [_write_table(builder, item) for item in value]
            builder.StartVector(4, len(offsets), 4)
            for offset in reversed(offsets):
                builder.PrependUOffsetTRelative(offset)
            return builder.EndVector()
        case str() | bytes():
            return builder.CreateString(value)
        case np.ndarray():
            return builder.CreateNumpyVector(value)
        case _:
            return value


def _write_table(builder: flatbuffers.Builder, table: TableDict) -> Any:
    name = table["_"]
    module = importlib.import_module(f"tflite.{name}")
    fields = {
        key: _write_value(builder, value) for key, value in table.items() if key != "_"
    }
    getattr(module, f"{name}Start")(builder)
    for key, value in fields.items():
        getattr(module, f"{name}Add{key}")(builder, value)
    return getattr(module, f"{name}End")(builder)


@pytest.fixture(scope="session")
def write_model() -> Callable[[TableDict], bytes]:
    """Serialize a table dict as a file with the TFLite identifier."""

    def write(model: TableDict) -> bytes:
        builder = flatbuffers.Builder(1024)
        builder.Finish(_write_table(builder, model), file_identifier=b"TFL3")
        return bytes(builder.Output())

    return write


def _tensor(name: str, shape: list[int], **fields: Any) -> TableDict:
    quantization = {
        "_": "QuantizationParameters",
        "Scale": np.array([0.5], np.float32),
        "ZeroPoint": np.array([-3], np.int64),
    }
    return {
        "_": "Tensor",
        "Name": name,
        "Shape": np.array(shape, np.int32),
        "Type": 9,
        "Quantization": quantization,
        **fields,
    }


def _tiny_model() -> TableDict:
    operator = {
        "_": "Operator",
        "OpcodeIndex": 0,
        "Inputs": np.array([0, 1], np.int32),
        "Outputs": np.array([2], np.int32),
        "BuiltinOptionsType": 11,
        "BuiltinOptions": {"_": "AddOptions", "FusedActivationFunction": 1},
    }
    subgraph = {
        "_": "SubGraph",
        "Name": "main",
        "Tensors": [
            _tensor("x", [1, 4], ShapeSignature=np.array([-1, 4], np.int32)),
            _tensor("bias", [4], Buffer=1),
            _tensor("y", [1, 4]),
        ],
        "Inputs": np.array([0], np.int32),
        "Outputs": np.array([2], np.int32),
        "Operators": [operator],
    }
    signature = {
        "_": "SignatureDef",
        "SignatureKey": "serving_default",
        "Inputs": [{"_": "TensorMap", "Name": "in", "TensorIndex": 0}],
        "Outputs": [{"_": "TensorMap", "Name": "out", "TensorIndex": 2}],
    }
    return {
        "_": "Model",
        "Version": 3,
        "Description": "tiny",
        "OperatorCodes": [{"_": "OperatorCode", "Version": 2}],
        "Subgraphs": [subgraph],
        "Buffers": [
            {"_": "Buffer"},
            {"_": "Buffer", "Data": np.array([1, 2, 3, 4], np.uint8)},
        ],
        "Metadata": [{"_": "Metadata", "Name": "note", "Buffer": 1}],
        "SignatureDefs": [signature],
    }


@pytest.fixture
def tiny() -> TableDict:
    """Return y = relu(x + bias) on int8[1, 4] as a table dict to modify and write."""
    return _tiny_model()
