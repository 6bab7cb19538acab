"""conv2d and fully_connected without vectors: pixels times groups of channels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from firmwright.base.dtypes import INT8
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops import fully_connected
from firmwright.ops.conv2d import weight_offsets
from firmwright.ops.conv_window import ConvWindow, kernel_window
from firmwright.ops.kernel import KERNEL_ALIGNMENT, Kernel
from firmwright.ops.requantize import per_tensor_quant, weight_zero_point
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.epilogue import layer_requantization
from firmwright.schedules.im2col import RowIm2colPacker
from firmwright.schedules.row_band import PixelBlock, pixel_blocks
from firmwright.schedules.scalar import register_blocked_matmul
from firmwright.schedules.scalar.gemm_kernel import (
    emit_scalar_gemm,
    fits_address_offsets,
    plan_scalar_gemm,
)
from firmwright.schedules.scalar.microkernels import (
    MLA_FAMILY,
    RV32_PACKED_FAMILY,
    RV32M_FAMILY,
    XTENSA_FAMILY,
    MicrokernelFamily,
)

# A pointwise convolution multiplies directly from its input. Others first pack the
# windows of a block of pixels as columns, with the zero point outside the input, so
# that it can be folded into the bias. The last block overlaps its predecessor.
#
# `scalar.conv2d.blocks` leaves the products to the compiler; for int8 some cores have
# assembly micro-kernels, with schedules named after the family.

_LANES = {"conv2d": 4, "fully_connected": 8}
_MAX_ACCUMULATORS = 12
_CHANNEL, _ENDING = 8, 6
"""Approximate cost of a channel per block, and of requantizing an output."""


def _supports(op: OpCall) -> bool:
    dtype = op.input(0).dtype
    if dtype not in register_blocked_matmul.SUPPORTED_DTYPES:
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
    usual = 2, _LANES["conv2d"], register_blocked_matmul.DEFAULT_UNROLL
    if not _supports(op):
        return ()
    blocks = []
    for block in product(counts, (1, 2, 3, 4, 6, 8), (1, 2, 4, 8)):
        count, lanes, _ = block
        if count * lanes <= _MAX_ACCUMULATORS and block != usual:
            blocks.append(ScalarBlock(*block))
    return tuple(blocks)


def _matrix_space(op: OpCall) -> Sequence[ScalarBlock]:
    pairs = product((2, 4, 6, 8, 10, 12), (1, 2, 4, 8)) if _supports(op) else ()
    usual = _LANES["fully_connected"], register_blocked_matmul.DEFAULT_UNROLL
    return [ScalarBlock(lanes=n, unroll=k) for n, k in pairs if (n, k) != usual]


def _build(op: OpCall, config: ScalarBlock, b: Kernel) -> None:
    kernel = weight_offsets(op)
    outputs, window = len(kernel), kernel_window(op)
    flat = kernel.reshape(outputs, -1)
    params = layer_requantization(op) if op.input(0).dtype == INT8 else None
    layer = register_blocked_matmul.plan_scalar_layer(b, op, flat, params)
    lanes = config.lanes or _LANES[op.op]
    unroll = config.unroll or register_blocked_matmul.DEFAULT_UNROLL
    matrix = register_blocked_matmul.pack_matrix(b, layer, flat, lanes, unroll)
    pixels = op.output.elements // outputs
    block = min(config.pixels or 1, pixels)
    with pixel_blocks(b, pixels, block) as at:
        shape = (block, matrix.depth)
        columns = pack_columns(b, op, layer.zero_point, window, at, shape)
        y = b.view("out", b.y, at * outputs, (block, outputs), access="w")

        def store(row: ArithExpr, column: int, value: ArithExpr) -> None:
            b.store(y, [column, row], value)

        register_blocked_matmul.multiply_columns(b, matrix, columns, store)


def pack_columns(
    b: Kernel,
    op: OpCall,
    zero_point: int,
    window: ConvWindow,
    at: ArithExpr,
    shape: tuple[int, int],
) -> tir.Buffer:
    """Return the windows of output pixels, starting at `at`, packed one per row.

    Rows that are longer than windows end with zeros.
    """
    taps = math.prod(op.input(1).shape[1:])
    if window.pointwise and shape[1] == taps:
        aligned = math.gcd(taps, KERNEL_ALIGNMENT)
        return b.view("pixels", b.input(0), at * taps, shape, alignment=aligned)
    columns = b.allocate("columns", op.input(0).dtype, shape)
    for pixel, tap in product(range(shape[0]), range(taps, shape[1])):
        b.store(columns, [pixel, tap], 0)
    RowIm2colPacker(b, window, b.input(0), columns, zero_point).pack(op, at)
    return columns


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
    kernel = weight_offsets(op)
    flat = kernel.reshape(len(kernel), -1)
    rows_for = partial(family.rows, pixels=count)
    params = layer_requantization(op)
    gemm = plan_scalar_gemm(
        b,
        op,
        flat,
        params,
        rows_for,
        family.dtype,
        weight_zero_point(op) + family.offset,
        in_32_bits=not family.has_high_product,
        column_offset=family.offset,
        taps_per_step=family.taps_per_step,
    )
    window = kernel_window(op)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    size = (count, family.column_bytes(gemm.depth))
    with pixel_blocks(b, op.output.elements // len(flat), count) as at:
        columns = pack_columns(b, op, zero_point, window, at, size)
        emit_scalar_gemm(b, gemm, family, count, columns, at)


_FAMILIES = (MLA_FAMILY, RV32M_FAMILY, RV32_PACKED_FAMILY, XTENSA_FAMILY)
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
        for family in _FAMILIES
    ),
    Schedule(
        "scalar.fully_connected.groups",
        "fully_connected",
        frozenset(),
        lambda op: (ScalarBlock(),) if _supports(op) else (),
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
        for family in _FAMILIES
    ),
)
