"""Dot products of columns on Helium: loops over taps, as assembly and in C."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from firmwright.ir.graph.op_call import OpCall
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.contract import WeightLayout
from firmwright.kernels.counted_loops import count_executed
from firmwright.kernels.lane_loops import lane_loops
from firmwright.kernels.mve.dot_products import (
    BYTES_PER_STEP,
    STEPS_PER_ITERATION,
    DotProductLoop,
    Weights,
    dot_products,
    dot_products_in_turn,
)
from firmwright.kernels.register_files import mve_file
from firmwright.kernels.statement import statement_text
from firmwright.ops.conv2d import weights_of
from firmwright.ops.requantize import has_weight_zero_point
from firmwright.ops.schedule import ScheduleConfig

MAX_STEPS = 12

_VECTORS = 4
"""The registers of columns and weights."""


@dataclass(frozen=True, slots=True)
class WeightConfig(ScheduleConfig):
    """The configuration of a layer: how its weights are stored."""

    weights: Literal["int8", "int4"] = "int8"


def frame(
    loop: DotProductLoop, columns: tuple[str, ...], weights: Weights = Weights.INT8
) -> str:
    """Return C that leaves the sums in the vectors `first` and `second`."""
    declared = ["int32x4_t first, second;"]
    if loop.deep:
        declared.append("int32_t rounds = (taps / 16 - 1) / 8;")
    elif not loop.tail:
        declared.append("(void)taps;")
    declared += _rest(loop, weights)
    file = mve_file(_VECTORS, has_core_sums=True)
    statement = statement_text(dot_products(columns, loop, weights), file)
    return "\n".join([*declared, statement])


def _rest(loop: DotProductLoop, weights: Weights) -> list[str]:
    """Return the declaration of the length of a tail."""
    values = "taps % 16" if weights.width == BYTES_PER_STEP else "taps % 16 / 2"
    return [f"const uint32_t rest = (uint32_t)({values});"] * loop.tail


def portable_frame(
    loop: DotProductLoop, columns: tuple[str, ...], weights: Weights = Weights.INT8
) -> str:
    """Return portable C that leaves the sums in the arrays `first` and `second`."""
    program = dot_products_in_turn(columns, weights, has_tail=loop.tail)
    declared = ["int32_t first[4], second[4];", *_rest(loop, weights)]
    in_bytes = frozenset(columns if weights is Weights.INT16 else ())
    return "\n".join([*declared, lane_loops(program, in_bytes)])


@cache
def instructions(
    loop: DotProductLoop,
    columns: tuple[str, ...],
    taps: int,
    weights: Weights = Weights.INT8,
) -> int:
    rounds = (taps // BYTES_PER_STEP - 1) // STEPS_PER_ITERATION
    return count_executed(dot_products(columns, loop, weights), {"rounds": rounds})


def _all_loops() -> Iterator[DotProductLoop]:
    for head in range(MAX_STEPS + 1):
        if head:
            yield DotProductLoop(head, deep=False, tail=False)
        yield DotProductLoop(head, deep=False, tail=True)
    for head in range(1, STEPS_PER_ITERATION + 1):
        yield DotProductLoop(head, deep=True, tail=False)
        yield DotProductLoop(head, deep=True, tail=True)


DOT_PRODUCT_LOOPS = tuple(_all_loops())


def choose_loop(taps: int) -> DotProductLoop:
    steps, tail = divmod(taps, BYTES_PER_STEP)
    deep = steps > MAX_STEPS
    head = (steps - 1) % STEPS_PER_ITERATION + 1 if deep else steps
    return DotProductLoop(head, deep, tail > 0)


def weight_configs(op: OpCall, int4: WeightLayout) -> Sequence[WeightConfig]:
    """Return the configurations of a layer: weights of int8 and, if they fit, `int4`.

    They do not fit if an odd weight is -8 next to a negative even one.
    """
    channels = op.input(1).shape[0]
    blocks = ChannelBlocks(channels, int4.widths[0])
    matrix = blocks.rows(weights_of(op).reshape(channels, -1))
    if has_weight_zero_point(op) or not int4.do_weights_fit(matrix):
        return (WeightConfig(),)
    return (WeightConfig(), WeightConfig("int4"))
