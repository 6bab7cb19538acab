"""What to do about an operator that is refused for the types of its tensors.

In: the types of a node's tensors, which of them are constant. Out: a sentence, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.ir.raw_model import RawTensor

_UINT8 = (
    "quantised to uint8, the scheme that int8 replaced: convert the model again, its "
    "inference type int8"
)
_HYBRID = (
    "floats with int8 weights (dynamic-range quantisation): give the converter a representative "
    "dataset, then activations are int8 too, or no optimisation at all"
)
_HALF = "float16 beyond weights: convert the model to float32, or quantise it to int8"


def dtype_advice(inputs: Sequence[RawTensor], outputs: Sequence[RawTensor]) -> str:
    """Why such types are refused, and what helps; empty if the types say nothing."""
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
