"""hybrid_conv2d on RISC-V float vectors: quantization, sums and outputs in lanes."""

from collections.abc import Sequence
from functools import partial

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, UINT32
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import read_sections
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, Register, call_intrinsic, maximum
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, inputs, pointers
from firmwright.kernels.elementwise import ElementLoop, element_intrinsics, riscv_text
from firmwright.kernels.isa.c_numbers import greater
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.dynamic_range import FloatRow, QuantizePasses
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules.helium_floats.accumulate_f32 import activation_code
from firmwright.schedules.helium_floats.hybrid_conv2d import (
    ends_meaning,
    nearest_byte,
    scaled_sum,
)
from firmwright.schedules.rvv.endings import NOMINAL_LANES
from firmwright.schedules.rvv.hybrid_conv2d import (
    HybridSums,
    configs_of_adjacent_taps,
    emit_hybrid,
)
from firmwright.schedules.rvv_floats.activations import activate_lanes

_C = read_sections(__file__)
_FLOATS = partial(riscv_row, NOMINAL_LANES, FLOAT32)
_WORDS = partial(riscv_row, NOMINAL_LANES, INT32)
_HALVES = partial(riscv_row, NOMINAL_LANES, INT16)
_BYTES = partial(riscv_row, NOMINAL_LANES, INT8)

# ---- quantization of activations -----------------------------------------------------

MIN_MAX = Intrinsic(
    "rvv_min_max_f32",
    (
        *pointers(FLOAT32, x=1),
        *immediates("count"),
        Operand("least", "out", UINT32),
        Operand("most", "out", INT32),
    ),
    ends_meaning,
    _C["ends_portable"],
    "Bits of the least and of the greatest of `count` values and 0.",
    requires="rvvf",
    text={"gnu": _C["ends"]},
    count=lambda args: 12 + divide_up(args[1], NOMINAL_LANES) * 8,
)


def _nearest_lanes(
    k: VectorBuilder, values: Sequence[VirtualRegister]
) -> VirtualRegister:
    scaled = k(_FLOATS("vfmul_vf"), values[0], k.number("inverse", FLOAT32))
    nearest = k.named("nearest", _WORDS("vfcvt_x_f_v"), scaled)
    with k.when(k(greater, k.number("moves"), 0)):
        k(_WORDS("vadd_vx"), nearest, k.number("offset"), into=nearest)
    half = k(_HALVES("vnclip_wx"), nearest, 0)
    return k(_BYTES("vnclip_wx"), half, 0)


QUANTIZE_LOOP = ElementLoop(
    (PointerOperand("x", FLOAT32),),
    PointerOperand("y", INT8, "w"),
    INT32,
    _nearest_lanes,
)
QUANTIZE = element_intrinsics(
    "rvv_quantize_row_f32",
    (
        *pointers(INT8, "w", y=1),
        *pointers(FLOAT32, x=1),
        *inputs(FLOAT32, "inverse"),
        *inputs(INT32, "offset"),
        *immediates("moves", "count"),
    ),
    nearest_byte,
    "The int8 nearest to each of `count` values, times `inverse`, plus `offset`.",
    "rvvf",
    riscv_text(QUANTIZE_LOOP, NOMINAL_LANES),
    lambda args: 12 + divide_up(args[-1], NOMINAL_LANES) * 14,
)


def _ends(b: Kernel, row: FloatRow, low: Register, high: Register) -> None:
    least = b.register("least", UINT32)
    most = b.register("most", INT32)
    values = b.pointer(row.buffer, row.start, row.size)
    b.evaluate(MIN_MAX.name, [values, row.size, least.value, most.value])
    for end, bits in ((low, least.value.cast(INT32)), (high, most.value)):
        end.set(call_intrinsic("float_of_bits", [bits], FLOAT32))


def _reach(b: Kernel, row: FloatRow, reach: Register) -> None:
    low = b.register("least_value", FLOAT32)
    _ends(b, row, low, reach)
    reach.set(maximum(reach.value, low.value * -1.0))


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
    b.evaluate("rvv_quantize_row_f32", [*places, factor, *moves, size])


PASSES = QuantizePasses(_reach, _ends, _values)

# ---- outputs -------------------------------------------------------------------------


def _converted_lanes(
    k: VectorBuilder, values: Sequence[VirtualRegister]
) -> VirtualRegister:
    total, of_weights, factor, bias = values
    share = k(_WORDS("vmul_vx"), of_weights, k.number("zero_point"))
    whole = k(_FLOATS("vfcvt_f_x_v"), k(_WORDS("vsub_vv"), total, share))
    scaled = k(_FLOATS("vfmul_vv"), whole, factor)
    value = k(_FLOATS("vfmul_vf"), scaled, k.number("scale", FLOAT32))
    biased = k.named("value", _FLOATS("vfadd_vv"), value, bias)
    return activate_lanes(NOMINAL_LANES, k, biased)


CONVERTED_LOOP = ElementLoop(
    (
        PointerOperand("sum", INT32),
        PointerOperand("total", INT32),
        PointerOperand("factor", FLOAT32),
        PointerOperand("bias", FLOAT32),
    ),
    PointerOperand("y", FLOAT32, "w"),
    FLOAT32,
    _converted_lanes,
)
CONVERTED = element_intrinsics(
    "rvv_converted_f32",
    (
        *pointers(INT32, sum=1, total=1),
        *pointers(FLOAT32, factor=1, bias=1),
        *pointers(FLOAT32, "w", y=1),
        *inputs(FLOAT32, "scale"),
        *inputs(INT32, "zero_point"),
        *immediates("activation", "count"),
    ),
    partial(scaled_sum, joins_scales=False),
    "Converts the sums of `count` channels to floats, with bias and activation.",
    "rvvf",
    riscv_text(CONVERTED_LOOP, NOMINAL_LANES),
    lambda args: 10 + divide_up(args[-1], NOMINAL_LANES) * 18,
)
INTRINSICS = (MIN_MAX, *QUANTIZE, *CONVERTED)


def _finish(b: Kernel, block: HybridSums, at: ArithExpr) -> None:
    pixels, outputs = block.sums.shape
    with b.for_("p", pixels) as p:
        tables = (block.totals, block.scales, block.bias)
        operands = [
            b.pointer(block.sums, p * outputs, outputs),
            *(b.pointer(table, 0, outputs) for table in tables),
            b.pointer(b.y, (at + p) * outputs, outputs, "w"),
        ]
        row = block.row
        numbers = [row.scale.value, row.zero_point, activation_code(b.call), outputs]
        b.evaluate("rvv_converted_f32", [*operands, *numbers])


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    emit_hybrid(op, b, _finish, PASSES)


SCHEDULES = (
    Schedule(
        "rvv.hybrid_conv2d.floats",
        "hybrid_conv2d",
        frozenset({"rvv", "rvvf"}),
        configs_of_adjacent_taps,
        _build,
    ),
)
