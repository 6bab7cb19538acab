"""Requantization of vectors of four channels, as C text shared by the micro-kernels."""

import enum
from dataclasses import replace
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array, DType
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import immediates
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.isa import mve, mve_lanes
from firmwright.kernels.isa.c_numbers import equal, greater, less
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.conv2d import requantization_of
from firmwright.ops.requantize import (
    Requantization,
    float32_factors,
    float32_requantization,
)
from firmwright.ops.schedule import ConfigT_co, Schedule
from firmwright.schedules.helium.vector_ending import ParameterTable, store_lanes

_C = read_sections(__file__)

# `q` holds nine int32 for four channels: biases, multipliers, and a word of shifts as
# VRSHL takes them (negative is right). VRSHL rounds halves up but the definition rounds
# them away from zero, so 1 is first subtracted from negative values that are shifted.
# If the lower clamp is not below the zero point (ReLU), this affects clamped values
# alone and is omitted. VQRDMULH is the doubling high multiply of the definition.
#
# Obligations: no left shift (`supports_requantize`), multipliers are not negative, and
# sums with bias fit 32 bits (guaranteed by the operators).
#
# Layers of ONNX Runtime compute in float32 (`LaneRounding.IN_FLOAT32`), as it is
# defined: VCVT and VMUL round to nearest, VCVTN rounds halves to even and saturates.
# Multipliers are the bits of factors.

CHANNELS = 4
PARAMETERS = ParameterTable("q", INT32, ("bias", "multiplier"), small="shift")

EPILOGUE_OPERANDS = immediates("zero_point", "low", "high", "rounding", "lanes")


class LaneRounding(enum.IntEnum):
    """How an int8 micro-kernel rounds: the values of its operand `rounding`."""

    HALVES_UP = 0
    """As VRSHL rounds; halves of negative numbers are clamped."""
    HALVES_AWAY = 1
    """Away from zero; every channel is shifted."""
    HALVES_AWAY_IF_SHIFTED = 2
    """Away from zero in the channels that are shifted."""
    IN_FLOAT32 = 3
    """The layer computes in float32, halves to even."""


PORTABLE = _C["portable"]
"""C text from `sum` to `raised`, parameters from `at`; the caller clamps at `high`."""

_NARROWING = {
    INT8: mve_lanes.narrow_words_twice_in_place,
    INT16: mve_lanes.narrow_words_in_place,
}
_WORDS = RegisterPlace(RegisterClass.VECTOR, INT32, CHANNELS)


def _scale_twice() -> str:
    """Return C that scales the sums in `$v`."""
    k = VectorBuilder("scale_twice")
    rounding, total = k.number("rounding"), k.variable("$v", _WORDS)
    multiplier, shift = k.variable("$multiplier", _WORDS), k.variable("$shift", _WORDS)
    k(mve.vqrdmulhq_s32, total, multiplier, into=total)
    with k.when(k(equal, rounding, LaneRounding.HALVES_AWAY)):
        k(mve.vaddq_s32, total, k(mve.vshrq_n_s32, total, 31), into=total)
    with k.when(k(equal, rounding, LaneRounding.HALVES_AWAY_IF_SHIFTED)):
        shifted = k(mve.vandq_s32, total, shift)
        k(mve.vaddq_s32, total, k(mve.vshrq_n_s32, shifted, 31), into=total)
    k(mve.vrshlq_s32, total, shift, into=total)
    return f"{{\n{indent(vector_text(k.build_vectors()), '    ')}\n}}"


def limit_lanes(k: VectorBuilder, total: VirtualRegister, dtype: DType) -> None:
    """Clamp the variable `total`, then saturate it to `dtype`."""
    low, high = k.number("low"), k.number("high")
    with k.when(k(greater, low, dtype.min)):
        k(mve_lanes.vmaxq_s32, total, k(mve.vdupq_n_s32, low), into=total)
    with k.when(k(less, high, dtype.max)):
        k(mve_lanes.vminq_s32, total, k(mve.vdupq_n_s32, high), into=total)
    k(_NARROWING[dtype], total, into=total)


SCALED_TWICE = _scale_twice()

_SCALED = "\n".join([_C["scaled"], SCALED_TWICE])


def scale_assembly(
    vector: str, multiplier: str = "multiplier", shift: str = "shift"
) -> str:
    """Return C that scales the sums in `vector`, without the zero point."""
    return fill_text(_SCALED, v=vector, multiplier=multiplier, shift=shift)


def requantize_assembly(vector: str, target: str, lanes: str) -> str:
    biased = f"{vector} = vaddq_s32({vector}, bias);"
    moved = f"{vector} = vqaddq_n_s32({vector}, zero_point);"
    stored = store_assembly(vector, target, lanes)
    return "\n".join([biased, scale_assembly(vector), moved, stored])


def store_assembly(vector: str, target: str, lanes: str, dtype: DType = INT8) -> str:
    """Return C that clamps `vector` and stores `lanes` of its elements as `dtype`."""
    k = VectorBuilder("store")
    total = k.variable(vector, _WORDS)
    limit_lanes(k, total, dtype)
    store_lanes(k, total, target, dtype, lanes)
    return vector_text(k.build_vectors())


def supports_requantize(params: Requantization) -> bool:
    return params.rounding is Rounding.TWICE and max(params.shifts) <= 0


def supports_int8_layer(op: OpCall) -> bool:
    if op.input(0).dtype != INT8:
        return False
    return op.numerics == "onnx" or supports_requantize(requantization_of(op))


def layer_parameters(op: OpCall) -> Requantization:
    """Return the requantization as the tables hold it; in float32, bits of factors."""
    if op.numerics != "onnx":
        return requantization_of(op)
    factors = np.array(float32_factors(op), np.float32).view(np.int32)
    count = op.output.shape[-1] if len(factors) == 1 else 1
    return replace(
        float32_requantization(op),
        multipliers=tuple(factors.tolist()) * count,
        shifts=(0,),
    )


def int8_schedules(
    schedule: Schedule[ConfigT_co],
) -> tuple[Schedule[ConfigT_co], Schedule[ConfigT_co]]:
    """Return `schedule`, and its form for layers in float32, with float vectors."""
    configs = schedule.configs
    in_integers = replace(
        schedule, configs=lambda op: () if op.numerics == "onnx" else configs(op)
    )
    in_float32 = replace(
        schedule,
        name=f"{schedule.name}.float32",
        requires=frozenset({"mve", "mvefp"}),
        configs=lambda op: configs(op) if op.numerics == "onnx" else (),
    )
    return in_integers, in_float32


def epilogue_settings(params: Requantization, lanes: int) -> list[int]:
    return [
        params.zero_point,
        params.clamp_min,
        params.clamp_max,
        int(rounding_mode(params)),
        lanes,
    ]


def rounding_mode(params: Requantization) -> LaneRounding:
    if params.rounding is Rounding.FLOAT32:
        return LaneRounding.IN_FLOAT32
    if params.clamp_min >= params.zero_point:
        return LaneRounding.HALVES_UP
    if max(params.shifts) < 0:
        return LaneRounding.HALVES_AWAY
    return LaneRounding.HALVES_AWAY_IF_SHIFTED


def parameter_table(
    params: Requantization, bias: Array, blocks: ChannelBlocks
) -> Array:
    """Return the table `PARAMETERS` of channels: biases, multipliers and shifts."""
    columns = [bias.astype(np.int64)]
    for values in (params.multipliers, params.shifts):
        columns.append(np.broadcast_to(np.array(values, np.int64), len(bias)))
    return blocks.table(*columns[:2], small=columns[2])


def scale_lanes(
    sums: Array, multiplier: Array | int, shift: Array | int, rounding: Array | int
) -> Array:
    """Scale sums, without the zero point, in numpy."""
    if int(rounding) != LaneRounding.IN_FLOAT32:
        return multiply_by_quantized_multiplier(sums, multiplier, shift, Rounding.TWICE)
    factor = np.asarray(multiplier, np.int32).view(np.float32)
    product = np.asarray(sums).astype(np.float32) * factor
    result: Array = np.rint(np.clip(product, INT32.min, INT32.max)).astype(np.int64)
    return result
