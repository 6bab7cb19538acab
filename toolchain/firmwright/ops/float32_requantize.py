"""ONNX Runtime's requantization by integers: float32(x) * factor, halves to even.

Sum and product are rounded to 24 bits, the product then to an integer. Results below
512 are those of one exact rounding, unless the product is within 2^-14 of a tie; only
then are the roundings to 24 bits computed. Larger results are beyond any clamp.
"""

import numpy as np

from firmwright.base.dtypes import INT32, Array
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.base.text_sections import read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, inputs

_C = read_sections(__file__)
_NEAR_TIE = _C["near_tie"]
"""C text from x, multiplier and right to `scaled`, the magnitude of the result."""


def _requantized(x: Array, multiplier: Array, shift: Array | int) -> Array:
    scaled = multiply_by_quantized_multiplier(x, multiplier, shift, Rounding.FLOAT32)
    return scaled.astype(np.int32)


REQUANTIZE_FLOAT32 = Intrinsic(
    name="requantize_float32",
    operands=inputs(INT32, "x", "multiplier", "shift"),
    result=INT32,
    meaning=_requantized,
    portable=_C["requantize_float32_portable"],
    rare=(
        f"const int32_t right = 31 - shift;\n{_NEAR_TIE}return x < 0 ? -scaled : "
        "scaled;"
    ),
    doc=(
        "x * multiplier * 2^(shift - 31), rounded once; "
        "if multiplier is odd, in float32."
    ),
    instructions=20,
)


def _folded(
    raised: Array, x: Array, multiplier: Array, shift: Array, zero_point: Array
) -> Array:
    margin = 1 << max(int(shift) - 13, 0)
    low_bits = (1 << int(shift)) - 1
    is_near = ((np.asarray(raised, np.int64) + margin) & low_bits) < 2 * margin
    exact = _requantized(x, multiplier, -1 - int(shift)) + zero_point
    is_float32 = is_near & (np.asarray(multiplier) % 2 == 1)
    return np.where(is_float32, exact, np.asarray(raised) >> shift).astype(np.int32)


REQUANTIZE_FOLDED_FLOAT32 = Intrinsic(
    name="requantize_folded_float32",
    operands=(
        *inputs(INT32, "raised", "x", "multiplier"),
        *immediates("folded_shift", "zero_point"),
    ),
    result=INT32,
    meaning=_folded,
    portable=_C["requantize_folded_float32_portable"],
    rare=f"""\
(void)raised;
const int32_t right = folded_shift + 32;
{_NEAR_TIE}return (x < 0 ? -scaled : scaled) + zero_point;""",
    requires="fpu",
    text={"gnu": _C["requantize_folded_float32_gnu"]},
    doc="raised >> folded_shift; if multiplier is odd, in float32 near a tie.",
    instructions=5,
)
