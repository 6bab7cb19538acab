"""Blocks of sums in registers, for reductions and transposed convolutions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from firmwright.base.dtypes import FLOAT32, INT8, INT16
from firmwright.ir.graph.attributes.values import ReductionAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops import batch_matmul
from firmwright.ops.conv2d import lower_convolution
from firmwright.ops.expression import (
    input_permutations,
    lower_in_blocks,
    unreduced_type,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.ops.transpose_conv import taps
from firmwright.schedules.scalar.requantize_tables import reduce_requantization
from firmwright.schedules.scalar.unrolled_loops import unroll_inner_loops

# A block of a reduction, such as a matrix product, spans up to two axes along which an
# operand does not move, so each of its elements is loaded once for several sums. One of
# a transposed convolution spans output channels.

_FEATURES = {4: frozenset({"fpu"}), 2: frozenset({"offsets"})}
"""Sums in a row of a block -> the features, and so the registers, that it requires."""
_LANES = 4


def _moving_axes(op: OpCall) -> list[set[int]]:
    """Return the axes of the unreduced result along which each operand moves."""
    rank = len(unreduced_type(op).shape)
    moving = []
    for n, perm in enumerate(input_permutations(op)):
        axes = set()
        for k, axis in enumerate(perm):
            if op.input(n).shape[axis] > 1:
                axes.add(rank - len(perm) + k)
        moving.append(axes)
    return moving


def _shared_axes(op: OpCall) -> list[int]:
    """Return up to two output axes along which an operand does not move."""
    attrs = op.attributes(ReductionAttrs)
    moving = _moving_axes(op)
    shared = []
    for axis, size in enumerate(unreduced_type(op).shape):
        is_output = size > 1 and axis not in attrs.axes
        if is_output and any(axis not in axes for axes in moving):
            shared.append(axis)
    return shared[-2:]


@dataclass(frozen=True, slots=True)
class SumBlock(ScheduleConfig):
    """The configuration of a reduction: the sums in a row of a block."""

    size: int


def _block_configs(size: int, op: OpCall) -> Sequence[SumBlock]:
    dtype = unreduced_type(op).dtype
    is_fit = (dtype == FLOAT32) == (size == 4) and dtype.size_bytes <= 4
    return [SumBlock(size)] if is_fit and _shared_axes(op) else ()


def _block(op: OpCall) -> list[int]:
    """Return the rows and columns of a matrix product's block, held in registers."""
    rows, columns = {INT8: (2, 2), INT16: (1, 1), FLOAT32: (2, 4)}[op.input(0).dtype]
    height, width = op.output.shape[-2:]
    return [math.gcd(rows, height), math.gcd(columns, width)]


def _build_reduction(op: OpCall, config: SumBlock, b: Kernel) -> None:
    shape = unreduced_type(op).shape
    block = {axis: min(config.size, shape[axis]) for axis in _shared_axes(op)}
    lower_in_blocks(op, b, block)
    b.transform = unroll_inner_loops


def _build_batch_matmul(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    batch_matmul.lower(op, b, _block(op))
    b.transform = lambda func: reduce_requantization(func, b)


def _build_transpose_conv(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    lower_convolution(op, b, taps=taps, lanes=_LANES)
    b.transform = unroll_inner_loops


_schedule = partial(Schedule, disable_scheduling=True, time_max=0.9)
SCHEDULES = (
    *(
        _schedule(
            "scalar.reduction.blocks",
            "reduction",
            needed,
            partial(_block_configs, size),
            _build_reduction,
        )
        for size, needed in _FEATURES.items()
    ),
    _schedule(
        "scalar.batch_matmul.blocks",
        "batch_matmul",
        _FEATURES[2],
        lambda op: (NO_CONFIG,) if max(_block(op)) > 1 else (),
        _build_batch_matmul,
    ),
    _schedule(
        "scalar.transpose_conv.lanes",
        "transpose_conv",
        _FEATURES[2],
        lambda op: (NO_CONFIG,) if op.input(1).shape[0] >= _LANES else (),
        _build_transpose_conv,
        takes_weight_zero_point=True,
    ),
)
