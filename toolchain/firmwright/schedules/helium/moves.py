"""Data movement operators, and inversions of sign bits, by vectors."""

from typing import Any

import numpy as np

from firmwright.base.dtypes import UINT8, UINT16, UINT32, DType
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ir.tir.schedule import Config
from firmwright.ops.kernel import Kernel
from firmwright.ops.quantize import flips_sign_bits
from firmwright.ops.registry import op_table
from firmwright.ops.strided_copy import CopyAxis
from firmwright.schedules.helium.im2col import MAX_UNROLLED_VECTORS, VECTOR_BYTES, copy_bytes
from firmwright.schedules.schedule_factories import helium_schedule

_OPS = "batch_to_space_nd concatenation depth_to_space mirror_pad pad reshape resize_nearest"
_OPS += " space_to_batch_nd space_to_depth split strided_slice tile transpose"
_BLOCK = MAX_UNROLLED_VECTORS * VECTOR_BYTES
_TIME_MAX = 0.9
_C = read_sections(__file__)
_Place = tuple[tir.Buffer, ArithExpr]


def _copy(b: Kernel, target: _Place, source: _Place, axis: CopyAxis) -> None:
    (to, at), (x, start), count = target, source, axis.extent
    if (axis.x_stride, axis.y_stride) != (1, 1):
        out = b.pointer(to, at, (count - 1) * axis.y_stride + 1, "rw")
        run = b.pointer(x, start, (count - 1) * axis.x_stride + 1)
        b.evaluate(f"mve_copy_{to.dtype.name}", [out, run, axis.y_stride, axis.x_stride, count])
        return
    blocks = count // _BLOCK if count > 2 * _BLOCK else 0
    if blocks:
        with b.for_("block", blocks) as i:
            copy_bytes(b, to, at + i * _BLOCK, x, start + i * _BLOCK, _BLOCK)
    done = blocks * _BLOCK
    copy_bytes(b, to, at + done, x, start + done, count - done)


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    b.copy_run = _copy
    op_table()[op.op].lower(op, b)


def _build_flips(op: OpCall, config: Config, b: Kernel) -> None:
    count = op.output.elements
    x = b.view("in", b.input(0), 0, (count,), dtype=UINT8)
    y = b.view("out", b.y, 0, (count,), dtype=UINT8, access="w")
    b.evaluate("mve_flip_signs", [b.pointer(y, 0, count, "w"), b.pointer(x, 0, count), count])


def _strided(y: Any, x: Any, y_step: Any, x_step: Any, count: Any) -> Any:
    result = np.array(y)
    result[::y_step] = np.asarray(x)[::x_step]
    return result


def _strided_copy(dtype: DType) -> Intrinsic:
    lanes, letter = min(8, 16 // dtype.size_bytes), "bhw"[dtype.size_bytes // 2]
    shifted = "" if dtype == UINT8 else "_shifted"
    return Intrinsic(
        f"mve_copy_{dtype.name}",
        (*pointers(dtype, "rw", y=1), *pointers(dtype, x=1),
         *immediates("y_step", "x_step", "count")),
        _strided,
        _C["portable"],
        "Copies `count` elements with strides.",
        requires="mve",
        text={"gnu": fill_text(_C["text"], n=lanes, bits=128 // lanes, c=letter, shifted=shifted)},
        count=lambda args: 12 + -(-args[4] // lanes) * 6,
    )  # fmt: skip


INTRINSICS = (
    *map(_strided_copy, (UINT8, UINT16, UINT32)),
    Intrinsic(
        "mve_flip_signs",
        (*pointers(UINT8, "w", y=1), *pointers(UINT8, x=1), *immediates("count")),
        lambda y, x, count: np.asarray(x)[:count] ^ 0x80,
        "for (int32_t i = 0; i < count; ++i) {\n    y[i] = x[i] ^ 0x80u;\n}",
        "Inverts the sign bits of `count` bytes.",
        requires="mve",
        text={"gnu": _C["flips"]},
        count=lambda args: 10 + args[2] // 4,
    ),
)  # fmt: skip

SCHEDULES = (
    *(
        helium_schedule(f"helium.{op}.vectors", op, configs=lambda op: ({},), build=_build,
                        time_max=_TIME_MAX)
        for op in _OPS.split()
    ),
    helium_schedule("helium.quantize.signs", "quantize", build=_build_flips,
                    configs=lambda op: ({},) if flips_sign_bits(op) else ()),
)  # fmt: skip
