"""The table of element types.

Storage types hold numbers that programs move and convert, and compute as float32 or
int32: narrow floats, and integers of two or four bits, which take a byte each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from firmwright.base.errors import InternalError, ModelError, ToolMissingError

Array: TypeAlias = npt.NDArray[Any]
"""A numpy array of any element type."""


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type: `name` as in numpy and JSON (`int8`), `short` as in IR (`i8`).

    `bits` is the width in memory, 8 for bool and 0 for HANDLE, a pointer. `c_type` is
    the type in generated C (bool is `uint8_t`). `computed_as` is the short name of the
    type in which the numbers of a storage type are computed, "" for other types. Each
    type is one object.
    """

    name: str
    short: str
    bits: int
    c_type: str
    computed_as: str = ""

    def __str__(self) -> str:
        return self.short

    def __reduce__(self) -> tuple[Callable[[str], "DType"], tuple[str]]:
        return get_dtype, (self.name,)

    @property
    def is_int(self) -> bool:
        """Whether programs compute integers of this type; false for bool."""
        return self.short[0] in "iu" and not self.computed_as

    @property
    def is_float(self) -> bool:
        """Whether programs compute floats of this type."""
        return self.short[0] == "f" and not self.computed_as

    @property
    def computed(self) -> "DType":
        """The type in which numbers of this type are computed, often itself."""
        return get_dtype(self.computed_as) if self.computed_as else self

    @property
    def has_fractions(self) -> bool:
        """Whether the numbers are floats, computed or only stored."""
        return self.computed.is_float

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
        return -(1 << (self._value_bits - 1)) if self.signed else 0

    @property
    def max(self) -> int:
        width = self._value_bits - self.signed
        return 1 if self.short == "bool" else (1 << width) - 1

    @property
    def stored(self) -> "DType":
        """The type of the elements in C: of a storage type, of its codes."""
        if not self.computed_as:
            return self
        return get_dtype(self.c_type.removesuffix("_t"))

    @property
    def np(self) -> np.dtype[np.generic]:
        """The numpy dtype in the host's byte order.

        Those of most storage types are registered by the package ml_dtypes.
        """
        if not self.bits:
            raise InternalError(f"{self.name} has no numpy type")
        if self.computed_as:
            _register_storage_types(self.name)
        return np.dtype(self.name)

    @property
    def _value_bits(self) -> int:
        """The width of an integer's values; InternalError for other types."""
        if self.short == "bool":
            return self.bits
        if not self.computed.is_int:
            raise InternalError(f"{self.name} has no integer range")
        return int(self.short[1:])


def _register_storage_types(name: str) -> None:
    """Register numpy's types of narrow numbers; float16 is numpy's own."""
    if name == "float16":
        return
    try:
        import ml_dtypes  # noqa: F401  # registers its types
    except ImportError as error:
        what = f"numbers of type {name} need the Python package ml_dtypes."
        raise ToolMissingError(what, hint="pip install ml_dtypes.") from error


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
FLOAT16 = DType("float16", "f16", 16, "uint16_t", "f32")
BFLOAT16 = DType("bfloat16", "bf16", 16, "uint16_t", "f32")
FLOAT8_E4M3FN = DType("float8_e4m3fn", "f8e4m3fn", 8, "uint8_t", "f32")
FLOAT8_E4M3FNUZ = DType("float8_e4m3fnuz", "f8e4m3fnuz", 8, "uint8_t", "f32")
FLOAT8_E5M2 = DType("float8_e5m2", "f8e5m2", 8, "uint8_t", "f32")
FLOAT8_E5M2FNUZ = DType("float8_e5m2fnuz", "f8e5m2fnuz", 8, "uint8_t", "f32")
FLOAT8_E8M0FNU = DType("float8_e8m0fnu", "f8e8m0fnu", 8, "uint8_t", "f32")
FLOAT4_E2M1FN = DType("float4_e2m1fn", "f4e2m1fn", 8, "uint8_t", "f32")
INT4 = DType("int4", "i4", 8, "int8_t", "i32")
UINT4 = DType("uint4", "u4", 8, "uint8_t", "i32")
INT2 = DType("int2", "i2", 8, "int8_t", "i32")
UINT2 = DType("uint2", "u2", 8, "uint8_t", "i32")

_INTEGERS = (INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64)
STORAGE_DTYPES: tuple[DType, ...] = (
    FLOAT16,
    BFLOAT16,
    FLOAT8_E4M3FN,
    FLOAT8_E4M3FNUZ,
    FLOAT8_E5M2,
    FLOAT8_E5M2FNUZ,
    FLOAT8_E8M0FNU,
    FLOAT4_E2M1FN,
    INT4,
    UINT4,
    INT2,
    UINT2,
)
DTYPES: tuple[DType, ...] = (
    *_INTEGERS,
    FLOAT32,
    FLOAT64,
    BOOL,
    HANDLE,
    *STORAGE_DTYPES,
)
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
