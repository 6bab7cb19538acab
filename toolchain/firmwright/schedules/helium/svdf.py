"""svdf of int8 on Helium: blocks of eight filters, then of eight units.

The state is int8 or int16. Sums of products with one of int16 wrap around, as those of
the definition do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32, Array, DType
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    call_intrinsic,
    immediate,
    maximum,
    minimum,
)
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    Operand,
    immediates,
    inputs,
    pointers,
)
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.contract import sums_of_products
from firmwright.kernels.counted_loops import count_executed
from firmwright.kernels.elementwise import (
    ElementLoop,
    element_intrinsics,
    helium_text,
    value_intrinsic,
    without_unused,
)
from firmwright.kernels.lane_loops import lane_loops
from firmwright.kernels.mve.unit_products import HALVES, ROWS, unit_products
from firmwright.kernels.program import PointerOperand
from firmwright.kernels.register_files import mve_file
from firmwright.kernels.statement import statement_text
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.ops.svdf import (
    folded_feature_biases,
    folded_unit_biases,
    state_and_output_requant,
)
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.epilogue import accumulator_bounds
from firmwright.schedules.helium import vector_requantize
from firmwright.schedules.helium.dot_product_kernels import COLUMN, DotProductKernel
from firmwright.schedules.helium.int8_dot import REQUANTIZED
from firmwright.schedules.helium.vector_ending import (
    VECTOR,
    ParameterTable,
    SumVector,
    VectorEnding,
)
from firmwright.schedules.helium.vector_requantize import supports_requantize
from firmwright.schedules.schedule_factories import helium_schedule
from firmwright.schedules.svdf import (
    SvdfSteps,
    UnitStep,
    emit_steps,
    move_vectors,
    unit_size,
)

_STATE = 4
_SIZE_MAX = 128
"""The elements of a unit; longer units have other schedules."""
_CALL = 6
"""Instructions of a call of the micro-kernel besides its products and outputs."""


def _finish(dtype: DType, vector: str, target: str, lanes: str) -> str:
    """Return C that requantizes a vector with the factor of the layer."""
    return "\n".join(
        [
            f"{vector} = vaddq_s32({vector}, bias);",
            f"if (shift > 0) {{\n    {vector} = vshlq_r_s32({vector}, shift);\n}}",
            "const int32x4_t factors = vdupq_n_s32(multiplier);",
            "const int32x4_t shifts = vdupq_n_s32(shift > 0 ? 0 : shift);",
            vector_requantize.scale_assembly(vector, "factors", "shifts"),
            f"{vector} = vqaddq_n_s32({vector}, zero_point);",
            vector_requantize.store_assembly(vector, target, lanes, dtype),
        ]
    )


def _wrapped(dtype: DType, **x: ArithExpr) -> ArithExpr:
    """Return the result of a sum that wraps around with its bias."""
    biased = (x["sum"].cast(UINT32) + x["bias"].cast(UINT32)).cast(INT32)
    scaled = [biased, x["multiplier"], x["shift"]]
    moved = call_intrinsic("requantize_twice", scaled, INT32) + x["zero_point"]
    return minimum(maximum(moved, x["low"]), x["high"]).cast(dtype)


def _element(dtype: DType) -> Intrinsic:
    names = ("sum", "bias", "multiplier", "shift", "zero_point", "low", "high")
    return value_intrinsic(
        f"mve_wrapped_{dtype.name}",
        inputs(INT32, *names),
        partial(_wrapped, dtype),
        "Adds the bias to a sum, modulo 2^32, and requantizes it.",
    )


def _ending(element: Intrinsic, dtype: DType) -> VectorEnding:
    """Return outputs of layers whose channels have one factor."""
    return VectorEnding(
        output=dtype,
        tables=(ParameterTable("q", INT32, ("bias",)),),
        settings=(
            *immediates("multiplier", "shift"),
            *vector_requantize.EPILOGUE_OPERANDS,
        ),
        element=element,
        finish=partial(_finish, dtype),
        instructions=lambda given: 8 + (0, 2, 3, 1)[given["rounding"]],
    )


_ELEMENTS = {dtype: _element(dtype) for dtype in (INT8, INT16)}
_VECTORS = (SumVector("first", "y"), SumVector("second", "y", VECTOR))


@dataclass(frozen=True, slots=True)
class _OfState:
    """The micro-kernels of a state of `dtype`, whose units have the prefix `stem`."""

    dtype: DType
    filters: DotProductKernel
    stem: str
    move: str
    ending: VectorEnding


_KERNELS = {
    INT8: _OfState(
        INT8,
        DotProductKernel("mve_matvec_layer", COLUMN, _ending(REQUANTIZED, INT8)),
        "mve_units",
        "mve_move_bytes",
        _ending(REQUANTIZED, INT8),
    ),
    INT16: _OfState(
        INT16,
        DotProductKernel(
            "mve_matvec_layer_int16", COLUMN, _ending(_ELEMENTS[INT16], INT16)
        ),
        "mve_units_int16",
        "mve_move_halves",
        _ending(_ELEMENTS[INT8], INT8),
    ),
}
_FILE = mve_file(4, has_core_sums=True)


@dataclass(frozen=True, slots=True)
class _Product:
    """A matrix, the start values of its sums, and their requantization."""

    matrix: Array
    bias: Array
    requantization: Requantization

    @property
    def blocks(self) -> ChannelBlocks:
        return ChannelBlocks(len(self.matrix), ROWS)

    @property
    def table(self) -> Array:
        """The start values of each block."""
        wrapped = self.bias.astype(np.uint32).view(np.int32)
        return self.blocks.table(wrapped)

    @property
    def settings(self) -> list[int]:
        """The immediate operands of the micro-kernels."""
        params, lanes = self.requantization, self.blocks.stored
        ending = vector_requantize.epilogue_settings(params, lanes)
        return [params.multipliers[0], params.shifts[0], *ending]


def _features(op: OpCall) -> _Product:
    matrix = op.constant_array(1).astype(np.int64)
    return _Product(matrix, folded_feature_biases(op), state_and_output_requant(op)[0])


def _units(op: OpCall) -> _Product:
    matrix = op.constant_array(2).astype(np.int64).reshape(-1, unit_size(op))
    return _Product(matrix, folded_unit_biases(op), state_and_output_requant(op)[1])


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if op.input(0).dtype != INT8 or op.input(_STATE).dtype not in _KERNELS:
        return ()
    size = unit_size(op)
    if size % HALVES or size > _SIZE_MAX or op.output.shape[1] < ROWS:
        return ()
    applies = _fits_left_shift(op) and supports_requantize(_units(op).requantization)
    return (NO_CONFIG,) if applies else ()


def _fits_left_shift(op: OpCall) -> bool:
    """Return whether features fit 32 bits when they are shifted to the left."""
    product = _features(op)
    low, high = accumulator_bounds(product.bias, product.matrix)
    most = max(int(high.max()), -int(low.min()))
    return most << max(product.requantization.shifts[0], 0) <= INT32.max


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    product, units = _features(op), _units(op)
    kernels = _KERNELS[op.input(_STATE).dtype]
    filters, depth = product.matrix.shape
    tables = {"bias": product.table}
    gemm = kernels.filters.gemm(b, product.matrix, tables, product.settings)

    def features(n: ArithExpr, newest: tir.Buffer) -> None:
        x = b.pointer(b.input(0), n * depth, depth)
        first = ArithExpr(immediate(0, INDEX))
        replace(gemm, output=newest).emit(b, [x], [first])

    move_down = partial(move_vectors, kernels.move)
    step = _unit_step(b, units, kernels)
    emit_steps(op, b, SvdfSteps(move_down, features, step, filters))


def _unit_step(b: Kernel, units: _Product, kernels: _OfState) -> UnitStep:
    count, size = units.matrix.shape
    blocks = units.blocks
    rows = blocks.rows(units.matrix)
    weights = b.constant("time_weights", rows.reshape(-1, ROWS * size), kernels.dtype)
    table = units.table
    bias = b.constant("unit_bias", table, INT32)
    each = table.size // blocks.count

    def emit(n: ArithExpr, state: tir.Buffer) -> None:
        with b.for_("block", blocks.count) as block:
            unit = b.let("unit", n * count + blocks.first(block))
            operands = [
                b.pointer(weights, block * (ROWS * size), ROWS * size),
                b.pointer(state, unit * size, ROWS * size),
                b.pointer(bias, block * each, each),
                b.pointer(b.y, unit, blocks.stored, "w"),
            ]
            b.evaluate(f"{kernels.stem}_{size}", [*operands, *units.settings])

    return emit


def _meaning(
    size: int, ending: VectorEnding, names: Sequence[str], *args: Array
) -> Array:
    given = dict(zip(names, args, strict=True))
    values, weights = (
        np.asarray(given[name], np.int64)[: ROWS * size] for name in ("x", "w")
    )
    shape = (ROWS, size, 1, *values.shape[1:])
    sums: list[Array] = []
    for row, factors in zip(values.reshape(shape), weights.reshape(shape), strict=True):
        sums += sums_of_products(factors, row, (0,))
    wrapped = np.stack(sums).astype(np.int64).astype(np.int32)
    vectors = [wrapped[:VECTOR], wrapped[VECTOR:]]
    result = ending.results(_VECTORS, vectors, given)
    assert isinstance(result, np.ndarray)
    return result


def _intrinsic(kernels: _OfState, size: int) -> Intrinsic:
    program, ending = unit_products(size, kernels.dtype), kernels.ending
    operands: tuple[Operand, ...] = (
        *pointers(kernels.dtype, w=ROWS * size, x=ROWS * size),
        *ending.operands(_VECTORS),
    )
    names = [operand.name for operand in operands]
    portable = "\n".join(
        [
            "int32_t first[4], second[4];",
            lane_loops(program),
            ending.portable(_VECTORS),
        ]
    )
    text = "\n".join(
        [
            "int32x4_t first, second;",
            statement_text(program, _FILE),
            ending.text(_VECTORS),
        ]
    )

    def count(args: Sequence[int]) -> int:
        given = dict(zip(names, args, strict=True))
        outputs = len(_VECTORS) * ending.instructions(given)
        return count_executed(program, {}) + outputs + _CALL

    return Intrinsic(
        f"{kernels.stem}_{size}",
        operands,
        partial(_meaning, size, ending, names),
        without_unused(operands, portable),
        f"Products of eight units of {size} elements with their weights.",
        requires="mve",
        text={"gnu": text},
        definitions=(KEEP_STORES,) if "KEEP_STORES" in text else (),
        count=count,
        calls=ending.calls,
    )


def _move(name: str, dtype: DType) -> tuple[Intrinsic, ...]:
    loop = ElementLoop(
        (PointerOperand("x", dtype),),
        PointerOperand("y", dtype, "w"),
        dtype,
        lambda k, lanes: lanes[0],
    )
    return element_intrinsics(
        name,
        (*pointers(dtype, "w", y=1), *pointers(dtype, x=1), *immediates("count")),
        lambda x: x,
        f"Copies `count` {name[9:]} to memory that may begin before them.",
        "mve",
        helium_text(loop),
        lambda args: 12 + round(args[-1] * 0.2 * dtype.size_bytes),
        (KEEP_STORES,),
    )


INTRINSICS = (
    *_ELEMENTS.values(),
    *(item for each in _KERNELS.values() for item in _move(each.move, each.dtype)),
)
INTRINSIC_MAKERS = {
    **{k: v for each in _KERNELS.values() for k, v in each.filters.makers.items()},
    **{
        f"{kernels.stem}_{size}": partial(_intrinsic, kernels, size)
        for kernels in _KERNELS.values()
        for size in range(HALVES, _SIZE_MAX + 1, HALVES)
    },
}
SCHEDULES = (
    helium_schedule("helium.svdf.rows", "svdf", configs=_configs, build=_build),
)
