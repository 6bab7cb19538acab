"""The element types of TFLite's tensors that operators compute."""

from firmwright.base import dtypes
from firmwright.base.dtypes import DType


def find_computed_dtype(name: str) -> DType | None:
    """Return the dtype with this name, or None for one that operators do not compute.

    TFLite stores two numbers of int4 in a byte, unlike our storage type of that name.
    """
    dtype = dtypes.find_dtype(name)
    return None if dtype is None or dtype.computed_as else dtype
