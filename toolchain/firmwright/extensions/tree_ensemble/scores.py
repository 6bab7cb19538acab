"""The outputs of a row: scores as floats from integer sums, and the best class.

Without an FPU, the unit of the sums is subtracted from the exponent, and scores are
compared as integers. Scores are numbers, and not -0.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, INT64
from firmwright.extensions.tree_ensemble.attributes import TreeEnsembleAttrs
from firmwright.extensions.tree_ensemble.forest import EnsembleSums
from firmwright.ir import tir
from firmwright.ir.graph import OpCall
from firmwright.ir.tir.builder import ArithExpr, as_expr, call_intrinsic
from firmwright.ir.tir.intrinsic import read_intrinsics
from firmwright.ops.kernel import Kernel

_SCALED_SUM, _GREATER = "scaled_sum", "greater_score"


def store_sums(
    call: OpCall, b: Kernel, plan: EnsembleSums, sums: tir.Buffer, row: ArithExpr
) -> None:
    """Store the outputs of a row; the last may be a constant total less the others."""
    outputs = b.y.shape[1]
    if plan.holds_floats:
        shape = b.y.shape
        bits = b.view("bits", b.y, 0, shape, dtype=INT32, access="w", alignment=4)
        for k in range(outputs):
            b.store(bits, [row, k], b.load(sums, [k]))
        if len(b.outputs) > 1:
            b.store(b.outputs[1], [row], b.load(sums, [outputs]).cast(INT64))
        return
    unit = 2.0 ** -call.attributes(TreeEnsembleAttrs).exponent
    whole = [b.load(sums, [k]) for k in range(len(plan.starts))]
    if plan.total is not None:
        whole.append(plan.total - sum(whole[1:], whole[0]))
    scores = []
    for item in whole:
        score = call_intrinsic(_SCALED_SUM, [item, as_expr(unit, FLOAT32)], FLOAT32)
        scores.append(b.let("score", score))
    for k, score in enumerate(scores):
        b.store(b.y, [row, k], score)
    if len(b.outputs) > 1:
        b.store(b.outputs[1], [row], _find_best(b, scores).cast(INT64))


def _find_best(b: Kernel, scores: Sequence[ArithExpr]) -> ArithExpr:
    """Return the number of the greatest score, the first of equal ones."""
    best, place = b.register("best", FLOAT32), b.register("place", INT32)
    best.set(scores[0])
    place.set(0)
    for k, score in enumerate(scores[1:], 1):
        is_greater = call_intrinsic(_GREATER, [score, best.value], INT32)
        with b.if_(is_greater > 0):
            best.set(score)
            place.set(k)
    return place.value


INTRINSICS = tuple(
    read_intrinsics(
        __file__,
        {
            _SCALED_SUM: lambda number, unit: np.float32(number) * np.float32(unit),
            _GREATER: lambda a, b: np.greater(a, b).astype(np.int32),
        },
    ).values()
)
