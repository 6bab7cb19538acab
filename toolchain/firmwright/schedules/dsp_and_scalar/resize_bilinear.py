"""resize_bilinear by rows: columns are blended once a row, and then for each output pixel."""

from collections.abc import Sequence
from functools import partial, reduce
from operator import add

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT32, DType
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, binary_expr
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.kernel import Kernel
from firmwright.ops.resize import load_neighbors, rounded_sum, share_bits, sum_dtype
from firmwright.schedules.fpu.expressions import compute_in_line
from firmwright.schedules.scalar.unrolled_loops import unroll_inner_loops
from firmwright.schedules.schedule_factories import FLOAT_FAMILIES

# Weights of few bits, such as those that double or quadruple a size, leave room for two channels of
# int8 in a word: 128 is added to each, so that no half borrows from the other. Half away from zero
# is half up, less 1 for sums below that of zeros; the highest bit of a sum tells which those are.

_LANES = 4
_PACKED_BITS = 8
_ONES, _HALVES, _SIGNS = 0x10001, 0xFF00FF, 0x80808080


def _configs(op: OpCall) -> Sequence[Config]:
    is_packed = share_bits(op, 0) + share_bits(op, 1) <= _PACKED_BITS
    fits = op.input(0).dtype == INT8 and op.output.shape[3] % _LANES == 0 and is_packed
    return ({"lanes": _LANES if fits else 1},)


def _build(feature: str, op: OpCall, config: Config, b: Kernel) -> None:
    """Blend columns of `lanes` channels in `parts`: even and odd ones, or terms of a float sum."""
    lanes, total = int(config["lanes"]), sum_dtype(op)
    batch, rows, cols, depth = op.output.shape
    shape, groups = op.input(0).shape[:3], depth // lanes
    column = UINT32 if lanes > 1 else FLOAT32 if total == FLOAT32 else INT32
    parts = 1 if column == INT32 else 2
    x, y = b.input(0), b.y
    if lanes > 1:
        x = b.view("words", x, 0, (*shape, groups), dtype=UINT32, alignment=4)
        y = b.view("out", y, 0, (batch, rows, cols, groups), dtype=UINT32, access="w", alignment=4)
    columns = b.allocate("columns", column, (shape[2], groups, parts))
    with b.loops("n oy", (batch, rows)) as (n, oy):
        above, below, up, down = load_neighbors(b, 0, oy, column)
        with b.loops("x c", (shape[2], groups)) as (ix, c):
            pair = [_widened(b, b.load(x, [n, row, ix, c]), column) for row in (above, below)]
            terms = [[a * up, z * down] for a, z in zip(*pair, strict=True)]
            each = terms[0] if column == FLOAT32 else [a + z for a, z in terms]
            for part, value in enumerate(each):
                b.store(columns, [ix, c, part], value)
        with b.for_("ox", cols) as ox:
            left, right, *shares = load_neighbors(b, 1, ox, UINT32 if lanes > 1 else total)
            with b.for_("group", groups) as c:
                each = [
                    b.load(columns, [at, c, part]).cast(share.expr.dtype) * share
                    for at, share in zip((left, right), shares, strict=True)
                    for part in range(parts)
                ]
                b.store(y, [n, oy, ox, c], _narrowed(b, each, lanes).cast(y.dtype))
    b.transform = lambda func: unroll_inner_loops(compute_in_line(feature, func))


def _widened(b: Kernel, value: ArithExpr, dtype: DType) -> list[ArithExpr]:
    if dtype != UINT32:
        return [value.cast(dtype)]
    raised = b.let("raised", binary_expr("xor", value, _SIGNS))
    return [raised & _HALVES, raised >> 8 & _HALVES]


def _narrowed(b: Kernel, terms: Sequence[ArithExpr], lanes: int) -> ArithExpr:
    if lanes == 1:
        total = reduce(add, terms)
        return total if total.expr.dtype == FLOAT32 else rounded_sum(b, total)
    bits = share_bits(b.call, 0) + share_bits(b.call, 1)
    means = []
    for left, right in zip(terms[:2], terms[2:], strict=True):
        total = b.let("total", left + right + ((1 << bits - 1) - 1) * _ONES)
        means.append(b.let("mean", total + (total >> bits + 7 & _ONES) >> bits & _HALVES))
    return binary_expr("xor", means[0] + (means[1] << 8), _SIGNS)


SCHEDULES = tuple(
    Schedule(
        f"{feature}.resize_bilinear.rows", "resize_bilinear", frozenset({feature}), _configs,
        partial(_build, feature), time_max=0.95,
    )
    for _, feature in FLOAT_FAMILIES
)  # fmt: skip
