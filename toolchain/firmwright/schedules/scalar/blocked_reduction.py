"""Reductions of several operands, such as matrix products: a block of sums in registers."""

from collections.abc import Sequence
from functools import partial

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.expression import input_permutations, lower_reduction_in_blocks, unreduced_type
from firmwright.ops.kernel import Kernel
from firmwright.schedules.scalar.unrolled_loops import unroll_inner_loops

# A block spans up to two axes along which an operand does not move, so each of its elements is
# loaded once for several sums.

_FEATURES = {4: frozenset({"fpu"}), 2: frozenset({"offsets"})}
"""The features that blocks of so many sums along an axis require: as many registers."""
_TIME_MAX = 0.9


def _shared_axes(op: OpCall) -> list[int]:
    shape = unreduced_type(op).shape
    moving = [
        {len(shape) - len(perm) + k for k, axis in enumerate(perm) if op.input(n).shape[axis] > 1}
        for n, perm in enumerate(input_permutations(op))
    ]
    outputs = [axis for axis, n in enumerate(shape) if n > 1 and axis not in op.ints_attr("axes")]
    return [axis for axis in outputs if any(axis not in axes for axes in moving)][-2:]


def _configs(size: int, op: OpCall) -> Sequence[Config]:
    dtype = unreduced_type(op).dtype
    is_fit = (dtype == FLOAT32) == (size == 4) and dtype.size_bytes <= 4
    return [{"size": size}] if is_fit and _shared_axes(op) else ()


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    shape, size = unreduced_type(op).shape, int(config["size"])
    lower_reduction_in_blocks(op, b, {axis: min(size, shape[axis]) for axis in _shared_axes(op)})
    b.transform = unroll_inner_loops


SCHEDULES = tuple(
    Schedule(
        "scalar.reduction.blocks", "reduction", features, partial(_configs, size), _build,
        disable_scheduling=True, time_max=_TIME_MAX,
    )
    for size, features in _FEATURES.items()
)  # fmt: skip
