"""fully_connected on Helium: micro-kernels of one column times eight rows."""

from collections.abc import Sequence
from dataclasses import replace

from firmwright.base.dtypes import INT8, INT32, INT64, Array
from firmwright.base.quant import Rounding
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
    maximum,
    minimum,
    select,
)
from firmwright.ir.tir.intrinsic import immediates, inputs
from firmwright.kernels.elementwise import value_intrinsic
from firmwright.kernels.isa import mve
from firmwright.kernels.isa.c_numbers import different, negative
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.mve.dot_products import Weights
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.conv2d import weight_offsets, weights_of
from firmwright.ops.fully_connected import has_int32_multiplier, requantization_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    Requantization,
    has_weight_zero_point,
    weight_zero_point,
)
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.epilogue import accumulator_bounds, fold_zero_point_into_bias
from firmwright.schedules.folded_requantize import FoldedRequantize, fold_requantize
from firmwright.schedules.helium import int8_dot, int16_dot, vector_requantize
from firmwright.schedules.helium.dot_product_kernels import COLUMN, DotProductKernel
from firmwright.schedules.helium.dot_product_loop import WeightConfig, weight_configs
from firmwright.schedules.helium.vector_ending import (
    VECTOR,
    ParameterTable,
    VectorEnding,
    store_lanes,
)
from firmwright.schedules.schedule_factories import helium_schedule

# A step of `mve_matvec_int8_LOOP` (kernels/mve/dot_products.py) reads sixteen values of
# the column and sixteen weights of eight rows, 17 instructions for 128 products. The
# ending is the folded form of folded_requantize.py, y = (A + nk [sum < 0] + mulhi(sum
# << k, m)) >> S, with per-row bias only: all weights share one scale.
# `mve_matvec_channels_LOOP` (int8_dot.py) has parameters per row.

_FOLDED = ("multiplier", "left", "addend", "sign", "shift", "low", "high")
_WORDS = RegisterPlace(RegisterClass.VECTOR, INT32, VECTOR)


def _folded(**x: ArithExpr) -> ArithExpr:
    """Return the result of a sum, in the folded form."""
    biased = x["sum"] + x["bias"]
    shifted = biased.cast(INT64) << x["left"].cast(INT64)
    scaled = ((shifted * x["multiplier"].cast(INT64)) >> 32).cast(INT32)
    sign = select(biased < 0, x["sign"], biased * 0)
    moved = (scaled + x["addend"] + sign) >> x["shift"]
    return minimum(maximum(moved, x["low"]), x["high"]).cast(INT8)


FOLDED = value_intrinsic(
    "mve_requantized_folded",
    inputs(INT32, "sum", "bias", *_FOLDED),
    _folded,
    "Adds the bias to a sum and requantizes it in the folded form.",
)


def scale_folded(
    k: VectorBuilder, total: VirtualRegister, bias: VirtualRegister
) -> None:
    """Add the bias to the variable `total` and scale it, without the clamp."""
    sign, left = k.number("sign"), k.number("left")
    k(mve.vaddq_s32, total, bias, into=total)
    offset = k.named("offset", mve.vdupq_n_s32, k.number("addend"))
    with k.when(k(different, sign, 0)):
        is_negative = k(mve.vshrq_n_s32, total, 31)
        nudge = k(mve.vandq_s32, is_negative, k(mve.vdupq_n_s32, sign))
        k(mve.vaddq_s32, offset, nudge, into=offset)
    multiplier = k(mve.vdupq_n_s32, k.number("multiplier"))
    k(mve.vmulhq_s32, k(mve.vshlq_r_s32, total, left), multiplier, into=total)
    right = k(negative, k.number("shift"))
    k(mve.vshlq_r_s32, k(mve.vaddq_s32, total, offset), right, into=total)


def _finish(vector: str, target: str, lanes: str) -> str:
    k = VectorBuilder("folded")
    total = k.variable(vector, _WORDS)
    scale_folded(k, total, k.variable("bias", _WORDS))
    vector_requantize.limit_lanes(k, total, INT8)
    store_lanes(k, total, target, INT8, lanes)
    return vector_text(k.build_vectors())


_ENDING = VectorEnding(
    output=INT8,
    tables=(ParameterTable("q", INT32, ("bias",)),),
    settings=immediates(*_FOLDED, "lanes"),
    element=FOLDED,
    finish=_finish,
    instructions=lambda given: 11,
)
_INT8 = DotProductKernel("mve_matvec_int8", COLUMN, _ENDING)
_INT8_WITH_SHARES = DotProductKernel(
    "mve_matvec_shares_int8", COLUMN, _ENDING, has_shares=True
)
_INT4 = DotProductKernel("mve_matvec_int4", COLUMN, _ENDING, Weights.INT4)


# LiteRT rounds the sums of layers with a scale for each output once: VMULH leaves the
# product by 2^-32, rounded down, and VRSHL rounds the rest (int16_dot.py).


def _rounded_once(**x: ArithExpr) -> ArithExpr:
    """Return the result of a sum; the table has the shifts that VRSHL performs."""
    scale = [x["sum"] + x["bias"], x["multiplier"], x["shift"] - 1]
    moved = call_intrinsic("requantize_once", scale, INT32) + x["zero_point"]
    return minimum(maximum(moved, x["low"]), x["high"]).cast(INT8)


ROUNDED_ONCE = value_intrinsic(
    "mve_requantized_once",
    inputs(INT32, "sum", "bias", "multiplier", "shift", "zero_point", "low", "high"),
    _rounded_once,
    "Adds the bias to a sum and requantizes it with one rounding.",
)


def _finish_once(vector: str, target: str, lanes: str) -> str:
    k = VectorBuilder("once")
    total = k.variable(vector, _WORDS)
    k(mve.vaddq_s32, total, k.variable("bias", _WORDS), into=total)
    k(mve.vmulhq_s32, total, k.variable("multiplier", _WORDS), into=total)
    k(mve.vrshlq_s32, total, k.variable("shift", _WORDS), into=total)
    k(mve.vqaddq_n_s32, total, k.number("zero_point"), into=total)
    vector_requantize.limit_lanes(k, total, INT8)
    store_lanes(k, total, target, INT8, lanes)
    return vector_text(k.build_vectors())


ROWS_ROUNDED_ONCE = DotProductKernel(
    "mve_matvec_once",
    COLUMN,
    VectorEnding(
        output=INT8,
        tables=(vector_requantize.PARAMETERS,),
        settings=immediates("zero_point", "low", "high", "lanes"),
        element=ROUNDED_ONCE,
        finish=_finish_once,
        instructions=lambda given: 8,
    ),
)
INTRINSICS = (FOLDED, ROUNDED_ONCE)
INTRINSIC_MAKERS = {
    **_INT8.makers,
    **_INT8_WITH_SHARES.makers,
    **_INT4.makers,
    **ROWS_ROUNDED_ONCE.makers,
}


def folded_settings(folded: FoldedRequantize, lanes: int) -> list[int] | None:
    """Return the immediate operands, or None if rows differ in more than their bias."""
    same = []
    for column in (folded.multiplier, folded.left, folded.addend, folded.sign):
        if len(set(column)) != 1:
            return None
        same.append(column[0])
    return [*same, folded.shift, folded.clamp_min, folded.clamp_max, lanes]


def _configs(op: OpCall) -> Sequence[WeightConfig]:
    if op.input(0).dtype != INT8 or op.input(1).dtype != INT8:
        return ()
    if not has_int32_multiplier(op) or _settings(op) is None:
        return ()
    return weight_configs(op, _INT4.layout)


def _settings(op: OpCall) -> list[int] | None:
    """Return the immediate operands, or None if the epilogue is not exact."""
    matrix = weight_offsets(op)
    low, high = accumulator_bounds(fold_zero_point_into_bias(op, matrix), matrix)
    folded = fold_requantize(requantization_of(op), low, high)
    if folded is None or folded.is_float32:
        return None
    return folded_settings(folded, _INT8.blocks(len(matrix)).stored)


def _build(op: OpCall, config: WeightConfig, b: Kernel) -> None:
    settings, zero_point = _settings(op), weight_zero_point(op)
    assert settings is not None
    if config.weights == "int4":
        microkernel = _INT4
    elif zero_point:
        microkernel = _INT8_WITH_SHARES
    else:
        microkernel = _INT8
    bias = fold_zero_point_into_bias(op, weight_offsets(op))
    table = microkernel.blocks(len(bias)).table(bias)
    _multiply_rows(op, b, microkernel, table, settings)


def _channel_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    """Return a configuration for a layer in float32, and for one of several scales."""
    if op.input(0).dtype != INT8 or op.input(1).dtype != INT8:
        return ()
    if op.numerics == "onnx":
        return (NO_CONFIG,)
    if has_weight_zero_point(op) or not has_int32_multiplier(op) or _settings(op):
        return ()
    params = requantization_of(op)
    applies = vector_requantize.supports_requantize(params) or _rounds_once(params)
    return (NO_CONFIG,) if applies else ()


def _rounds_once(params: Requantization) -> bool:
    is_once = params.rounding is Rounding.ONCE
    return is_once and int16_dot.supports_requantize(params)


def _build_channels(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    is_float32 = op.numerics == "onnx"
    params = (
        vector_requantize.layer_parameters(op) if is_float32 else requantization_of(op)
    )
    bias = fold_zero_point_into_bias(op, weights_of(op))
    once = _rounds_once(params)
    if once:
        params = int16_dot.adjust_round_once_shifts(params)
    microkernel = ROWS_ROUNDED_ONCE if once else int8_dot.ROWS_BY_CHANNEL
    blocks = microkernel.blocks(len(bias))
    table = vector_requantize.parameter_table(params, bias, blocks)
    lanes = blocks.stored
    settings = [params.zero_point, params.clamp_min, params.clamp_max, lanes]
    if not once:
        settings = vector_requantize.epilogue_settings(params, lanes)
    _multiply_rows(op, b, microkernel, table, settings)


def _multiply_rows(
    op: OpCall,
    b: Kernel,
    microkernel: DotProductKernel,
    parameters: Array,
    settings: Sequence[int],
) -> None:
    """Multiply each row of the input by all rows of weights.

    The parameters are those of blocks of channels.
    """
    matrix = weights_of(op)
    outputs, depth = matrix.shape
    gemm = microkernel.gemm(b, matrix, {"bias": parameters}, settings)
    gemm = replace(gemm, share=int8_dot.share_of(weight_zero_point(op), depth))
    with b.for_("n", op.output.elements // outputs) as n:
        gemm.emit(b, [b.pointer(b.input(0), n * depth, depth)], [n])


SCHEDULES = (
    helium_schedule(
        "helium.fully_connected.rows",
        "fully_connected",
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    ),
    *vector_requantize.int8_schedules(
        helium_schedule(
            "helium.fully_connected.channels",
            "fully_connected",
            build=_build_channels,
            configs=_channel_configs,
        )
    ),
)
