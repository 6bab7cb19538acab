from __future__ import annotations

import math

import numpy as np
import pytest

from firmwright.base.dtypes import get_dtype
from firmwright.base.errors import InternalError, MismatchError
from firmwright.oracle.compare import (
    WHOLE_MODEL,
    Difference,
    Tolerance,
    compare_outputs,
)


def test_equal_integers_match() -> None:
    tensors = [{"y": np.arange(6, dtype=np.int8).reshape(2, 3)}] * 2
    comparison = compare_outputs(tensors, tensors)
    assert (
        comparison.values,
        comparison.mismatches,
        comparison.max_abs_error,
        comparison.first,
    ) == (12, 0, 0, None)


def test_the_first_mismatch_is_located() -> None:
    right = np.array([[1, 2], [3, 4]], np.int8)
    wrong = np.array([[1, 2], [-128, 3]], np.int8)
    comparison = compare_outputs(
        [{"y": right}, {"y": right}], [{"y": right}, {"y": wrong}]
    )
    assert comparison.mismatches == 2
    assert comparison.max_abs_error == 131
    assert comparison.first == Difference(1, "y", (1, 0), 3, -128)


def test_mismatches_of_all_samples_and_tensors_count() -> None:
    right, wrong = np.zeros(3, np.int8), np.ones(3, np.int8)
    expected = [{"x": right, "y": right}] * 3
    comparison = compare_outputs(
        expected, [{"x": wrong, "y": right}, {"x": right, "y": wrong}, expected[0]]
    )
    assert (comparison.values, comparison.mismatches) == (18, 6)
    assert comparison.first == Difference(0, "x", (0,), 0, 1)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.uint8])
def test_the_largest_error_does_not_wrap(dtype: type[np.integer]) -> None:
    info = np.iinfo(dtype)
    comparison = compare_outputs(
        [{"y": np.array([info.min], dtype)}], [{"y": np.array([info.max], dtype)}]
    )
    assert comparison.max_abs_error == int(info.max) - int(info.min)


def test_the_float_tolerance_depends_on_the_largest_value() -> None:
    right = np.array([100.0, 0.0], np.float32)
    close = np.array([100.0, 0.01], np.float32)
    far = np.array([100.0, 0.0101], np.float32)
    assert compare_outputs([{"y": right}], [{"y": close}]).mismatches == 0
    assert compare_outputs([{"y": right}], [{"y": far}]).mismatches == 1
    exact = Tolerance(relative=0.0, absolute=0.0)
    assert compare_outputs([{"y": right}], [{"y": close}], exact).mismatches == 1


def test_a_nan_matches_only_a_nan() -> None:
    nan = [{"y": np.array([np.nan, np.inf], np.float32)}]
    number = [{"y": np.array([0.0, np.inf], np.float32)}]
    assert compare_outputs(nan, nan).mismatches == 0
    assert compare_outputs(nan, number).mismatches == 1
    comparison = compare_outputs(number, nan)
    assert comparison.mismatches == 1
    assert math.isnan(comparison.max_abs_error)


def test_an_infinity_does_not_widen_the_bound() -> None:
    right = [{"y": np.array([np.inf, 1.0], np.float32)}]
    wrong = [{"y": np.array([np.inf, 2.0], np.float32)}]
    opposite = [{"y": np.array([-np.inf, 1.0], np.float32)}]
    assert compare_outputs(right, wrong).mismatches == 1
    assert compare_outputs(right, opposite).mismatches == 1


def test_an_empty_tensor_matches() -> None:
    empty = [{"y": np.zeros((0, 3), np.int8), "z": np.zeros((0,), np.float32)}]
    assert compare_outputs(empty, empty).mismatches == 0


@pytest.mark.parametrize("actual", [[], [{}]])
def test_missing_tensors_are_an_internal_error(
    actual: list[dict[str, np.ndarray]],
) -> None:
    with pytest.raises(InternalError):
        compare_outputs([{"y": np.zeros(2, np.int8)}], actual)


@pytest.mark.parametrize("actual", [np.zeros(3, np.int8), np.zeros(2, np.uint8)])
def test_another_shape_or_type_is_a_mismatch(actual: np.ndarray) -> None:
    with pytest.raises(MismatchError, match="the reference has int8"):
        compare_outputs([{"y": np.zeros(2, np.int8)}], [{"y": actual}])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn"])
def test_narrow_floats_differ_by_one_in_the_last_place_at_most(name: str) -> None:
    kind = get_dtype(name)
    tolerance = WHOLE_MODEL.with_rounding_to([kind])
    codes = np.array([1.0, 0.25], kind.np).view(f"u{kind.size_bytes}")
    reference = [{"y": codes.view(kind.np)}]
    close, far = ([{"y": np.add(codes, n).view(kind.np)}] for n in (1, 3))
    assert compare_outputs(reference, close, tolerance).mismatches == 0
    assert compare_outputs(reference, far, tolerance).mismatches == 1
    assert compare_outputs(reference, close).mismatches == 2


def test_integers_of_four_bits_must_be_equal() -> None:
    right = {"y": np.array([1, -8]).astype(get_dtype("int4").np)}
    wrong = {"y": np.array([1, 7]).astype(get_dtype("int4").np)}
    found = compare_outputs([right], [wrong])
    assert (found.mismatches, found.max_abs_error) == (1, 15)
    assert found.first is not None
    assert (found.first.expected, found.first.actual) == (-8, 7)
