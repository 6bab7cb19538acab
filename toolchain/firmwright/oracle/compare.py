"""Comparison of device results with the reference: bit-exact, or within a tolerance.

Integers must be equal. A float y is correct if |y - r| <= 1e-4 max|r| + 1e-5, where r
is the reference tensor; NaNs and infinities must agree in position and sign. In a model
that computes in float64 only, the bound is 1e-9 max|r| + 1e-12. Floats of 16 or fewer
bits that the model makes add a unit in the last place (`with_rounding_to`). A value
with an interval by proof is also correct within the bound of that interval.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firmwright.base.counted_outputs import count_name
from firmwright.base.dtypes import Array, DType, find_dtype
from firmwright.base.errors import InternalError, MismatchError

Tensors = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Interval:
    """Arrays of the shape of a tensor, between which each of its values must be."""

    low: Array
    high: Array


Intervals = Mapping[str, Interval]
"""Intervals by the names of tensors, of which some have none."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The bound on a float error: `relative` * largest reference value + `absolute`."""

    relative: float = 1e-4
    absolute: float = 1e-5

    def with_rounding_to(self, kinds: Iterable[DType]) -> "Tolerance":
        """Return the bound of results that depend on roundings to narrow floats.

        The coarsest type adds the distance of its neighbors, relative to 1 and near 0.
        """
        relative = absolute = 0.0
        for kind in kinds:
            one = np.ones(1, kind.np).view(f"u{kind.size_bytes}")
            codes = np.concatenate([one, one + 1, one * 0, one * 0 + 1])
            first, second, zero, least = codes.astype(one.dtype).view(kind.np)
            relative = max(relative, float(second) - float(first))
            absolute = max(absolute, float(least) - float(zero))
        more = self.relative + relative, self.absolute + absolute
        return replace(self, relative=more[0], absolute=more[1])


WHOLE_MODEL = Tolerance()
WHOLE_MODEL_IN_DOUBLE = Tolerance(1e-9, 1e-12)
"""The bound of models without float32, a million times eps of float64."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One differing value."""

    sample: int
    tensor: str
    index: tuple[int, ...]
    expected: int | float
    actual: int | float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Totals over all samples, with the largest absolute error and first mismatch.

    `proved` values exceed the tolerance, but not that of their intervals.
    """

    values: int
    mismatches: int
    max_abs_error: int | float
    first: Difference | None
    proved: int = 0


def compare_outputs(
    expected: Sequence[Tensors],
    actual: Sequence[Tensors],
    tolerance: Tolerance = WHOLE_MODEL,
    intervals: Sequence[Intervals] = (),
) -> Comparison:
    """Compare each tensor of `expected` with its counterpart, sample by sample.

    `intervals` are those of each sample, or none.
    Raises MismatchError if shapes or dtypes differ, InternalError if the numbers of
    samples do.
    """
    if len(expected) != len(actual):
        raise InternalError(
            f"{len(actual)} samples cannot be compared with {len(expected)}."
        )
    parts: list[Comparison] = []
    for sample, tensors in enumerate(expected):
        proved = intervals[sample] if intervals else {}
        for name, reference in tensors.items():
            result = _namesake(actual[sample], name)
            count = actual[sample].get(count_name(name))
            if count is not None and count_name(name) not in tensors:
                parts.append(compare_length(sample, name, reference, result, count))
                result = cut_to_reference(result, reference)
            interval = proved.get(name)
            compared = compare_tensor(
                sample, name, reference, result, tolerance, interval
            )
            parts.append(compared)
    return merge_comparisons(parts)


def compare_tensor(
    sample: int,
    name: str,
    expected: Array,
    actual: Array,
    tolerance: Tolerance = WHOLE_MODEL,
    interval: Interval | None = None,
) -> Comparison:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        raise MismatchError(
            f"tensor {name!r} is {actual.dtype}{list(actual.shape)}, the reference has "
            f"{expected.dtype}{list(expected.shape)}.",
            hint=(
                "report this with the model: the importer and the reference read it "
                "differently."
            ),
        )
    dtype = find_dtype(expected.dtype.name)
    if dtype is not None and dtype.has_fractions:
        errors, wrong, proved = _float_errors(expected, actual, tolerance, interval)
    else:
        # int64 holds the difference of two 32-bit values; wider values use Python
        # integers.
        wide = np.int64 if expected.dtype.itemsize <= 4 else np.object_
        errors = np.abs(actual.astype(wide) - expected.astype(wide))
        wrong, proved = expected != actual, 0
    mismatches = int(np.count_nonzero(wrong))
    maximum = errors.max() if errors.size else 0
    largest = maximum.item() if isinstance(maximum, np.generic) else int(maximum)
    first = None
    if mismatches:
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        wanted = expected[index].item()
        first = Difference(sample, name, index, wanted, actual[index].item())
    return Comparison(int(expected.size), mismatches, largest, first, proved)


def compare_length(
    sample: int, name: str, expected: Array, actual: Array, count: Array
) -> Comparison:
    """Compare the number of elements in use with the length of the reference."""
    pairs = zip(expected.shape, actual.shape, strict=False)
    lengths = [own for own, most in pairs if own != most]
    number = int(count)
    if lengths == [number] or (not lengths and number in actual.shape):
        return Comparison(1, 0, 0, None)
    wanted = lengths[0] if lengths else max(actual.shape, default=0)
    difference = Difference(sample, count_name(name), (), wanted, number)
    return Comparison(1, 1, abs(wanted - number), difference)


def cut_to_reference(actual: Array, expected: Array) -> Array:
    """Return the first elements along the axis on which the reference is shorter."""
    if actual.ndim != expected.ndim:
        return actual
    return actual[tuple(slice(size) for size in expected.shape)]


def merge_comparisons(parts: Iterable[Comparison]) -> Comparison:
    """Combine comparisons; `first` is the first difference of any of them."""
    values = mismatches = proved = 0
    largest: int | float = 0
    first: Difference | None = None
    for part in parts:
        values += part.values
        mismatches += part.mismatches
        proved += part.proved
        # A NaN error counts as the largest; comparisons with NaN are false.
        if not part.max_abs_error <= largest:
            largest = part.max_abs_error
        first = first or part.first
    return Comparison(values, mismatches, largest, first, proved)


def _float_errors(
    expected: Array, actual: Array, tolerance: Tolerance, interval: Interval | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
    """Return absolute errors (0 for equal NaNs, infinities), and which are wrong.

    The last result is the number of those that only the interval makes correct.
    """
    reference = expected.astype(np.float64)
    value = actual.astype(np.float64)
    same = (reference == value) | (np.isnan(reference) & np.isnan(value))
    errors = np.zeros(reference.shape)
    np.subtract(value, reference, out=errors, where=~same)
    errors = np.abs(errors)
    finite = np.abs(reference[np.isfinite(reference)])
    largest = finite.max() if finite.size else 0.0
    bound = tolerance.relative * largest + tolerance.absolute
    beyond = ~same & ~(errors <= bound)
    wrong = beyond
    if interval is not None and interval.low.shape == value.shape:
        low, high = interval.low - bound, interval.high + bound
        wrong = beyond & ~((low <= value) & (value <= high))
    return errors, wrong, int(np.count_nonzero(beyond & ~wrong))


def _namesake(tensors: Tensors, name: str) -> Array:
    if name not in tensors:
        raise InternalError(f"tensor {name!r} is missing among {sorted(tensors)}.")
    return tensors[name]
