"""The table of element types."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from firmwright.base.errors import InternalError, ModelError

Array: TypeAlias = npt.NDArray[Any]
"""A numpy array of any element type."""


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type: `name` as in numpy and JSON (`int8`), `short` as in IR (`i8`).

    `bits` is the width in memory, 8 for bool and 0 for HANDLE, a pointer. `c_type` is
    the type in generated C (bool is `uint8_t`). Each type is one object.
    """

    name: str
    short: str
    bits: int
    c_type: str

    def __str__(self) -> str:
        return self.short

    def __reduce__(self) -> tuple[Callable[[str], "DType"], tuple[str]]:
        return get_dtype, (self.name,)

    @property
    def is_int(self) -> bool:
        """Whether values are integers; false for bool."""
        return self.short[0] in "iu"

    @property
    def is_float(self) -> bool:
        return self.short[0] == "f"

    @property
    def signed(self) -> bool:
        return self.short[0] in "if"

    @property
    def size_bytes(self) -> int:
        """The size of an element; InternalError for HANDLE, which has none."""
        if not self.bits:
            what = f"{self.name} has no fixed size; it depends on the target"
            raise InternalError(what)
        return self.bits // 8

    @property
    def min(self) -> int:
        self._require_range()
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def max(self) -> int:
        self._require_range()
        return 1 if self.short == "bool" else (1 << (self.bits - self.signed)) - 1

    @property
    def np(self) -> np.dtype[np.generic]:
        """The numpy dtype in the host's byte order."""
        if not self.bits:
            raise InternalError(f"{self.name} has no numpy type")
        return np.dtype(self.name)

    def _require_range(self) -> None:
        if not (self.is_int or self.short == "bool"):
            raise InternalError(f"{self.name} has no integer range")


INT8 = DType("int8", "i8", 8, "int8_t")
UINT8 = DType("uint8", "u8", 8, "uint8_t")
INT16 = DType("int16", "i16", 16, "int16_t")
UINT16 = DType("uint16", "u16", 16, "uint16_t")
INT32 = DType("int32", "i32", 32, "int32_t")
UINT32 = DType("uint32", "u32", 32, "uint32_t")
INT64 = DType("int64", "i64", 64, "int64_t")
UINT64 = DType("uint64", "u64", 64, "uint64_t")
FLOAT32 = DType("float32", "f32", 32, "float")
FLOAT64 = DType("float64", "f64", 64, "double")
BOOL = DType("bool", "bool", 8, "uint8_t")
HANDLE = DType("handle", "ptr", 0, "void *")

_INTEGERS = (INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64)
DTYPES: tuple[DType, ...] = (*_INTEGERS, FLOAT32, FLOAT64, BOOL, HANDLE)
_BY_LONG_NAME = {row.name: row for row in DTYPES}
_BY_NAME = {**_BY_LONG_NAME, **{row.short: row for row in DTYPES}}


def find_dtype(name: str) -> DType | None:
    """Return the dtype with this long or short name, or None."""
    return _BY_NAME.get(name)


def get_dtype(name: str, *, where: str = "") -> DType:
    """Return the dtype with this long or short name; ModelError if there is none."""
    row = _BY_NAME.get(name)
    if row is None:
        hint = f"one of {', '.join(known.short for known in DTYPES)}."
        raise ModelError(f"unknown element type {name!r}.", where=where, hint=hint)
    return row
