"""quantize of float32 to int8, and dequantize, on RISC-V vectors of floats.

The quotient is that of the definition, VFDIV, and VFCVT rounds halves away from zero as
it does. Limits keep infinities and NaN as the operator has them: NaN becomes the lower
one.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, immediate
from firmwright.ir.tir.intrinsic import immediates, inputs, pointers
from firmwright.kernels.elementwise import ElementLoop, element_intrinsics, riscv_text
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules import float_elements
from firmwright.schedules.rvv.endings import NOMINAL_LANES

_FLOATS = partial(riscv_row, NOMINAL_LANES, FLOAT32)
_WORDS = partial(riscv_row, NOMINAL_LANES, INT32)
_HALVES = partial(riscv_row, NOMINAL_LANES, INT16)
_BYTES = partial(riscv_row, NOMINAL_LANES, INT8)
_FAR = 512.0
"""Beyond every int8, with any zero point."""

# ---- quantize ------------------------------------------------------------------------


def _quantize(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
    least, most = k.number("least", FLOAT32), k.number("most", FLOAT32)
    scaled = k(_FLOATS("vfdiv_vf"), lanes[0], k.number("scale", FLOAT32))
    limited = k(_FLOATS("vfmin_vf"), k(_FLOATS("vfmax_vf"), scaled, least), most)
    nearest = k(_WORDS("vfcvt_x_f_v"), limited)
    moved = k(_WORDS("vadd_vx"), nearest, k.number("zero_point"))
    return k(_BYTES("vnclip_wx"), k(_HALVES("vnclip_wx"), moved, 0), 0)


def _byte(**x: ArithExpr) -> ArithExpr:
    scaled = [x["x"] / x["scale"], x["zero_point"]]
    return call_intrinsic("nearest_int8", scaled, INT32).cast(INT8)


QUANTIZE_LOOP = ElementLoop(
    (PointerOperand("x", FLOAT32),), PointerOperand("y", INT8, "w"), INT32, _quantize
)
_QUANTIZE = element_intrinsics(
    "rvv_quantize_floats",
    (
        *pointers(INT8, "w", y=1),
        *pointers(FLOAT32, x=1),
        *inputs(FLOAT32, "scale", "least", "most"),
        *immediates("zero_point", "count"),
    ),
    _byte,
    "Quantizes `count` elements.",
    "rvvf",
    riscv_text(QUANTIZE_LOOP, NOMINAL_LANES),
    lambda args: 12 + divide_up(args[-1], NOMINAL_LANES) * 14,
)


def _build_quantize(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    quant, count = per_tensor_quant(op.output), op.output.elements
    ends = [b.pointer(b.y, 0, count, "w"), b.pointer(b.input(0), 0, count)]
    numbers = [
        immediate(float(each), FLOAT32)
        for each in (np.float32(quant.scale), -_FAR, _FAR)
    ]
    b.evaluate("rvv_quantize_floats", [*ends, *numbers, quant.zero_point, count])
    b.state_elementwise()


# ---- dequantize ----------------------------------------------------------------------


def _dequantize(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
    wide = k(_WORDS("vsext_vf4"), lanes[0])
    steps = k(_WORDS("vsub_vx"), wide, k.number("zero_point"))
    whole = k(_FLOATS("vfcvt_f_x_v"), steps)
    return k(_FLOATS("vfmul_vf"), whole, k.number("scale", FLOAT32))


DEQUANTIZE_LOOP = ElementLoop(
    (PointerOperand("x", INT8),),
    PointerOperand("y", FLOAT32, "w"),
    FLOAT32,
    _dequantize,
)
_DEQUANTIZE = element_intrinsics(
    "rvv_dequantize_floats",
    float_elements.dequantize_operands(INT8),
    float_elements.dequantize,
    "Floats of `count` elements.",
    "rvvf",
    riscv_text(DEQUANTIZE_LOOP, NOMINAL_LANES),
    lambda args: 10 + divide_up(args[-1], NOMINAL_LANES) * 10,
)
INTRINSICS = (*_QUANTIZE, *_DEQUANTIZE)


def _build_dequantize(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    float_elements.build_dequantize("rvv_dequantize_floats", op, b)


def _converts(op: OpCall) -> Sequence[ScheduleConfig]:
    fits = {op.input(0).dtype, op.output.dtype} == {FLOAT32, INT8}
    return (NO_CONFIG,) if fits else ()


SCHEDULES = (
    Schedule(
        "rvv.quantize.floats",
        "quantize",
        frozenset({"rvv", "rvvf"}),
        _converts,
        _build_quantize,
    ),
    Schedule(
        "rvv.dequantize.floats",
        "dequantize",
        frozenset({"rvv", "rvvf"}),
        _converts,
        _build_dequantize,
    ),
)
