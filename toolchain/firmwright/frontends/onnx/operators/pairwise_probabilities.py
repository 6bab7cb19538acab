"""Class probabilities of a support vector machine from those of pairs of classes.

ONNX Runtime solves for the probabilities p that agree best with the pairs by an
iteration over the classes, which ends when the residuals are small. The iterations are
unrolled; one after the end changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.frontends.onnx.node_context import CallEmitter, OnnxValue

_LEAST = 1e-7
_TOLERANCE = 0.005
"""The residual at the end, times the number of classes."""
_ITERATIONS_OF_TWO, _ITERATIONS = 2, 6
"""Two classes need at most two, random probabilities of up to ten classes four."""


def emit_pair_probabilities(
    emit: CallEmitter, scores: OnnxValue, slopes: Array, offsets: Array
) -> OnnxValue:
    """Return the probabilities of the first classes of the pairs, [rows, pairs]."""
    formula = (
        "p = 1.0 / (1.0 + exp(a * b + c)); "
        f"min(max(p, float32({_LEAST})), float32({1 - _LEAST}))"
    )
    parameters = emit.const(slopes, "slopes"), emit.const(offsets, "offsets")
    return emit.expression(formula, scores, *parameters)


@dataclass(slots=True)
class _Solution:
    """Probabilities p [rows, classes], Q p and p Q p of the quadratic form Q."""

    p: OnnxValue
    product: OnnxValue
    form: OnnxValue


def emit_class_probabilities(
    emit: CallEmitter, of_pairs: OnnxValue, pairs: Sequence[tuple[int, int]]
) -> OnnxValue:
    """Return the probabilities of the classes, [rows, classes]."""
    rows, classes = of_pairs.shape[0], pairs[-1][1] + 1
    form = _quadratic_form(emit, of_pairs, pairs)
    start = np.full((rows, classes), 1 / classes, np.float32)
    p: OnnxValue = emit.const(start, "start")
    going: OnnxValue | None = None
    for _ in range(_ITERATIONS_OF_TWO if classes == 2 else _ITERATIONS):
        line = emit.reshape(p, (rows, 1, classes))
        product = emit.reduction("a * b", "add", (2,), form, line, keep=False)
        total = emit.reduction("a * b", "add", (1,), p, product)
        residual = emit.reduction("abs(a - b)", "max", (1,), product, total)
        step = f"where(a < float32({_TOLERANCE / classes}), 0.0, 1.0)"
        is_open = emit.expression(step, residual)
        going = is_open if going is None else emit.expression("a * b", going, is_open)
        solution = _Solution(p, product, total)
        for place in range(classes):
            _improve(emit, solution, form, place, going)
        p = solution.p
    return p


def _improve(
    emit: CallEmitter,
    s: _Solution,
    form: OnnxValue,
    place: int,
    going: OnnxValue,
) -> None:
    """Solve for the probability of one class, and scale all to a sum of 1."""
    row = emit.index_axis(form, 1, place)
    own = emit.slice_axis(row, 1, place, 1)
    mine = emit.slice_axis(s.product, 1, place, 1)
    change = emit.expression("a * ((c - b) / d)", going, mine, s.form, own)
    classes = row.shape[1]
    unit = np.zeros((1, classes), np.float32)
    unit[0, place] = 1
    s.p = emit.expression(
        "(a + b * c) / (1.0 + b)", s.p, change, emit.const(unit, "unit")
    )
    formula = "(a + b * (b * c + 2.0 * d)) / (1.0 + b) / (1.0 + b)"
    s.form = emit.expression(formula, s.form, change, own, mine)
    s.product = emit.expression("(a + b * c) / (1.0 + b)", s.product, change, row)


def _quadratic_form(
    emit: CallEmitter, of_pairs: OnnxValue, pairs: Sequence[tuple[int, int]]
) -> OnnxValue:
    """Return Q [rows, classes, classes] of the pairs' probabilities r[i, j].

    Q[i, i] is the sum of all r[j, i]^2, and Q[i, j] is -r[i, j] r[j, i].
    """
    rows, classes = of_pairs.shape[0], pairs[-1][1] + 1
    both = emit.concat([of_pairs, emit.expression("1.0 - a", of_pairs)], 1)
    places = np.zeros((classes, classes), np.int64)
    for number, (i, j) in enumerate(pairs):
        places[i, j], places[j, i] = number, number + len(pairs)
    one = emit.const(np.eye(classes, dtype=np.float32), "one")
    other = emit.const(1 - np.eye(classes, dtype=np.float32), "other")
    shape = (rows, classes, classes)
    mine = emit.reshape(emit.gather(both, 1, places), shape)
    theirs = emit.reshape(emit.gather(both, 1, places.T), shape)
    sums = emit.reduction("a * a * b", "add", (2,), theirs, other)
    products = emit.expression("a * b * c", mine, theirs, other)
    return emit.expression("a * b - c", sums, one, products)
