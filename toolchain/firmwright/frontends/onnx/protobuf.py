"""The optional package `onnx`, loaded on first use.

The names of element types are those of base/dtypes.py.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError, ToolMissingError, UsageError

Message: TypeAlias = Any
"""A protobuf message; its class is built at run time, so its fields have no types."""


@dataclass(frozen=True, slots=True)
class SyntheticAttribute:
    """An attribute of a `SyntheticNode`: a number, text or tuple."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class SyntheticNode:
    """A node that another frontend made without the package, in place of NodeProto."""

    op_type: str
    input: tuple[str, ...]
    output: tuple[str, ...]
    attribute: tuple[SyntheticAttribute, ...] = ()
    domain: str = ""


_NAMES = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn",
}


def onnx_package() -> Any:
    try:
        import onnx.numpy_helper
        import onnx.reference
        import onnx.version_converter

        import onnx
    except ImportError as error:
        what = (
            "reading ONNX models needs the Python package onnx, which is not installed."
        )
        raise ToolMissingError(what, hint="pip install 'firmwright[onnx]'.") from error
    return onnx


def dtype_name(code: int) -> str:
    names = {value: key for key, value in onnx_package().TensorProto.DataType.items()}
    name = str(names.get(code, f"type {code}")).lower()
    return _NAMES.get(name, name)


def type_name(name: str) -> str:
    """Return ONNX's name of an element type, in lower case."""
    return {value: key for key, value in _NAMES.items()}.get(name, name)


def dtype_code(name: str) -> int:
    return int(onnx_package().TensorProto.DataType.Value(type_name(name).upper()))


def tensor_array(tensor: Message) -> Array:
    """Return a TensorProto's values, strings as bytes.

    Raise UsageError if they are in another file.
    """
    if tensor.data_location == onnx_package().TensorProto.EXTERNAL:
        what = f"the data of {tensor.name!r} are in another file."
        raise UsageError(what, hint="load the model by its path.")
    return np.asarray(onnx_package().numpy_helper.to_array(tensor))


def attribute_value(message: Message) -> Any:
    """Return an attribute's value: a number, str, tuple, array or a GraphProto."""
    if isinstance(message, SyntheticAttribute):
        return message.value
    kinds = onnx_package().AttributeProto
    match message.type:
        case kinds.FLOAT:
            return float(np.float32(message.f))
        case kinds.INT:
            return int(message.i)
        case kinds.STRING:
            return _text(message.s)
        case kinds.FLOATS:
            return tuple(float(np.float32(value)) for value in message.floats)
        case kinds.INTS:
            return tuple(map(int, message.ints))
        case kinds.STRINGS:
            return tuple(map(_text, message.strings))
        case kinds.TENSOR:
            return tensor_array(message.t)
        case kinds.GRAPH:
            return message.g
    raise NotSupportedError(f"an attribute {message.name} of an unknown kind")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def quoted_name(node: Message) -> str:
    """Return ` "name"` of a node whose name its result does not show, else ""."""
    name = "" if isinstance(node, SyntheticNode) else node.name
    return f' "{name}"' if name and name not in node.output else ""
