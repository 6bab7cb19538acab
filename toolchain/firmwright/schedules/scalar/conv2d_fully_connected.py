"""conv2d and fully_connected on cores without SIMD: pixels times groups of output channels."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product

from firmwright.base.dtypes import INT8, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, logical_and, minimum
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops import fully_connected
from firmwright.ops.conv2d import requantization_of, weight_offsets
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel, Nest, Position
from firmwright.ops.requantize import per_tensor_quant, weight_zero_point
from firmwright.schedules.scalar.gemm_kernel import (
    emit_scalar_gemm,
    fits_address_offsets,
    plan_scalar_gemm,
)
from firmwright.schedules.scalar.microkernels import MicrokernelFamily
from firmwright.schedules.scalar.register_blocked_matmul import (
    DEFAULT_UNROLL,
    SUPPORTED_DTYPES,
    multiply_columns,
    pack_matrix,
    plan_scalar_layer,
)
from firmwright.schedules.scalar.rv32_microkernels import RV32M_FAMILY
from firmwright.schedules.scalar.thumb2_microkernels import MLA_FAMILY

# A pointwise convolution multiplies directly from its input. Others first pack the windows of a
# block of pixels as columns, with the zero point outside the input, so that it can be folded into
# the bias. The last block overlaps its predecessor.
#
# `scalar.conv2d.blocks` leaves the products to the compiler; for int8 some cores have assembly
# micro-kernels, with schedules named after the family.

_LANES = 4
_MAX_UNROLLED_COPIES = 16
_MAX_ACCUMULATORS = 12
_CHANNEL, _ENDING = 8, 6
"""Approximate cost of a channel per block, and of requantizing an output."""


def _configs(op: OpCall) -> Sequence[Config]:
    if op.input(0).dtype not in SUPPORTED_DTYPES:
        return ()
    pixels = op.output.elements // op.output.shape[3]
    return ({"pixels": min(2, pixels)},)


def _space(op: OpCall) -> Sequence[Config]:
    if op.input(0).dtype not in SUPPORTED_DTYPES:
        return ()
    pixels = op.output.elements // op.output.shape[3]
    counts = range(1, min(4, pixels) + 1)
    return tuple(
        {"pixels": count, "lanes": lanes, "unroll": unroll}
        for count, lanes, unroll in product(counts, (1, 2, 3, 4, 6, 8), (1, 2, 4, 8))
        if count * lanes <= _MAX_ACCUMULATORS
        and (count, lanes, unroll) != (2, _LANES, DEFAULT_UNROLL)
    )


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    kernel = weight_offsets(op)
    window = window_of(op, kernel.shape[1:3])
    flat = kernel.reshape(kernel.shape[0], -1)
    layer = plan_scalar_layer(
        b, op, flat, requantization_of(op) if op.input(0).dtype == INT8 else None
    )
    lanes, unroll = int(config.get("lanes", _LANES)), int(config.get("unroll", DEFAULT_UNROLL))
    matrix = pack_matrix(b, layer, flat, lanes, unroll)
    batch, height, width, channels = op.output.shape
    pixels = batch * height * width
    block = min(int(config["pixels"]), pixels)
    with (
        _blocks(b, pixels, block) as at,
        pack_columns(b, op, layer.zero_point, window, at, (block, matrix.depth)) as columns,
        b.view("out", b.y, at * channels, (block, channels), access="w") as y,
    ):
        multiply_columns(
            b, matrix, columns, lambda row, column, value: b.store(y, [column, row], value)
        )


@contextmanager
def _blocks(b: Kernel, pixels: int, block: int) -> Iterator[ArithExpr]:
    """Loop over pixel blocks and yield the first pixel; the last block ends at the last pixel."""
    with b.for_("block", -(-pixels // block)) as index:
        start = index * block
        if pixels % block:
            start = minimum(start, pixels - block)
        with b.let("at", start) as at:
            yield at


@contextmanager
def pack_columns(
    b: Kernel, op: OpCall, zero_point: int, window: ConvWindow, at: ArithExpr,
    shape: tuple[int, int],
) -> Iterator[tir.Buffer]:  # fmt: skip
    """Yield the windows of output pixels, starting at `at`, packed one per row."""
    if window.pointwise:
        with b.view("pixels", b.input(0), at * shape[1], shape) as columns:
            yield columns
        return
    with b.allocate("columns", op.input(0).dtype, shape) as columns:
        with b.for_("p", shape[0]) as p, b.let("pixel", at + p) as pixel:
            _pack(b, op, zero_point, window, columns, p, pixel)
        yield columns


def _pack(
    b: Kernel, op: OpCall, zero_point: int, window: ConvWindow, columns: tir.Buffer, p: ArithExpr,
    pixel: ArithExpr,
) -> None:  # fmt: skip
    batch, height, width, _ = op.output.shape
    n = pixel // (height * width) if batch > 1 else pixel * 0
    top = ((pixel // width) % height) * window.stride[0] - window.padding[0]
    left = (pixel % width) * window.stride[1] - window.padding[2]
    rows, cols = window.input_size
    run = window.size[1] * op.input(0).shape[3]
    with Nest() as enter:
        y0 = enter(b.let("top", top))
        x0 = enter(b.let("left", left))
        ky = enter(b.for_("ky", window.size[0]))
        iy = enter(b.let("iy", y0 + ky * window.dilation[0]))
        column = enter(
            b.view(
                "column", columns, p * columns.shape[1] + ky * run, (run,), access="w",
                alignment=_alignment(columns, run),
            )
        )  # fmt: skip
        whole = window.dilation[1] == 1
        if whole and not window.is_padded:
            _copy(b, column, 0, (n, iy, x0), run)
            return
        inside = logical_and(iy >= 0, iy < rows)
        if whole:
            cols_inside = logical_and(x0 >= 0, x0 <= cols - window.size[1])
            with b.if_(logical_and(inside, cols_inside)):
                _copy(b, column, 0, (n, iy, x0), run)
            enter(b.else_())
        _pack_taps(b, zero_point, window, column, (n, iy, x0), inside)


def _alignment(columns: tir.Buffer, run: int) -> int:
    """Return the alignment of window rows in `columns`, in elements: 4 or 1."""
    whole_words = run % 4 == 0 and columns.shape[1] % 4 == 0
    return 4 if whole_words or columns.dtype != INT8 else 1


def _pack_taps(
    b: Kernel, zero_point: int, window: ConvWindow, column: tir.Buffer, origin: Position,
    inside: ArithExpr,
) -> None:  # fmt: skip
    """Pack one window row tap by tap, with the zero point outside the input."""
    n, iy, x0 = origin
    channels = b.call.input(0).shape[3]
    with b.for_("kx", window.size[1]) as kx, b.let("ix", x0 + kx * window.dilation[1]) as ix:
        at_tap = kx * channels
        with b.if_(logical_and(inside, ix >= 0, ix < window.input_size[1])):
            _copy(b, column, at_tap, (n, iy, ix), channels)
        with b.else_(), b.for_("c", channels) as c:
            b.store(column, [at_tap + c], zero_point)


def _copy(b: Kernel, column: tir.Buffer, at: ArithExpr | int, source: Position, count: int) -> None:
    """Copy `count` elements from `source` (n, y, x), by words if everything is aligned."""
    x = b.input(0)
    _, rows, cols, channels = x.shape
    offset = ((source[0] * rows + source[1]) * cols + source[2]) * channels
    by_words = x.dtype == INT8 and channels % 4 == 0 and column.alignment == 4
    dtype, size = (UINT32, 4) if by_words else (x.dtype, 1)
    items = count // size
    kind: tir.ForKind = "unrolled" if items <= _MAX_UNROLLED_COPIES else "serial"
    alignment = max(dtype.size_bytes, 1)
    begin = at * 1 if isinstance(at, ArithExpr) else source[0] * 0 + at
    with (
        b.view("from", x, offset, (items,), dtype=dtype, alignment=alignment) as run,
        b.view("to", column, begin, (items,), dtype=dtype, access="w", alignment=alignment) as to,
        b.for_("i", items, kind=kind) as i,
    ):
        b.store(to, [i], b.load(run, [i]))


def _block_configs(op: OpCall, family: MicrokernelFamily) -> Sequence[Config]:
    """Return the cheapest number of pixels per block, then smaller ones that save memory."""
    if op.input(0).dtype != INT8:
        return ()
    outputs, *taps = op.input(1).shape
    depth = math.prod(taps)
    pixels = op.output.elements // outputs
    counts = _block_counts(op, family)

    def price(count: int) -> int:
        products = depth * family.cost(outputs, family.rows(outputs, count), count)
        return -(-pixels // count) * (products + outputs * (_CHANNEL + count * _ENDING))

    best = min(counts, key=price)
    return tuple({"pixels": count} for count in counts if count == best or count < min(best, 3))


def _block_counts(op: OpCall, family: MicrokernelFamily) -> list[int]:
    outputs, *taps = op.input(1).shape
    max_pixels, depth = op.output.elements // outputs, math.prod(taps)
    return [
        n for n in family.pixel_counts if n <= max_pixels and fits_address_offsets(family, depth, n)
    ]


def _block_space(op: OpCall, family: MicrokernelFamily) -> Sequence[Config]:
    if op.input(0).dtype != INT8:
        return ()
    return [{"pixels": count} for count in _block_counts(op, family)]


def _build_blocks(op: OpCall, config: Config, b: Kernel, family: MicrokernelFamily) -> None:
    kernel = weight_offsets(op)
    window = window_of(op, kernel.shape[1:3])
    flat = kernel.reshape(kernel.shape[0], -1)
    count = int(config["pixels"])
    params = requantization_of(op)
    rows_for, offset = partial(family.rows, pixels=count), weight_zero_point(op)
    gemm = plan_scalar_gemm(b, op, flat, params, rows_for, offset=offset)
    pixels = op.output.elements // len(flat)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    with (
        _blocks(b, pixels, count) as at,
        pack_columns(b, op, zero_point, window, at, (count, gemm.depth)) as columns,
    ):
        emit_scalar_gemm(b, gemm, family, count, columns, at)


_MATRIX_LANES = 8


def _matrix_configs(op: OpCall) -> Sequence[Config]:
    return ({},) if _supports_matrix(op) else ()


def _supports_matrix(op: OpCall) -> bool:
    dtype = op.input(0).dtype
    return dtype in SUPPORTED_DTYPES and (dtype != INT8 or fully_connected.has_int32_multiplier(op))


def _matrix_space(op: OpCall) -> Sequence[Config]:
    if not _supports_matrix(op):
        return ()
    pairs = product((2, 4, 6, 8, 10, 12), (1, 2, 4, 8))
    return [
        {"lanes": n, "unroll": k} for n, k in pairs if (n, k) != (_MATRIX_LANES, DEFAULT_UNROLL)
    ]


def _build_matrix(op: OpCall, config: Config, b: Kernel) -> None:
    weights = weight_offsets(op)
    outputs, depth = weights.shape
    layer = plan_scalar_layer(
        b, op, weights, fully_connected.requantization_of(op) if op.input(0).dtype == INT8 else None
    )
    lanes, unroll = (
        int(config.get("lanes", _MATRIX_LANES)),
        int(config.get("unroll", DEFAULT_UNROLL)),
    )
    matrix = pack_matrix(b, layer, weights, lanes, unroll)
    with (
        b.for_("n", op.output.elements // outputs) as n,
        b.view("row", b.input(0), n * depth, (1, depth)) as columns,
        b.view("out", b.y, n * outputs, (outputs,), access="w") as y,
    ):
        multiply_columns(b, matrix, columns, lambda row, _, value: b.store(y, [row], value))


def _matrix_block_configs(op: OpCall) -> Sequence[Config]:
    return ({},) if op.input(0).dtype == op.input(1).dtype == INT8 and _supports_matrix(op) else ()


def _build_matrix_blocks(op: OpCall, config: Config, b: Kernel, family: MicrokernelFamily) -> None:
    weights = weight_offsets(op)
    outputs, depth = weights.shape
    rows_for, params = partial(family.rows, pixels=1), fully_connected.requantization_of(op)
    gemm = plan_scalar_gemm(b, op, weights, params, rows_for, offset=weight_zero_point(op))
    with (
        b.for_("n", op.output.elements // outputs) as n,
        b.view("row", b.input(0), n * depth, (1, depth)) as columns,
    ):
        emit_scalar_gemm(b, gemm, family, 1, columns, n)


_FAMILIES = (MLA_FAMILY, RV32M_FAMILY)
SCHEDULES = (
    Schedule(
        "scalar.conv2d.blocks", "conv2d", frozenset(), _configs, _build,
        disable_scheduling=True, space=_space, takes_weight_zero_point=True,
    ),
    *(
        Schedule(
            f"{family.name}.conv2d.blocks", "conv2d", frozenset({family.name}),
            partial(_block_configs, family=family), partial(_build_blocks, family=family),
            disable_scheduling=True, space=partial(_block_space, family=family),
            takes_weight_zero_point=True,
        )
        for family in _FAMILIES
    ),
    Schedule(
        "scalar.fully_connected.groups", "fully_connected", frozenset(), _matrix_configs,
        _build_matrix, disable_scheduling=True, space=_matrix_space,
        takes_weight_zero_point=True,
    ),
    *(
        Schedule(
            f"{family.name}.fully_connected.blocks", "fully_connected", frozenset({family.name}),
            _matrix_block_configs, partial(_build_matrix_blocks, family=family),
            disable_scheduling=True, takes_weight_zero_point=True,
        )
        for family in _FAMILIES
    ),
)  # fmt: skip
