"""Hints for operators with unsupported tensor types."""

from collections.abc import Sequence

from firmwright.ir.raw_model import RawTensor

_UINT8 = (
    "uint8 quantization, which int8 has replaced: convert the model again with the inference "
    "type int8"
)
_HYBRID = (
    "floats with int8 weights (dynamic-range quantization): give the converter a representative "
    "dataset, so that activations are int8 too, or disable its optimizations"
)
_HALF = "float16 activations: convert the model to float32, or quantize it to int8"


def dtype_advice(inputs: Sequence[RawTensor], outputs: Sequence[RawTensor]) -> str:
    """Return the reason and a remedy for unsupported tensor types, "" for supported types."""
    data = [tensor for tensor in inputs if tensor.buffer is None]
    weights = [tensor for tensor in inputs if tensor.buffer is not None]
    if any(t.dtype == "uint8" and t.quantization is not None for t in (*inputs, *outputs)):
        return _UINT8
    if any(t.dtype in ("float16", "bfloat16") for t in (*data, *outputs)):
        return _HALF
    has_floats = any(tensor.dtype == "float32" for tensor in data)
    if has_floats and any(t.dtype == "int8" and t.quantization is not None for t in weights):
        return _HYBRID
    return ""
