"""Hybrid conv2d and fully_connected on Helium: quantize activations, then int8 GEMM."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT32, Array
from firmwright.base.text_sections import read_sections
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    Register,
    immediate,
    maximum,
    minimum,
    select,
)
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, inputs, pointers
from firmwright.kernels.elementwise import (
    ElementLoop,
    element_intrinsics,
    helium_text,
    value_intrinsic,
)
from firmwright.kernels.isa import mve, mve_float
from firmwright.kernels.isa.c_numbers import greater
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve_lanes import narrow_words_twice_in_place
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
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
from firmwright.schedules.block_gemm import BlockGemm
from firmwright.schedules.helium.column_runs import ConvolutionInput
from firmwright.schedules.helium.dot_product_kernels import PAIR, DotProductKernel
from firmwright.schedules.helium.pixel_pairs import convolve_two_pixels, flat_weights
from firmwright.schedules.helium.vector_ending import (
    VECTOR,
    ParameterTable,
    VectorEnding,
    store_lanes,
)
from firmwright.schedules.helium_floats import accumulate_f32

_C = read_sections(__file__)

# ---- quantization of activations -----------------------------------------------------

# `mve_min_max_f32` finds the minimum and maximum by comparing bits, as the default
# loops do. `mve_quantize_f32` uses VCVTA, which rounds halves away from zero like the
# definition.

_NEGATIVE_ZERO = 0x80000000
_FAR = 512.0
"""Beyond every int8, with any offset."""


def ends_meaning(x: Array, count: int, *_: int) -> tuple[Array, Array]:
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
    ends_meaning,
    _C["ends_portable"],
    "Bits of the least and of the greatest of `count` values and 0.",
    requires="mvefp",
    text={"gnu": _C["ends_text"]},
    count=lambda args: 12 + args[1] // 4 * 5,
)


def nearest_byte(**x: ArithExpr) -> ArithExpr:
    """Return the int8 nearest to `x` times `inverse`, plus `offset` if it `moves`."""
    scaled = minimum(maximum(x["x"] * x["inverse"], -_FAR), _FAR)
    halves = (scaled + scaled).cast(INT32)
    nearest = (halves + 1 + (halves >> 31)) >> 1
    moved = nearest + select(x["moves"] > 0, x["offset"], 0)
    return minimum(maximum(moved, INT8.min), INT8.max).cast(INT8)


def _nearest_lanes(
    k: VectorBuilder, values: Sequence[VirtualRegister]
) -> VirtualRegister:
    scaled = k(mve_float.vmulq_n_f32, values[0], k.number("inverse", FLOAT32))
    nearest = k.named("nearest", mve_float.vcvtaq_s32_f32, scaled)
    with k.when(k(greater, k.number("moves"), 0)):
        k(mve.vaddq_n_s32, nearest, k.number("offset"), into=nearest)
    return k(narrow_words_twice_in_place, nearest, into=nearest)


QUANTIZE_LOOP = ElementLoop(
    (PointerOperand("x", FLOAT32),),
    PointerOperand("y", INT8, "w"),
    INT32,
    _nearest_lanes,
)
QUANTIZE = element_intrinsics(
    "mve_quantize_f32",
    (
        *pointers(INT8, "w", y=1),
        *pointers(FLOAT32, x=1),
        *inputs(FLOAT32, "inverse"),
        *inputs(INT32, "offset"),
        *immediates("moves", "count"),
    ),
    nearest_byte,
    "The int8 nearest to each of `count` values, times `inverse`, plus `offset`.",
    "mvefp",
    helium_text(QUANTIZE_LOOP),
    lambda args: 12 + args[-1] // 4 * 10,
    (KEEP_STORES,),
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
    b.evaluate("mve_quantize_f32", [*places, factor, *moves, size])


QUANTIZE_PASSES = QuantizePasses(_reach, _ends, _values)


# The input is quantized as the operator defines it; packing and products are those of
# helium/conv2d.py. Integer sums are exact in any order. `mve_gemm_hybrid_LOOP` converts
# sums to float: it subtracts the zero point's share, converts, scales and adds the
# bias, each rounded as in the default loops. The zero point is known only at run time
# and also fills the padding, so its share is the zero point times the sum of the
# channel's weights.

# ---- the micro-kernel ----------------------------------------------------------------

_FLOATS = RegisterPlace(RegisterClass.VECTOR, FLOAT32, VECTOR)
_WORDS = RegisterPlace(RegisterClass.VECTOR, INT32, VECTOR)


def scaled_sum(*, joins_scales: bool, **x: ArithExpr) -> ArithExpr:
    """Return the result of a sum of products with quantized activations."""
    value = (x["sum"] - x["zero_point"] * x["total"]).cast(FLOAT32)
    if joins_scales:
        scaled = value * (x["factor"] * x["scale"])
    else:
        scaled = value * x["factor"] * x["scale"]
    return accumulate_f32.activated(scaled + x["bias"], x["activation"])


def _finish(joins_scales: bool, vector: str, target: str, lanes: str) -> str:
    k = VectorBuilder("converted")
    factor, bias = k.variable("factor", _FLOATS), k.variable("bias", _FLOATS)
    share = k(mve.vmulq_n_s32, k.variable("total", _WORDS), k.number("zero_point"))
    whole = k.named(f"{vector}_sum", mve.vsubq_s32, k.variable(vector, _WORDS), share)
    scale = k.number("scale", FLOAT32)
    if joins_scales:
        factor = k.named(f"{vector}_factor", mve_float.vmulq_n_f32, factor, scale)
    value = k.named(
        f"{vector}_value",
        mve_float.vmulq_f32,
        k(mve_float.vcvtq_f32_s32, whole),
        factor,
    )
    scaled = value if joins_scales else k(mve_float.vmulq_n_f32, value, scale)
    k(mve_float.vaddq_f32, scaled, bias, into=value)
    accumulate_f32.activate_lanes(k, value)
    store_lanes(k, value, target, FLOAT32, lanes)
    return vector_text(k.build_vectors())


def _element(name: str, *, joins_scales: bool) -> Intrinsic:
    return value_intrinsic(
        name,
        (
            *inputs(INT32, "sum", "total"),
            *inputs(FLOAT32, "factor", "bias", "scale"),
            *inputs(INT32, "zero_point", "activation"),
        ),
        partial(scaled_sum, joins_scales=joins_scales),
        "Converts a sum to float, adds the bias and applies the activation.",
    )


def _kernel(stem: str, element: Intrinsic, *, joins_scales: bool) -> DotProductKernel:
    """Return the micro-kernel; with `joins_scales`, sums are multiplied only once."""
    ending = VectorEnding(
        output=FLOAT32,
        tables=(
            ParameterTable("totals", INT32, ("total",)),
            ParameterTable("q", FLOAT32, ("factor", "bias")),
        ),
        settings=(
            *inputs(FLOAT32, "scale"),
            *inputs(INT32, "zero_point"),
            *immediates("activation", "lanes"),
        ),
        element=element,
        finish=partial(_finish, joins_scales),
        instructions=lambda given: (
            6 + accumulate_f32.activation_instructions(given["activation"])
        ),
        requires="mvefp",
    )
    return DotProductKernel(stem, PAIR, ending)


_CONVERTED = _element("mve_converted_f32", joins_scales=False)
_JOINED = _element("mve_joined_f32", joins_scales=True)
_KERNEL = _kernel("mve_gemm_hybrid", _CONVERTED, joins_scales=False)
_OF_ROW_SCALES = _kernel("mve_gemm_rows_hybrid", _JOINED, joins_scales=True)
INTRINSICS = (MIN_MAX, *QUANTIZE, _CONVERTED, _JOINED)
INTRINSIC_MAKERS = {**_KERNEL.makers, **_OF_ROW_SCALES.makers}

# ---- the schedule --------------------------------------------------------------------


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    x, (batch, height, width, _) = op.input(0), op.output.shape
    with b.for_("n", batch) as n:
        quantized = b.allocate("quantized", INT8, (1, *x.shape[1:]), 8)
        activations = quantize_input(op, b, n, quantized, QUANTIZE_PASSES)
        first, scale = n * (height * width), activations.scale.value
        gemm = _gemm(op, flat_weights(op), b, activations, scale, first)
        window = window_of(op, weights_of(op).shape[1:3])
        source = ConvolutionInput(quantized, window, activations.zero_point)
        convolve_two_pixels(b, source, gemm, (1, *op.output.shape[1:]))


def _matrix_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,) if has_constant_operands(op) else ()


def _build_matrix(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    weight_scale, *others = quantization_of(op.input(1)).scales
    folded = None if is_whole(op) or others else weight_scale
    with quantized_rows(op, b, folded, QUANTIZE_PASSES) as (n, quantized, row):
        scale = row.scale.value
        if folded is None and not others:
            scale = scale * weight_scale
        flat = weights_of(op).reshape(op.output.shape[-1], -1)
        microkernel = _OF_ROW_SCALES if others else _KERNEL
        gemm = _gemm(op, flat, b, row, scale, n, microkernel)
        column = b.pointer(quantized, n * 0, gemm.taps)
        gemm.emit(b, [column, column], [n * 0, n * 0])


def _gemm(
    op: OpCall,
    flat: Array,
    b: Kernel,
    activations: QuantizedRow,
    scale: ArithExpr,
    first: ArithExpr,
    microkernel: DotProductKernel = _KERNEL,
) -> BlockGemm:
    """Return the products with the weights `flat`; outputs begin at pixel `first`."""
    blocks = microkernel.blocks(len(flat))
    totals = blocks.table(flat.sum(axis=1, dtype=np.int64))
    # A common scale of all weights is part of the batch's scale.
    scales = np.array(quantization_of(op.input(1)).scales, np.float32)
    if len(scales) <= 1:
        scales = np.ones(len(flat), np.float32)
    factors = blocks.table(scales, bias_of(op, "float32"))
    activation = op.attributes(ActivationAttrs).activation
    code = accumulate_f32.ACTIVATION_CODES[activation]
    settings = [scale, activations.zero_point, code, blocks.stored]
    tables = {"totals": totals, "factors": factors}
    return replace(microkernel.gemm(b, flat, tables, settings), first=first)


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
