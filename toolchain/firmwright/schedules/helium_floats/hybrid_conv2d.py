"""Hybrid conv2d and fully_connected on Helium: quantize activations, then int8 GEMM."""

from collections.abc import Sequence
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, Register, immediate, maximum
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, inputs, pointers
from firmwright.kernels.mve.dot_products import BYTES_PER_STEP, DotProductLoop
from firmwright.ops.conv2d import bias_of, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.dynamic_range import FloatRow, QuantizedRow, QuantizePasses
from firmwright.ops.hybrid_conv2d import quantize_input
from firmwright.ops.hybrid_fully_connected import (
    has_constant_operands,
    is_whole,
    quantized_rows,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import quantization_of
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium import conv2d, dot_product_loop
from firmwright.schedules.helium.conv2d import BlockGemm, ConvolutionInput
from firmwright.schedules.helium.vector_requantize import CHANNELS
from firmwright.schedules.helium_floats import accumulate_f32

_C = read_sections(__file__)

# ---- quantization of activations -----------------------------------------------------

# `mve_min_max_f32` finds the minimum and maximum by comparing bits, as the default
# loops do. `mve_quantize_f32` uses VCVTA, which rounds halves away from zero like the
# definition.

_NEGATIVE_ZERO = 0x80000000


def _ends_meaning(x: Array, count: int, *_: int) -> tuple[Array, Array]:
    bits = np.ascontiguousarray(np.asarray(x, np.float32)[:count])
    least = np.maximum(bits.view(np.uint32).max(axis=0), np.uint32(_NEGATIVE_ZERO))
    return least, np.maximum(bits.view(np.int32).max(axis=0), 0)


MIN_MAX = Intrinsic(
    "mve_min_max_f32",
    (
        *pointers(FLOAT32, x=1),
        *immediates("count"),
        Operand("least", "out", UINT32),
        Operand("most", "out", INT32),
    ),
    _ends_meaning,
    _C["ends_portable"],
    "Bits of the least and of the greatest of `count` values and 0.",
    requires="mvefp",
    text={"gnu": _C["ends_text"]},
    count=lambda args: 12 + args[1] // 4 * 5,
)


def _nearest(values: str) -> str:
    return indent(fill_text(_C["nearest"], values=values), " " * 4)


_WHOLE = _nearest("vldrwq_f32(from)")
_REST = _nearest("vldrwq_z_f32(from, inside)")


def _quantize_meaning(
    y: Array, x: Array, inverse: float, offset: int, moves: int, count: int
) -> Array:
    with np.errstate(all="ignore"):
        wide = (np.asarray(x, np.float32)[:count] * inverse).astype(np.float64)
    nearest = np.sign(wide) * np.floor(np.abs(wide) + 0.5)
    results: Array = np.clip(nearest + (offset if moves else 0), INT8.min, INT8.max)
    return results.astype(np.int8)


QUANTIZE = Intrinsic(
    "mve_quantize_f32",
    (
        *pointers(INT8, "w", y=1),
        *pointers(FLOAT32, x=1),
        *inputs(FLOAT32, "inverse"),
        *inputs(INT32, "offset"),
        *immediates("moves", "count"),
    ),
    _quantize_meaning,
    _C["quantize_portable"],
    "The int8 nearest to each of `count` values, times `inverse`, plus `offset`.",
    requires="mvefp",
    text={"gnu": fill_text(_C["quantize_text"], whole=_WHOLE, rest=_REST)},
    definitions=(KEEP_STORES,),
    count=lambda args: 12 + args[-1] // 4 * 10,
)


def _ends(b: Kernel, row: FloatRow, low: Register, high: Register) -> None:
    least = b.register("least", UINT32)
    most = b.register("most", INT32)
    values = b.pointer(row.buffer, row.start, row.size)
    b.evaluate(MIN_MAX.name, [values, row.size, least.value, most.value])
    for end, bits in ((low, least.value.cast(INT32)), (high, most.value)):
        end.set(intrinsic("float_of_bits", [bits], FLOAT32))


def _reach(b: Kernel, row: FloatRow, reach: Register) -> None:
    low = b.register("least_value", FLOAT32)
    _ends(b, row, low, reach)
    zero = ArithExpr(immediate(0.0, FLOAT32))
    reach.set(maximum(reach.value, zero - low.value))


def _values(
    b: Kernel,
    row: FloatRow,
    target: tir.Buffer,
    inverse: ArithExpr,
    offset: ArithExpr | None,
) -> None:
    size, factor = target.elements, b.let("inverse", inverse)
    places = [b.pointer(target, 0, size, "w"), b.pointer(row.buffer, row.start, size)]
    moves = [0, 0] if offset is None else [offset, 1]
    b.evaluate(QUANTIZE.name, [*places, factor, *moves, size])


QUANTIZE_PASSES = QuantizePasses(_reach, _ends, _values)


# The input is quantized as the operator defines it; packing and products are those of
# helium/conv2d.py. Integer sums are exact in any order. `mve_gemm_hybrid_LOOP` converts
# sums to float: it subtracts the zero point's share, converts, scales and adds the
# bias, each rounded as in the default loops. The zero point is known only at run time
# and also fills the padding, so its share is the zero point times the sum of the
# channel's weights.

# ---- the micro-kernel ----------------------------------------------------------------

_LIMIT = indent(accumulate_f32.emit_scalar_activation("value"), " " * 8)

_TEXT = """\
const int32x4_t share = vmulq_n_s32(vldrwq_s32(totals), zero_point);
const float32x4_t scales = vldrwq_f32(q);
const float32x4_t bias = vldrwq_f32(q + 4);"""

_ENDING = """\
float32x4_t {y} = vmulq_f32(vcvtq_f32_s32(vsubq_s32({v}, share)), scales);
{y} = vaddq_f32(vmulq_n_f32({y}, scale), bias);"""


def _text(loop: DotProductLoop) -> str:
    lines = [dot_product_loop.frame(loop, dot_product_loop.PAIR), _TEXT]
    for vector, value, target in (("first", "even", "y0"), ("second", "odd", "y1")):
        lines.append(_ENDING.format(v=vector, y=value))
        lines.append(accumulate_f32.emit_vector_activation(value))
        lines += accumulate_f32.store_assembly(value, target, 0)
    return "\n".join(lines)


def _portable(loop: DotProductLoop) -> str:
    frame = dot_product_loop.portable_frame(loop, dot_product_loop.PAIR)
    return fill_text(_C["portable"], frame=frame, limit=_LIMIT)


def _meaning(
    w: Array,
    x0: Array,
    x1: Array,
    totals: Array,
    q: Array,
    y0: Array,
    y1: Array,
    scale: float,
    zero_point: int,
    activation: int,
    lanes: int,
    taps: int,
) -> tuple[Array, ...]:
    weights = dot_product_loop.unpack_weights(w, CHANNELS, taps)
    table = np.asarray(q, np.float32)
    share = np.asarray(totals, np.int64) * zero_point
    results = []
    for x in (x0, x1):
        products = weights * np.asarray(x, np.int64)[None, :taps]
        sums = products.sum(axis=1) - share
        value = sums.astype(np.float32) * table[:4] * scale + table[4:8]
        results.append(accumulate_f32.apply_activation(value, activation)[:lanes])
    return tuple(results)


def _scaled(loop: DotProductLoop, name: str) -> Intrinsic:
    steps, taps = loop.head + loop.tail, loop.least_taps
    weights = steps * BYTES_PER_STEP * CHANNELS
    return Intrinsic(
        name,
        (
            *pointers(INT8, w=weights, x0=taps, x1=taps),
            *pointers(INT32, totals=CHANNELS),
            *pointers(FLOAT32, q=2 * CHANNELS),
            *pointers(FLOAT32, "w", y0=1, y1=1),
            *inputs(FLOAT32, "scale"),
            *inputs(INT32, "zero_point"),
            *immediates("activation", "lanes", "taps"),
        ),
        _meaning,
        _portable(loop),
        "Four channels of two pixels: products over a column, as floats.",
        requires="mvefp",
        text={"gnu": _text(loop)},
        definitions=(KEEP_STORES,),
        count=lambda args: (
            dot_product_loop.instructions(loop, dot_product_loop.PAIR, args[-1])
            + 2 * (6 + accumulate_f32.activation_instructions(args[-3]))
            + 8
        ),
    )


INTRINSICS = (MIN_MAX, QUANTIZE)
INTRINSIC_MAKERS = dot_product_loop.make_for_loops("mve_gemm_hybrid_{}", _scaled)

# ---- the schedule --------------------------------------------------------------------


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    x, (batch, height, width, _) = op.input(0), op.output.shape
    with b.for_("n", batch) as n:
        quantized = b.allocate("quantized", INT8, (1, *x.shape[1:]), 8)
        activations = quantize_input(op, b, n, quantized, QUANTIZE_PASSES)
        gemm = _gemm(op, b, activations, activations.scale.value, n * (height * width))
        window = window_of(op, weights_of(op).shape[1:3])
        source = ConvolutionInput(quantized, window, activations.zero_point)
        conv2d.convolve_two_pixels(b, source, gemm, (1, *op.output.shape[1:]))


def _matrix_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    has_one_scale = len(quantization_of(op.input(1)).scales) == 1
    return (NO_CONFIG,) if has_constant_operands(op) and has_one_scale else ()


def _build_matrix(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    (weight_scale,) = quantization_of(op.input(1)).scales
    folded = None if is_whole(op) else weight_scale
    with quantized_rows(op, b, folded, QUANTIZE_PASSES) as (n, quantized, row):
        scale = row.scale.value
        gemm = _gemm(op, b, row, scale * weight_scale if folded is None else scale, n)
        gemm.emit(b, quantized, [n * 0, n * 0], [n * 0, n * 0])


def _gemm(
    op: OpCall, b: Kernel, activations: QuantizedRow, scale: ArithExpr, first: ArithExpr
) -> BlockGemm:
    """Return the products with the layer's weights; outputs begin at pixel `first`."""
    channels = op.output.shape[-1]
    flat = weights_of(op).reshape(channels, -1)
    starts = conv2d.channel_block_starts(channels)
    blocks = dot_product_loop.pack_weight_rows(flat, starts, CHANNELS)
    packed = b.constant("weights", blocks, INT8)
    sums = _by_block(flat.sum(axis=1, dtype=np.int64), starts)
    totals = b.constant("totals", sums, INT32)
    factors = b.constant("factors", _factors(op, starts), FLOAT32)
    activation = op.attributes(ActivationAttrs).activation
    code = accumulate_f32.ACTIVATION_CODES[activation]
    lanes = min(channels, CHANNELS)
    return BlockGemm(
        "mve_gemm_hybrid",
        packed,
        [totals, factors],
        channels,
        flat.shape[1],
        [scale, activations.zero_point, code, lanes],
        first,
    )


def _factors(op: OpCall, starts: Sequence[int]) -> Array:
    """Return [block, scale or bias, channel].

    A common scale of all weights is part of the batch's scale.
    """
    scales = np.array(quantization_of(op.input(1)).scales, np.float32)
    if len(scales) <= 1:
        scales = np.ones(op.output.shape[-1], np.float32)
    bias = bias_of(op, "float32")
    return np.stack([_by_block(scales, starts), _by_block(bias, starts)], axis=1)


def _by_block(values: Array, starts: Sequence[int]) -> Array:
    """Rearrange values by channel as [block, channel]; padding repeats the last one."""
    index = np.minimum(np.array(starts)[:, None] + np.arange(CHANNELS), len(values) - 1)
    return np.asarray(values[index])


_FEATURES = frozenset({"mve", "mvefp"})
SCHEDULES = (
    Schedule(
        "helium.hybrid_conv2d.im2col",
        "hybrid_conv2d",
        _FEATURES,
        lambda op: (NO_CONFIG,),
        _build,
        disable_scheduling=True,
    ),
    Schedule(
        "helium.hybrid_fully_connected.rows",
        "hybrid_fully_connected",
        _FEATURES,
        _matrix_configs,
        _build_matrix,
        disable_scheduling=True,
    ),
)
