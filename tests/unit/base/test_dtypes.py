"""The element types: lookup by either name, ranges, sizes."""

import ml_dtypes
import numpy as np
import pytest

from firmwright.base import dtypes
from firmwright.base.errors import InternalError, ModelError


@pytest.mark.parametrize("row", dtypes.DTYPES, ids=str)
def test_every_type_is_found_by_both_names(row: dtypes.DType) -> None:
    assert dtypes.get_dtype(row.name) is row
    assert dtypes.get_dtype(row.short) is row
    assert dtypes.find_dtype(row.short) is row


@pytest.mark.parametrize("row", [d for d in dtypes.DTYPES if d.is_int], ids=str)
def test_integer_ranges_match_numpy(row: dtypes.DType) -> None:
    info = np.iinfo(row.name)
    assert (row.min, row.max, row.bits) == (info.min, info.max, info.bits)
    assert row.signed == (info.min < 0)
    assert not row.is_float


@pytest.mark.parametrize("row", [d for d in dtypes.DTYPES if d.bits], ids=str)
def test_sizes_match_numpy(row: dtypes.DType) -> None:
    assert row.size_bytes == row.np.itemsize == row.stored.size_bytes
    assert row.np.name == row.name


@pytest.mark.parametrize("row", dtypes.STORAGE_DTYPES, ids=str)
def test_storage_types_have_the_range_of_numpy(row: dtypes.DType) -> None:
    assert not row.is_int
    assert not row.is_float
    if not row.has_fractions:
        info = ml_dtypes.iinfo(row.name)
        assert (row.min, row.max, row.computed) == (info.min, info.max, dtypes.INT32)
    else:
        assert row.computed is dtypes.FLOAT32


def test_bool_and_float_properties() -> None:
    assert (dtypes.BOOL.min, dtypes.BOOL.max, dtypes.BOOL.is_int) == (0, 1, False)
    assert dtypes.FLOAT32.is_float
    assert dtypes.FLOAT32.signed
    with pytest.raises(InternalError, match="no integer range"):
        _ = dtypes.FLOAT32.max


def test_a_pointer_has_neither_size_nor_numpy_type() -> None:
    with pytest.raises(InternalError, match="no fixed size"):
        _ = dtypes.HANDLE.size_bytes
    with pytest.raises(InternalError, match="no numpy type"):
        _ = dtypes.HANDLE.np


def test_an_unknown_name_raises_an_error_with_the_known_names() -> None:
    with pytest.raises(ModelError) as caught:
        dtypes.get_dtype("f8", where="m.fwir:1:2")
    assert str(caught.value) == (
        "m.fwir:1:2: unknown element type 'f8'. Try: one of "
        "i8, u8, i16, u16, i32, u32, i64, u64, f32, f64, bool, ptr, f16, bf16, "
        "f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu, f4e2m1fn, i4, u4, i2, u2."
    )
    assert dtypes.find_dtype("f8") is None
