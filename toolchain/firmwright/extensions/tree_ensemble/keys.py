"""Keys: integers that compare with a feature's thresholds as the feature itself does.

If the thresholds of a column are multiples of 1/2^s within 16 bits (a grid), x <= t
means ceil(x * 2^s) <= t * 2^s, which is exact. In every case, the bits of floats with
those of negative ones inverted are in the order of the floats.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, UINT16, UINT32, Array, DType
from firmwright.extensions.tree_ensemble.forest import Forest
from firmwright.ir import tir
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    Builder,
    ExprLike,
    as_expr,
    binary_expr,
    maximum,
    minimum,
    select,
)
from firmwright.ops.kernel import Kernel

_GRID_BITS_MAX = 16
_KEY_MIN, _KEY_MAX = -(1 << 31), (1 << 31) - 1
_INFINITY_BITS = 0x7F800000
_NEGATIVE_INFINITY_BITS = 0xFF800000
_FRACTION_BITS = 23
_UNIT_EXPONENT = 150
"""The exponent of a float whose fraction is a whole number."""
_PAIR_COLUMNS_MAX = 64
_UNROLLED_COLUMNS_MAX = 16
"""Number of columns up to which the code of each key is written out."""


Features: TypeAlias = tuple[tuple[int, bool], ...]
"""The feature of each column, and whether a missing value goes left."""


@dataclass(frozen=True, slots=True)
class OrderedBits:
    """Keys of 32 bits: those of the float, inverted but for the sign if negative."""

    features: Features
    dtype: ClassVar[DType] = INT32
    parameter_dtype: ClassVar[DType] = INT32

    def thresholds(self, forest: Forest) -> Array:
        """Return the keys of the thresholds as int32; both zeros are equal."""
        bits = (forest.thresholds + np.float32(0)).view(np.int32)
        return np.asarray(bits ^ ((bits >> 31) & _KEY_MAX), np.int32)

    def parameters(self, column: int) -> tuple[float, ...]:
        """Return the key of a missing value, below or above every threshold."""
        _, is_left = self.features[column]
        return (_KEY_MIN if is_left else _KEY_MAX,)

    def key(
        self, b: Builder, x: ArithExpr, bits: ArithExpr, parameters: Sequence[ExprLike]
    ) -> ArithExpr:
        (missing,) = parameters
        sign_mask = b.let("negative", bits >> 31)
        ordered = binary_expr("xor", bits, binary_expr("and", sign_mask, _KEY_MAX))
        is_missing = binary_expr("and", bits, _KEY_MAX) > _INFINITY_BITS
        return select(is_missing, ArithExpr(as_expr(missing, INT32)), ordered)


@dataclass(frozen=True, slots=True)
class FloatBits:
    """Keys of 32 bits: those of the float, compared by the sign of the threshold.

    As integers with a sign, negative floats are below all positive ones and in the
    reverse order, so that only thresholds from 0 on compare so. As integers without a
    sign, negative floats increase away from 0, above all positive ones:

        x <= t, t >= 0:  bits <= bits of t, with a sign
        x <= t, t <  0:  bits >= bits of t, without a sign

    A missing value is on the same side of every threshold in both.
    """

    features: Features
    dtype: ClassVar[DType] = INT32
    parameter_dtype: ClassVar[DType] = INT32

    def thresholds(self, forest: Forest) -> Array:
        """Return the bits of the thresholds as int32; both zeros are equal."""
        return (forest.thresholds + np.float32(0)).view(np.int32)

    def parameters(self, column: int) -> tuple[float, ...]:
        """Return the key of a missing value."""
        _, is_left = self.features[column]
        return (-1 if is_left else _KEY_MAX,)

    def key(
        self, b: Builder, x: ArithExpr, bits: ArithExpr, parameters: Sequence[ExprLike]
    ) -> ArithExpr:
        (missing,) = parameters
        if missing == _KEY_MAX:
            # Missing values without the sign bit are above every threshold.
            is_missing = bits.cast(UINT32) > _NEGATIVE_INFINITY_BITS
        else:
            is_missing = binary_expr("and", bits, _KEY_MAX) > _INFINITY_BITS
        return select(is_missing, ArithExpr(as_expr(missing, INT32)), bits)

    @staticmethod
    def is_left(key: ArithExpr, threshold: int) -> ArithExpr:
        """Return whether the branch with the threshold goes left."""
        if threshold >= 0:
            return key <= threshold
        return key.cast(UINT32) >= threshold + (1 << 32)

    @staticmethod
    def is_right(key: ArithExpr, threshold: int) -> ArithExpr:
        if threshold >= 0:
            return key > threshold
        return key.cast(UINT32) < threshold + (1 << 32)


@dataclass(frozen=True, slots=True)
class ThresholdGrid:
    """A column's grid: thresholds k / 2^`shift`, `low` <= k <= `high`, as k - `low`."""

    shift: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class GridPositions:
    """Keys of 16 bits: positions on the grid of the column, rounded up."""

    features: Features
    grids: tuple[ThresholdGrid, ...]
    dtype: ClassVar[DType] = UINT16
    parameter_dtype: ClassVar[DType] = FLOAT32

    def thresholds(self, forest: Forest) -> Array:
        """Return the positions of the thresholds as uint16, from 0 up."""
        factors = np.array([2.0**grid.shift for grid in self.grids])
        lows = np.array([grid.low for grid in self.grids], np.int64)
        scaled = forest.thresholds.astype(np.float64) * factors[forest.columns]
        positions = scaled.astype(np.int64) - lows[forest.columns]
        return np.asarray(positions, np.uint16)

    def parameters(self, column: int) -> tuple[float, ...]:
        """Return the scale, the least and greatest key, and the key of a missing value.

        The keys are whole multiples of the grid's unit, from 0 on.
        """
        grid, (_, is_left) = self.grids[column], self.features[column]
        low, high = float(grid.low), float(grid.high + 1)
        return 2.0**grid.shift, low, high, low if is_left else high

    def key(
        self, b: Builder, x: ArithExpr, bits: ArithExpr, parameters: Sequence[ExprLike]
    ) -> ArithExpr:
        scale, low, high, missing = (
            ArithExpr(as_expr(number, FLOAT32)) for number in parameters
        )
        value = b.let("value", x)
        # Comparisons with a missing value are false.
        if isinstance(parameters[3], ArithExpr):
            scaled = select(value.equal(value), value * scale, missing)
            limited = minimum(maximum(scaled, low), high)
        elif parameters[3] == parameters[1]:
            raised = _where(b, value * scale, "gt", low)
            limited = _where(b, raised, "lt", high)
        else:
            lowered = _where(b, value * scale, "lt", high)
            limited = _where(b, lowered, "gt", low)
        limited = b.let("scaled", limited)
        whole = b.let("whole", limited.cast(INT32))
        return whole + (whole.cast(FLOAT32) < limited).cast(INT32) - low.cast(INT32)


@dataclass(frozen=True, slots=True)
class GridPositionsOfBits(GridPositions):
    """The same keys from the bits of the float, for cores without an FPU."""

    parameter_dtype: ClassVar[DType] = INT32

    def parameters(self, column: int) -> tuple[float, ...]:
        """Return the bits after the point, and else as of floats."""
        grid, (_, is_left) = self.grids[column], self.features[column]
        low, high = grid.low, grid.high + 1
        return grid.shift, low, high, low if is_left else high

    def key(
        self, b: Builder, x: ArithExpr, bits: ArithExpr, parameters: Sequence[ExprLike]
    ) -> ArithExpr:
        """Round up as the negative value does down, which a shift of it rounds to."""
        shift, low, high, missing = (
            ArithExpr(as_expr(number, INT32)) for number in parameters
        )
        magnitude = b.let("magnitude", binary_expr("and", bits, _KEY_MAX))
        exponent = b.let("exponent", magnitude >> _FRACTION_BITS)
        # The implicit bit, except for zeros and the values next to them.
        implicit = minimum(exponent, 1) << _FRACTION_BITS
        fraction = binary_expr("and", magnitude, (1 << _FRACTION_BITS) - 1) + implicit
        mask = b.let("mask", -1 - (bits >> 31))
        negative = binary_expr("xor", fraction, mask) - mask
        places = minimum(maximum(_UNIT_EXPONENT - shift - exponent, 0), 31)
        whole = b.let("whole", 0 - (negative >> places))
        is_missing = magnitude > _INFINITY_BITS
        limited = minimum(maximum(whole, low), high)
        return select(is_missing, missing, limited) - low


@dataclass(frozen=True, slots=True)
class PairKeys:
    """Keys of pair_table.py: positions on grids above 16 ones."""

    grid: GridPositions
    dtype: ClassVar[DType] = UINT32

    @property
    def parameter_dtype(self) -> DType:
        return self.grid.parameter_dtype

    @property
    def features(self) -> Features:
        return self.grid.features

    def thresholds(self, forest: Forest) -> Array:
        """Return the positions of the thresholds, without the ones."""
        return self.grid.thresholds(forest)

    def parameters(self, column: int) -> tuple[float, ...]:
        return self.grid.parameters(column)

    def key(
        self, b: Builder, x: ArithExpr, bits: ArithExpr, parameters: Sequence[ExprLike]
    ) -> ArithExpr:
        position = self.grid.key(b, x, bits, parameters)
        return position.cast(UINT32) * 65536 + 65535


FeatureKeys: TypeAlias = OrderedBits | FloatBits | GridPositions | PairKeys


@dataclass(frozen=True, slots=True)
class FloatValues:
    """No keys: branches compare the features themselves, in the FPU."""

    features: Features

    def thresholds(self, forest: Forest) -> Array:
        return forest.thresholds


Comparands: TypeAlias = FeatureKeys | FloatValues
"""The operands that branches of trees as code compare."""


def _where(
    b: Builder, value: ArithExpr, order: Literal["lt", "gt"], limit: ArithExpr
) -> ArithExpr:
    """Return the value where it is below or above the limit, else the limit."""
    held = b.let("held", value)
    return select(held < limit if order == "lt" else held > limit, held, limit)


def grid_positions(
    forest: Forest, kind: type[GridPositions] = GridPositions
) -> GridPositions | None:
    """Return the keys on grids, or None if a column has no grid."""
    grids = []
    for column in range(len(forest.features)):
        grid = _grid(forest.thresholds[forest.columns == column].astype(np.float64))
        if grid is None:
            return None
        grids.append(grid)
    return kind(forest.features, tuple(grids))


def pair_keys(
    forest: Forest, kind: type[GridPositions] = GridPositions
) -> PairKeys | None:
    """Return the keys of tables of pairs, or None if they do not hold the forest."""
    keys = grid_positions(forest, kind)
    if keys is None or len(keys.features) > _PAIR_COLUMNS_MAX:
        return None
    # A step to the right starts above each threshold, and no key is 65,535.
    spans = [grid.high - grid.low for grid in keys.grids]
    return PairKeys(keys) if max(spans) < (1 << _GRID_BITS_MAX) - 2 else None


def _grid(thresholds: Array) -> ThresholdGrid | None:
    if not np.all(np.isfinite(thresholds)) or np.abs(thresholds).max() >= 1 << 24:
        return None
    for shift in range(_GRID_BITS_MAX):
        scaled = thresholds * 2.0**shift
        low, high = scaled.min(), scaled.max()
        if high - low >= (1 << _GRID_BITS_MAX) - 1 or max(-low, high) >= 1 << 23:
            return None
        if np.all(scaled == np.rint(scaled)):
            return ThresholdGrid(shift, int(low), int(high))
    return None


def store_keys(b: Kernel, kind: FeatureKeys, keys: tir.Buffer, row: ArithExpr) -> None:
    """Store the key of each column for one row of the input."""
    x, count = b.input(0), len(kind.features)
    bits = b.view("bits", x, 0, x.shape, dtype=INT32, alignment=4)

    def key(feature: ExprLike, parameters: Sequence[ExprLike]) -> ArithExpr:
        word = b.let("word", b.load(bits, [row, feature]))
        return kind.key(b, b.load(x, [row, feature]), word, parameters)

    if keys.scope == "reg" or count <= _UNROLLED_COLUMNS_MAX:
        for column, (feature, _) in enumerate(kind.features):
            b.store(keys, [column], key(feature, kind.parameters(column)))
        return
    features = np.array([feature for feature, _ in kind.features])
    columns = b.constant("columns", features, UINT16)
    table = np.array([kind.parameters(column) for column in range(count)])
    numbers = b.constant("parameters", table, kind.parameter_dtype)
    with b.for_("column", count) as v:
        place = minimum(b.load(columns, [v]).cast(INDEX), x.shape[1] - 1)
        parameters = [b.load(numbers, [v, k]) for k in range(table.shape[1])]
        b.store(keys, [v], key(b.let("at", place), parameters))
