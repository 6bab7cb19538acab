"""conv2d and fully_connected without vectors: pixels times groups of channels."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TypeAlias

from firmwright.base.dtypes import FLOAT32, INT8, INT16
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.kernels.contract import InterleavedChannels
from firmwright.kernels.scalar.gemm import is_contiguous
from firmwright.ops import fully_connected
from firmwright.ops.conv2d import bias_of, weights_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import apply_activation, weight_zero_point
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.computed_channels import computed_channels, integer_layer
from firmwright.schedules.epilogue import FormPreference
from firmwright.schedules.gemm import Gemm, float_gemm, plan_gemm
from firmwright.schedules.row_band import PixelBlock
from firmwright.schedules.scalar.gemm_tiles import (
    CompiledTile,
    LoopTile,
    multiply_windows,
    stored_offset,
)
from firmwright.schedules.scalar.microkernels import (
    FAMILIES,
    MLA_FAMILY,
    MicrokernelFamily,
)
from firmwright.schedules.schedule_factories import thumb1_schedule

# A pointwise convolution multiplies directly from its input. Others first pack the
# windows of a block of pixels as columns, with the zero point outside the input, so
# that it can be folded into the bias. The last block overlaps its predecessor.
#
# `scalar.conv2d.blocks` leaves the products to the compiler; for int8 some cores have
# assembly micro-kernels, with schedules named after the family.

_LANES = {"conv2d": 4, "fully_connected": 8}
_UNROLL = 4
"""Unrolled taps, by default."""
_MAX_ACCUMULATORS = 12
_CHANNEL, _ENDING = 8, 6
"""Approximate cost of a channel per block, and of requantizing an output."""


def _supports(op: OpCall) -> bool:
    dtype = op.input(0).dtype
    if dtype not in (INT8, FLOAT32):
        return False
    is_exact = op.op == "conv2d" or dtype != INT8
    return is_exact or fully_connected.has_int32_multiplier(op)


@dataclass(frozen=True, slots=True)
class ScalarBlock(ScheduleConfig):
    """The configuration of compiled products: pixels, channels and steps of a block.

    What is None has the default of the operator. A fully connected layer has blocks of
    one pixel.
    """

    pixels: int | None = None
    lanes: int | None = None
    unroll: int | None = None


def _conv_configs(op: OpCall) -> Sequence[ScalarBlock]:
    pixels = op.output.elements // op.output.shape[3]
    return (ScalarBlock(min(2, pixels)),) if _supports(op) else ()


def _conv_space(op: OpCall) -> Sequence[ScalarBlock]:
    pixels = op.output.elements // op.output.shape[3]
    counts = range(1, min(4, pixels) + 1)
    usual = 2, _LANES["conv2d"], _UNROLL
    if not _supports(op):
        return ()
    blocks = []
    for block in product(counts, (1, 2, 3, 4, 6, 8), (1, 2, 4, 8)):
        count, lanes, _ = block
        if count * lanes <= _MAX_ACCUMULATORS and block != usual:
            blocks.append(ScalarBlock(*block))
    return tuple(blocks)


def _matrix_configs(op: OpCall) -> Sequence[ScalarBlock]:
    return (ScalarBlock(),) if _supports(op) else ()


def _matrix_space(op: OpCall) -> Sequence[ScalarBlock]:
    pairs = product((2, 4, 6, 8, 10, 12), (1, 2, 4, 8)) if _supports(op) else ()
    usual = _LANES["fully_connected"], _UNROLL
    return [ScalarBlock(lanes=n, unroll=k) for n, k in pairs if (n, k) != usual]


_FindBlocks: TypeAlias = Callable[[OpCall], Sequence[ScalarBlock]]


def _of_int8(find: _FindBlocks) -> _FindBlocks:
    """Return `find` for layers of int8: others have no form of a requantization."""
    return lambda op: find(op) if op.input(0).dtype == INT8 else ()


def _build(
    op: OpCall,
    config: ScalarBlock,
    b: Kernel,
    preference: FormPreference = FormPreference.FITTED,
) -> None:
    lanes = config.lanes or _LANES[op.op]
    unroll = config.unroll or _UNROLL
    pixels = op.output.elements // op.input(1).shape[0]
    block = min(config.pixels or 1, pixels)
    if op.input(0).dtype == FLOAT32:
        gemm = _plan_float(b, op, lanes, block, unroll)
    else:
        gemm = _plan_compiled(b, op, lanes, block, unroll, preference)
    multiply_windows(b, op, gemm)


def _build_narrow(op: OpCall, config: ScalarBlock, b: Kernel) -> None:
    _build(op, config, b, FormPreference.NARROW)


def _plan_compiled(
    b: Kernel,
    op: OpCall,
    lanes: int,
    pixels: int,
    unroll: int,
    preference: FormPreference,
) -> Gemm[tir.Buffer]:
    rows = computed_channels(b, integer_layer(op), lambda computed: 1)
    # Relative to their zero point, weights need nine bits.
    element = INT16 if weight_zero_point(op) else INT8
    tile = CompiledTile(InterleavedChannels(element, (lanes,)), pixels, unroll)
    make_end = partial(rows.requantize, b, preference=preference)
    return plan_gemm(b, tile, rows, rows.bias, make_end)


def _plan_float(
    b: Kernel, op: OpCall, lanes: int, pixels: int, unroll: int
) -> Gemm[tir.Buffer]:
    layout = InterleavedChannels(FLOAT32, (lanes,))
    weights = weights_of(op)
    outputs = len(weights)
    packed = layout.pack(weights.reshape(outputs, -1))
    bias = b.constant("bias", bias_of(op, "float32"), FLOAT32)
    activation = op.attributes(ActivationAttrs).activation
    return float_gemm(
        CompiledTile(layout, pixels, unroll),
        b.constant("weights", packed, FLOAT32),
        bias,
        lambda total: apply_activation(total, activation),
        (outputs, 1),
    )


def fits_address_offsets(family: MicrokernelFamily, depth: int, pixels: int) -> bool:
    """Return whether the offsets of loads reach every column of `depth` bytes."""
    apart = family.column_bytes(depth) * (pixels - 1)
    last = apart + family.most_unrolled * family.taps_per_step
    return not is_contiguous(family.layout) or last <= family.reach


def _block_configs(op: OpCall, family: MicrokernelFamily) -> Sequence[PixelBlock]:
    """Return the cheapest pixels per block, and smaller ones that save memory."""
    if op.input(0).dtype != INT8:
        return ()
    outputs, *taps = op.input(1).shape
    depth = math.prod(taps)
    pixels = op.output.elements // outputs
    counts = _block_counts(op, family)
    if not counts:
        return ()

    def price(count: int) -> int:
        step = family.cost(outputs, family.rows(outputs, count), count)
        products = divide_up(depth, family.taps_per_step) * step
        endings = outputs * (_CHANNEL + count * _ENDING)
        return divide_up(pixels, count) * (products + endings)

    best = min(counts, key=price)
    configs = []
    for count in counts:
        if count == best or count < min(best, 3):
            configs.append(PixelBlock(count))
    return configs


def _block_counts(op: OpCall, family: MicrokernelFamily) -> list[int]:
    outputs, *taps = op.input(1).shape
    max_pixels = op.output.elements // outputs
    depth = math.prod(taps)
    counts = []
    for count in family.pixel_counts:
        if count <= max_pixels and fits_address_offsets(family, depth, count):
            counts.append(count)
    return counts


def _block_space(op: OpCall, family: MicrokernelFamily) -> Sequence[PixelBlock]:
    if op.input(0).dtype != INT8:
        return ()
    return [PixelBlock(count) for count in _block_counts(op, family)]


def _matrix_block_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    is_int8 = op.input(0).dtype == op.input(1).dtype == INT8
    return (NO_CONFIG,) if is_int8 and _supports(op) else ()


def _build_blocks(
    op: OpCall, config: PixelBlock, b: Kernel, family: MicrokernelFamily
) -> None:
    _multiply_in_blocks(op, b, family, config.pixels)


def _build_matrix(
    op: OpCall, config: ScheduleConfig, b: Kernel, family: MicrokernelFamily
) -> None:
    _multiply_in_blocks(op, b, family, 1)


def _multiply_in_blocks(
    op: OpCall, b: Kernel, family: MicrokernelFamily, count: int
) -> None:
    """Compute blocks of `count` pixels with the micro-kernels of a family."""
    rows_for = partial(family.rows, pixels=count)
    rows = computed_channels(b, integer_layer(op), rows_for)
    offset = weight_zero_point(op) + family.offset
    stored = stored_offset(rows, offset, family.offset)
    tile = LoopTile(family, rows.group, count, rows.taps, stored)
    starts = rows.bias - family.offset * rows.weights.sum(axis=1)
    has_high = family.has_high_product
    preference = FormPreference.FITTED if has_high else FormPreference.NARROW
    make_end = partial(rows.requantize, b, preference=preference)
    gemm = plan_gemm(b, tile, rows, starts, make_end)
    has_words = family is MLA_FAMILY
    multiply_windows(b, op, gemm, has_unaligned_words=has_words)


SCHEDULES = (
    Schedule(
        "scalar.conv2d.blocks",
        "conv2d",
        frozenset(),
        _conv_configs,
        _build,
        disable_scheduling=True,
        space=_conv_space,
        takes_weight_zero_point=True,
    ),
    thumb1_schedule(
        "thumb1.conv2d.blocks",
        "conv2d",
        configs=_of_int8(_conv_configs),
        build=_build_narrow,
        space=_of_int8(_conv_space),
        takes_weight_zero_point=True,
    ),
    thumb1_schedule(
        "thumb1.fully_connected.groups",
        "fully_connected",
        configs=_of_int8(_matrix_configs),
        build=_build_narrow,
        space=_of_int8(_matrix_space),
        takes_weight_zero_point=True,
    ),
    *(
        Schedule(
            f"{family.name}.conv2d.blocks",
            "conv2d",
            frozenset({family.requires}),
            partial(_block_configs, family=family),
            partial(_build_blocks, family=family),
            disable_scheduling=True,
            space=partial(_block_space, family=family),
            takes_weight_zero_point=True,
        )
        for family in FAMILIES
    ),
    Schedule(
        "scalar.fully_connected.groups",
        "fully_connected",
        frozenset(),
        _matrix_configs,
        _build,
        disable_scheduling=True,
        space=_matrix_space,
        takes_weight_zero_point=True,
    ),
    *(
        Schedule(
            f"{family.name}.fully_connected.blocks",
            "fully_connected",
            frozenset({family.requires}),
            _matrix_block_configs,
            partial(_build_matrix, family=family),
            disable_scheduling=True,
            takes_weight_zero_point=True,
        )
        for family in FAMILIES
    ),
)
