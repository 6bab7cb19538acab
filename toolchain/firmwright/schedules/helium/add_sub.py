"""add and sub of int8 tensors of equal shape on Helium, four elements at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.kernel import Kernel
from firmwright.ops.rescaled_sum import rescaled_sum
from firmwright.schedules.helium import vector_requantize

# Both inputs are rescaled to a common scale (ops/rescaled_sum.py): minus the zero point, times
# 2^20, doubling high multiply, rounding right shift for the smaller scale. VQRDMULH and VRSHL
# implement these steps except that halves of negative numbers round away from zero: 1 is subtracted
# from negative values before a shift. Obligation: no left shift, so that every value fits 32 bits.

_IMMEDIATES = (
    "zero_a", "multiplier_a", "shift_a", "zero_b", "multiplier_b", "shift_b",
    "multiplier", "shift", "zero_point", "low", "high", "away", "count",
)  # fmt: skip

_PORTABLE = """\
const int8_t *const inputs[2] = {a, b};
const int32_t zeros[2] = {zero_a, zero_b};
const int32_t factors[3] = {multiplier_a, multiplier_b, multiplier};
const int32_t shifts[3] = {shift_a, shift_b, shift};
(void)away;
for (int32_t i = 0; i < count; ++i) {
    int64_t value = 0;
    int64_t sum = 0;
    for (int32_t k = 0; k < 3; ++k) {
        value = k < 2 ? ((int64_t)inputs[k][i] - zeros[k]) * (1 << 20) : sum;
        value = (value * factors[k] + (1 << 30)) >> 31;
        const int32_t right = -shifts[k];
        value += right > 0 ? ((int64_t)1 << (right - 1)) - (value < 0) : 0;
        value >>= right;
        sum = k == 1 ? sum SIGN value : k == 0 ? value : sum;
    }
    value += zero_point;
    value = value > low ? value : low;
    y[i] = (int8_t)(value < high ? value : high);
}"""

_TEXT = """\
for (int32_t left = count; left > 0; left -= 4) {{
    const mve_pred16_t inside = vctp32q((uint32_t)left);
    int32x4_t p = count % 4 == 0 ? vldrbq_s32(a) : vldrbq_z_s32(a, inside);
    int32x4_t q = count % 4 == 0 ? vldrbq_s32(b) : vldrbq_z_s32(b, inside);
    p = vsubq_n_s32(p, zero_a);
    q = vsubq_n_s32(q, zero_b);
    if (multiplier_a == 1 << 30 && shift_a == 0) {{
        p = vshlq_n_s32(p, 19);
    }} else {{
        p = vqrdmulhq_n_s32(vshlq_n_s32(p, 20), multiplier_a);
    }}
    if (shift_a < 0) {{
        p = vrshlq_n_s32(vaddq_s32(p, vshrq_n_s32(p, 31)), shift_a);
    }}
    if (multiplier_b == 1 << 30 && shift_b == 0) {{
        q = vshlq_n_s32(q, 19);
    }} else {{
        q = vqrdmulhq_n_s32(vshlq_n_s32(q, 20), multiplier_b);
    }}
    if (shift_b < 0) {{
        q = vrshlq_n_s32(vaddq_s32(q, vshrq_n_s32(q, 31)), shift_b);
    }}
    p = vqrdmulhq_n_s32({sum}(p, q), multiplier);
    if (away && shift < 0) {{
        p = vaddq_s32(p, vshrq_n_s32(p, 31));
    }}
    p = vqaddq_n_s32(vrshlq_n_s32(p, shift), zero_point);
    if (low > -128) {{
        p = vmaxq_s32(p, vdupq_n_s32(low));
    }}
    if (high < 127) {{
        p = vminq_s32(p, vdupq_n_s32(high));
    }}
    __asm__("vqmovnb.s32 %q0, %q0\\n\\tvqmovnb.s16 %q0, %q0" : "+w"(p));
    if (count % 4 == 0) {{
        vstrbq_s32(y, p);
    }} else {{
        vstrbq_p_s32(y, p, inside);
    }}
    a += 4;
    b += 4;
    y += 4;
    /* Keep three pointers: post-increments are free, a common index is not. */
    __asm__("" : "+r"(a), "+r"(b), "+r"(y));
}}"""


def _meaning(sign: int, a: Any, b: Any, y: Any, *rest: Any) -> Any:
    zero_a, multiplier_a, shift_a, zero_b, multiplier_b, shift_b, *after = rest
    multiplier, shift, zero_point, low, high, _, count = after

    def term(x: Any, zero: int, factor: int, by: int) -> Any:
        wide = (np.asarray(x)[:count].astype(np.int64) - zero) << 20
        return multiply_by_quantized_multiplier(wide, factor, by, Rounding.TWICE)

    total = term(a, zero_a, multiplier_a, shift_a) + sign * term(b, zero_b, multiplier_b, shift_b)
    scaled = multiply_by_quantized_multiplier(total, multiplier, shift, Rounding.TWICE)
    return np.clip(scaled + zero_point, low, high).astype(np.int8)


def _executed(args: Sequence[int]) -> int:
    fixed = 14 + 2 + 2 * sum(args[at] < 0 for at in (5, 8)) + 2 * (args[14] > 0)
    return 10 + -(-args[15] // 4) * fixed


def _sum(name: str, sign: int) -> Intrinsic:
    return Intrinsic(
        name=f"mve_{name}",
        operands=(*pointers(INT8, a=1, b=1), *pointers(INT8, "w", y=1), *immediates(*_IMMEDIATES)),
        meaning=lambda *args: _meaning(sign, *args),
        portable=_PORTABLE.replace("SIGN", "+" if sign > 0 else "-"),
        doc=f"Rescaled {name} of `count` elements.",
        requires="mve",
        text={"gnu": _TEXT.format(sum="vaddq_s32" if sign > 0 else "vsubq_s32")},
        count=_executed,
    )


INTRINSICS = (_sum("add", 1), _sum("sub", -1))


def _configs(op: OpCall) -> Sequence[Config]:
    kinds = [op.input(0), op.input(1)]
    if any(k.dtype != INT8 or k.shape != op.output.shape for k in kinds):
        return ()
    params = rescaled_sum(op)
    shifts = [*(term.shift for term in params.terms), *params.output.shifts]
    if max(shifts) > 0 or not vector_requantize.supports_requantize(params.output):
        return ()
    return ({},)


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    params = rescaled_sum(op)
    count = op.output.elements
    output = params.output
    zero, low, high, away, _ = vector_requantize.epilogue_settings(output, 4)
    scales = [v for t in params.terms for v in (t.zero_point, t.multiplier, t.shift)]
    b.evaluate(
        f"mve_{op.op}",
        [
            b.pointer(b.input(0), 0, count),
            b.pointer(b.input(1), 0, count),
            b.pointer(b.y, 0, count, "w"),
            *scales, output.multipliers[0], output.shifts[0], zero, low, high, away, count,
        ],
    )  # fmt: skip


SCHEDULES = tuple(
    Schedule(f"helium.{name}.vectors", name, frozenset({"mve"}), _configs, _build)
    for name in ("add", "sub")
)
