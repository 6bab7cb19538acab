"""Quantization of float activations to int8 for hybrid layers, four at a time.

`mve_min_max_f32` finds the minimum and maximum by comparing bits, as the default loops do.
`mve_quantize_f32` uses VCVTA, which rounds halves away from zero like the definition.
"""

from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT32
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, immediate, maximum
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.ops.dynamic_range import FloatRow, QuantizePasses
from firmwright.ops.kernel import Kernel

_NEGATIVE_ZERO = 0x80000000

_ENDS_PORTABLE = """\
least = 0x80000000u;
most = 0;
for (int32_t i = 0; i < count; ++i) {
    union {
        float value;
        uint32_t bits;
        int32_t number;
    } at;
    at.value = x[i];
    least = at.bits > least ? at.bits : least;
    most = at.number > most ? at.number : most;
}"""

_ENDS_TEXT = """\
uint32x4_t leasts = vdupq_n_u32(0x80000000u);
int32x4_t mosts = vdupq_n_s32(0);
const float *from = x;
for (int32_t i = 0; i < count / 4; ++i) {
    const float32x4_t values = vldrwq_f32(from);
    leasts = vmaxq_u32(leasts, vreinterpretq_u32_f32(values));
    mosts = vmaxq_s32(mosts, vreinterpretq_s32_f32(values));
    from += 4;
}
if (count % 4 != 0) {
    const float32x4_t values = vldrwq_z_f32(from, vctp32q((uint32_t)(count % 4)));
    leasts = vmaxq_u32(leasts, vreinterpretq_u32_f32(values));
    mosts = vmaxq_s32(mosts, vreinterpretq_s32_f32(values));
}
least = vmaxvq_u32(0x80000000u, leasts);
most = vmaxvq_s32(0, mosts);"""


def _ends_meaning(x: Any, count: Any, *_: Any) -> tuple[Any, Any]:
    bits = np.ascontiguousarray(np.asarray(x, np.float32)[:count])
    least = np.maximum(bits.view(np.uint32).max(axis=0), np.uint32(_NEGATIVE_ZERO))
    return least, np.maximum(bits.view(np.int32).max(axis=0), 0)


MIN_MAX = Intrinsic(
    name="mve_min_max_f32",
    operands=(
        *pointers(FLOAT32, x=1),
        *immediates("count"),
        Operand("least", "out", UINT32),
        Operand("most", "out", INT32),
    ),
    meaning=_ends_meaning,
    portable=_ENDS_PORTABLE,
    doc="Bits of the least and of the greatest of `count` values and 0.",
    requires="mvefp",
    text={"gnu": _ENDS_TEXT},
    count=lambda args: 12 + args[1] // 4 * 5,
)

_QUANTIZE_PORTABLE = """\
for (int32_t i = 0; i < count; ++i) {
    const float scaled = x[i] * inverse;
    const float above = scaled > -512.0f ? scaled : -512.0f;
    const float cut = above < 512.0f ? above : 512.0f;
    const int32_t halves = (int32_t)(cut + cut);
    const int32_t nearest = ((halves + 1 + (halves >> 31)) >> 1) + (moves ? offset : 0);
    y[i] = (int8_t)(nearest < -128 ? -128 : nearest > 127 ? 127 : nearest);
}"""

_NEAREST = """\
int32x4_t nearest = vcvtaq_s32_f32(vmulq_n_f32({values}, inverse));
if (moves) {{
    nearest = vaddq_n_s32(nearest, offset);
}}
__asm__("vqmovnb.s32 %q0, %q0\\n\\tvqmovnb.s16 %q0, %q0" : "+w"(nearest));"""

_QUANTIZE_TEXT = "\n".join([
    "const float *from = x;",
    "int8_t *to = y;",
    "for (int32_t i = 0; i < count / 4; ++i) {",
    *("    " + line for line in _NEAREST.format(values="vldrwq_f32(from)").splitlines()),
    "    vstrbq_s32(to, nearest);",
    "    from += 4;",
    "    to += 4;",
    "}",
    "if (count % 4 != 0) {",
    "    const mve_pred16_t inside = vctp32q((uint32_t)(count % 4));",
    *("    " + line for line in _NEAREST.format(values="vldrwq_z_f32(from, inside)").splitlines()),
    "    vstrbq_p_s32(to, nearest, inside);",
    "}",
])  # fmt: skip


def _quantize_meaning(y: Any, x: Any, inverse: Any, offset: Any, moves: Any, count: Any) -> Any:
    with np.errstate(all="ignore"):
        wide = (np.asarray(x, np.float32)[:count] * inverse).astype(np.float64)
    nearest = np.sign(wide) * np.floor(np.abs(wide) + 0.5)
    return np.clip(nearest + (offset if moves else 0), INT8.min, INT8.max).astype(np.int8)


QUANTIZE = Intrinsic(
    name="mve_quantize_f32",
    operands=(
        *pointers(INT8, "w", y=1),
        *pointers(FLOAT32, x=1),
        Operand("inverse", "in", FLOAT32),
        Operand("offset", "in", INT32),
        *immediates("moves", "count"),
    ),
    meaning=_quantize_meaning,
    portable=_QUANTIZE_PORTABLE,
    doc="The int8 nearest to each of `count` values, times `inverse`, plus `offset`.",
    requires="mvefp",
    text={"gnu": _QUANTIZE_TEXT},
    count=lambda args: 12 + args[-1] // 4 * 10,
)

INTRINSICS = (MIN_MAX, QUANTIZE)


def _ends(b: Kernel, row: FloatRow, low: tir.Buffer, high: tir.Buffer) -> None:
    least, most = b.reg("least", UINT32), b.reg("most", INT32)
    values = b.pointer(row.buffer, row.start, row.size)
    b.evaluate(MIN_MAX.name, [values, row.size, b.load(least, [0]), b.load(most, [0])])
    for end, bits in ((low, b.load(least, [0]).cast(INT32)), (high, b.load(most, [0]))):
        b.store(end, [0], intrinsic("float_of_bits", [bits], FLOAT32))


def _reach(b: Kernel, row: FloatRow, reach: tir.Buffer) -> None:
    low = b.reg("least_value", FLOAT32)
    _ends(b, row, low, reach)
    zero = ArithExpr(immediate(0.0, FLOAT32))
    b.store(reach, [0], maximum(b.load(reach, [0]), zero - b.load(low, [0])))


def _values(
    b: Kernel, row: FloatRow, target: tir.Buffer, inverse: ArithExpr, offset: ArithExpr | None
) -> None:
    size = target.elements
    moved_by = 0 if offset is None else offset
    with b.let("inverse", inverse) as factor:
        b.evaluate(
            QUANTIZE.name,
            [
                b.pointer(target, 0, size, "w"),
                b.pointer(row.buffer, row.start, size),
                factor, moved_by, int(offset is not None), size,
            ],
        )  # fmt: skip


QUANTIZE_PASSES = QuantizePasses(_reach, _ends, _values)
