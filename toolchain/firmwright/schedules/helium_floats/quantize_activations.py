"""Quantization of float activations to int8 for hybrid layers, four at a time.

`mve_min_max_f32` finds the minimum and maximum by comparing bits, as the default loops do.
`mve_quantize_f32` uses VCVTA, which rounds halves away from zero like the definition.
"""

from textwrap import indent
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT32
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, Register, immediate, maximum
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, inputs, pointers
from firmwright.ops.dynamic_range import FloatRow, QuantizePasses
from firmwright.ops.kernel import Kernel

_C = read_sections(__file__)

_NEGATIVE_ZERO = 0x80000000


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
    portable=_C["ends_portable"],
    doc="Bits of the least and of the greatest of `count` values and 0.",
    requires="mvefp",
    text={"gnu": _C["ends_text"]},
    count=lambda args: 12 + args[1] // 4 * 5,
)


_WHOLE, _REST = (
    indent(fill_text(_C["nearest"], values=values), " " * 4)
    for values in ("vldrwq_f32(from)", "vldrwq_z_f32(from, inside)")
)


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
        *inputs(FLOAT32, "inverse"),
        *inputs(INT32, "offset"),
        *immediates("moves", "count"),
    ),
    meaning=_quantize_meaning,
    portable=_C["quantize_portable"],
    doc="The int8 nearest to each of `count` values, times `inverse`, plus `offset`.",
    requires="mvefp",
    text={"gnu": fill_text(_C["quantize_text"], whole=_WHOLE, rest=_REST)},
    count=lambda args: 12 + args[-1] // 4 * 10,
)

INTRINSICS = (MIN_MAX, QUANTIZE)


def _ends(b: Kernel, row: FloatRow, low: Register, high: Register) -> None:
    least, most = b.register("least", UINT32), b.register("most", INT32)
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
    b: Kernel, row: FloatRow, target: tir.Buffer, inverse: ArithExpr, offset: ArithExpr | None
) -> None:
    size = target.elements
    moved_by = 0 if offset is None else offset
    factor = b.let("inverse", inverse)
    b.evaluate(
        QUANTIZE.name,
        [
            b.pointer(target, 0, size, "w"),
            b.pointer(row.buffer, row.start, size),
            factor, moved_by, int(offset is not None), size,
        ],
    )  # fmt: skip


QUANTIZE_PASSES = QuantizePasses(_reach, _ends, _values)
