"""The element types of TFLite's tensors, most of which operators compute."""

from firmwright.base import dtypes
from firmwright.base.dtypes import FLOAT16, DType

_CONVERSIONS = frozenset({"CAST", "DEQUANTIZE"})
"""The operators that take and make float16."""


def find_tensor_dtype(name: str) -> DType | None:
    """Return the dtype with this name, or None for one that no operator accepts.

    TFLite stores two numbers of int4 in a byte, unlike our storage type of that name.
    """
    dtype = dtypes.find_dtype(name)
    is_known = dtype is FLOAT16 or (dtype is not None and not dtype.computed_as)
    return dtype if is_known else None


def find_computed_dtype(name: str) -> DType | None:
    """Return the dtype with this name, or None for one that is not computed."""
    dtype = find_tensor_dtype(name)
    return None if dtype is FLOAT16 else dtype


def find_operand_dtype(name: str, op: str) -> DType | None:
    """Return the dtype with this name, or None for one that `op` does not accept."""
    return find_tensor_dtype(name) if op in _CONVERSIONS else find_computed_dtype(name)
