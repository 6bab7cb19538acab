"""Micro-kernels of int8 columns, requantized with parameters of each channel."""

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32
from firmwright.base.text_sections import read_sections
from firmwright.ir import tir
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
    maximum,
    minimum,
    select,
)
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    Operand,
    immediates,
    inputs,
    pointers,
)
from firmwright.kernels.elementwise import value_intrinsic
from firmwright.kernels.mve.dot_products import Weights
from firmwright.ops.kernel import Kernel
from firmwright.schedules.block_gemm import Share
from firmwright.schedules.helium import vector_requantize
from firmwright.schedules.helium.dot_product_kernels import (
    COLUMN,
    PAIR,
    DotProductKernel,
)
from firmwright.schedules.helium.vector_ending import VectorEnding
from firmwright.schedules.helium.vector_requantize import LaneRounding
from firmwright.schedules.row_dots import dot_intrinsic

_C = read_sections(__file__)

# A step of `mve_gemm_int8_LOOP` (kernels/mve/dot_products.py) reads sixteen values of
# two columns and sixteen weights of four channels, 14 instructions for 128 products;
# one of `mve_matvec_channels_LOOP` sixteen values of one column and weights of eight
# channels. `mve_gemm_shares_int8_LOOP` adds to the sums of each column its share of the
# weights' zero point.

_LEAST, _MOST = -1024.0, 1024.0
"""Beyond the results of any clamp, also with a zero point."""


def _requantized(**x: ArithExpr) -> ArithExpr:
    """Return the result of a sum; see vector_requantize.py."""
    biased = x["sum"] + x["bias"]
    factor = call_intrinsic("float_of_bits", [x["multiplier"]], FLOAT32)
    product = minimum(maximum(biased.cast(FLOAT32) * factor, _LEAST), _MOST)
    nearest = call_intrinsic("nearest_even", [product], INT32)
    scale = [biased, x["multiplier"], x["shift"]]
    twice = call_intrinsic("requantize_twice", scale, INT32)
    is_float = x["rounding"].equal(int(LaneRounding.IN_FLOAT32))
    moved = select(is_float, nearest, twice) + x["zero_point"]
    return minimum(maximum(moved, x["low"]), x["high"]).cast(INT8)


REQUANTIZED = value_intrinsic(
    "mve_requantized_int8",
    inputs(
        INT32,
        "sum",
        "bias",
        "multiplier",
        "shift",
        "zero_point",
        "low",
        "high",
        "rounding",
    ),
    _requantized,
    "Adds the bias to a sum and requantizes it.",
)

ENDING = VectorEnding(
    output=INT8,
    tables=(vector_requantize.PARAMETERS,),
    settings=vector_requantize.EPILOGUE_OPERANDS,
    element=REQUANTIZED,
    finish=vector_requantize.requantize_assembly,
    instructions=lambda given: 8 + (0, 2, 3, 1)[given["rounding"]],
)

PAIR_INT8 = DotProductKernel("mve_gemm_int8", PAIR, ENDING)
PAIR_INT8_WITH_SHARES = DotProductKernel(
    "mve_gemm_shares_int8", PAIR, ENDING, has_shares=True
)
PAIR_INT4 = DotProductKernel("mve_gemm_int4", PAIR, ENDING, Weights.INT4)
ROWS_BY_CHANNEL = DotProductKernel("mve_matvec_channels", COLUMN, ENDING)

SUM = Intrinsic(
    name="mve_sum_int8",
    operands=(
        *pointers(INT8, x=1),
        *immediates("count"),
        Operand("total", "out", INT32),
    ),
    meaning=lambda x, count, *_: np.asarray(x, np.int64)[:count].sum(axis=0),
    portable="total = 0;\nfor (int32_t i = 0; i < count; ++i) {\n    total += x[i];\n}",
    doc="The sum of `count` values.",
    requires="mve",
    text={"gnu": _C["sum_text"]},
    count=lambda args: 6 + args[1] // 16 * 4,
)

DOT = dot_intrinsic(
    "mve_dot_int8",
    "mve",
    _C["dot_text"],
    lambda taps: 6 + taps // 16 * 4 + 5 * (taps % 16 > 0),
)


def share_of(zero_point: int, taps: int) -> Share | None:
    """Return what `taps` values add to sums because of the weights' zero point."""
    if not zero_point:
        return None

    def share(b: Kernel, column: tir.AccessPtr) -> ArithExpr:
        total = b.register("total", INT32)
        values = b.pointer(column.buffer, column.offset, taps)
        b.evaluate(SUM.name, [values, taps, total.value])
        total.set(total.value * -zero_point)
        return total.value

    return share


INTRINSICS = (SUM, DOT, REQUANTIZED)
INTRINSIC_MAKERS = {
    **PAIR_INT8.makers,
    **PAIR_INT8_WITH_SHARES.makers,
    **PAIR_INT4.makers,
    **ROWS_BY_CHANNEL.makers,
}
