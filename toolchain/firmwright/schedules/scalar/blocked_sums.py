"""Blocks of sums in registers, for reductions of several operands and transposed convolutions."""

import math
from collections.abc import Sequence
from functools import partial

from firmwright.base.dtypes import FLOAT32, INT8, INT16
from firmwright.ir.graph.attributes.values import ReductionAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops import batch_matmul
from firmwright.ops.conv2d import lower_convolution
from firmwright.ops.expression import input_permutations, lower_in_blocks, unreduced_type
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import Config, Schedule
from firmwright.ops.transpose_conv import taps
from firmwright.schedules.scalar.requantize_tables import reduce_requantization
from firmwright.schedules.scalar.unrolled_loops import unroll_inner_loops

# A block of a reduction, such as a matrix product, spans up to two axes along which an operand does
# not move, so each of its elements is loaded once for several sums. One of a transposed convolution
# spans output channels.

_FEATURES = {4: frozenset({"fpu"}), 2: frozenset({"offsets"})}
"""The features, and so the registers, that blocks with this number of sums in a row require."""
_LANES = 4


def _shared_axes(op: OpCall) -> list[int]:
    attrs = op.attributes(ReductionAttrs)
    shape = unreduced_type(op).shape
    moving = [
        {len(shape) - len(perm) + k for k, axis in enumerate(perm) if op.input(n).shape[axis] > 1}
        for n, perm in enumerate(input_permutations(op))
    ]
    outputs = [axis for axis, n in enumerate(shape) if n > 1 and axis not in attrs.axes]
    return [axis for axis in outputs if any(axis not in axes for axes in moving)][-2:]


def _block_configs(size: int, op: OpCall) -> Sequence[Config]:
    dtype = unreduced_type(op).dtype
    is_fit = (dtype == FLOAT32) == (size == 4) and dtype.size_bytes <= 4
    return [{"size": size}] if is_fit and _shared_axes(op) else ()


def _block(op: OpCall) -> list[int]:
    """Return the rows and columns of a matrix product's blocks; sums stay in registers."""
    steps = {INT8: (2, 2), INT16: (1, 1), FLOAT32: (2, 4)}[op.input(0).dtype]
    return [math.gcd(step, count) for step, count in zip(steps, op.output.shape[-2:], strict=True)]


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    if op.op == "batch_matmul":
        batch_matmul.lower(op, b, _block(op))
        b.transform = lambda func: reduce_requantization(func, b)
        return
    if op.op == "transpose_conv":
        lower_convolution(op, b, taps=taps, lanes=_LANES)
    else:
        shape, size = unreduced_type(op).shape, int(config["size"])
        lower_in_blocks(op, b, {axis: min(size, shape[axis]) for axis in _shared_axes(op)})
    b.transform = unroll_inner_loops


_schedule = partial(Schedule, build=_build, disable_scheduling=True, time_max=0.9)
SCHEDULES = (
    *(
        _schedule("scalar.reduction.blocks", "reduction", needed, partial(_block_configs, size))
        for size, needed in _FEATURES.items()
    ),
    _schedule(
        "scalar.batch_matmul.blocks",
        "batch_matmul",
        _FEATURES[2],
        lambda op: ({},) if max(_block(op)) > 1 else (),
    ),
    _schedule(
        "scalar.transpose_conv.lanes",
        "transpose_conv",
        _FEATURES[2],
        lambda op: ({},) if op.input(1).shape[0] >= _LANES else (),
        takes_weight_zero_point=True,
    ),
)
