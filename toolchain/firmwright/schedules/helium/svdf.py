"""svdf with a state of int8 on Helium: blocks of eight filters, then of eight units."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.contract import sums_of_products
from firmwright.kernels.counted_loops import count_executed
from firmwright.kernels.elementwise import (
    ElementLoop,
    element_intrinsics,
    helium_text,
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


def _finish(vector: str, target: str, lanes: str) -> str:
    """Return C that requantizes a vector with the factor of the layer."""
    return "\n".join(
        [
            f"{vector} = vaddq_s32({vector}, bias);",
            "const int32x4_t factors = vdupq_n_s32(multiplier);",
            "const int32x4_t shifts = vdupq_n_s32(shift);",
            vector_requantize.scale_assembly(vector, "factors", "shifts"),
            f"{vector} = vqaddq_n_s32({vector}, zero_point);",
            vector_requantize.store_assembly(vector, target, lanes),
        ]
    )


ENDING = VectorEnding(
    output=INT8,
    tables=(ParameterTable("q", INT32, ("bias",)),),
    settings=(
        *immediates("multiplier", "shift"),
        *vector_requantize.EPILOGUE_OPERANDS,
    ),
    element=REQUANTIZED,
    finish=_finish,
    instructions=lambda given: 8 + (0, 2, 3, 1)[given["rounding"]],
)
"""Outputs of layers whose channels have one factor."""
_FILTERS = DotProductKernel("mve_matvec_layer", COLUMN, ENDING)
_VECTORS = (SumVector("first", "y"), SumVector("second", "y", VECTOR))
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
    if not op.input(0).dtype == op.input(_STATE).dtype == INT8:
        return ()
    size = unit_size(op)
    if size % HALVES or size > _SIZE_MAX or op.output.shape[1] < ROWS:
        return ()
    applies = all(map(supports_requantize, state_and_output_requant(op)))
    return (NO_CONFIG,) if applies else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    product, units = _features(op), _units(op)
    filters, depth = product.matrix.shape
    tables = {"bias": product.table}
    gemm = _FILTERS.gemm(b, product.matrix, tables, product.settings)

    def features(n: ArithExpr, newest: tir.Buffer) -> None:
        x = b.pointer(b.input(0), n * depth, depth)
        first = ArithExpr(immediate(0, INDEX))
        replace(gemm, output=newest).emit(b, [x], [first])

    move_down = partial(move_vectors, "mve_move_bytes")
    emit_steps(op, b, SvdfSteps(move_down, features, _unit_step(b, units), filters))


def _unit_step(b: Kernel, units: _Product) -> UnitStep:
    count, size = units.matrix.shape
    blocks = units.blocks
    rows = blocks.rows(units.matrix)
    weights = b.constant("time_weights", rows.reshape(-1, ROWS * size), INT8)
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
            b.evaluate(f"mve_units_{size}", [*operands, *units.settings])

    return emit


def _meaning(size: int, names: Sequence[str], *args: Array) -> Array:
    given = dict(zip(names, args, strict=True))
    values, weights = (
        np.asarray(given[name], np.int64)[: ROWS * size] for name in ("x", "w")
    )
    shape = (ROWS, size, 1, *values.shape[1:])
    sums: list[Array] = []
    for row, factors in zip(values.reshape(shape), weights.reshape(shape), strict=True):
        sums += sums_of_products(factors, row, (0,))
    vectors = [np.stack(sums[:VECTOR]), np.stack(sums[VECTOR:])]
    result = ENDING.results(_VECTORS, vectors, given)
    assert isinstance(result, np.ndarray)
    return result


def _intrinsic(size: int) -> Intrinsic:
    program = unit_products(size)
    operands: tuple[Operand, ...] = (
        *pointers(INT8, w=ROWS * size, x=ROWS * size),
        *ENDING.operands(_VECTORS),
    )
    names = [operand.name for operand in operands]
    portable = "\n".join(
        [
            "int32_t first[4], second[4];",
            lane_loops(program),
            ENDING.portable(_VECTORS),
        ]
    )
    text = "\n".join(
        [
            "int32x4_t first, second;",
            statement_text(program, _FILE),
            ENDING.text(_VECTORS),
        ]
    )

    def count(args: Sequence[int]) -> int:
        given = dict(zip(names, args, strict=True))
        ending = len(_VECTORS) * ENDING.instructions(given)
        return count_executed(program, {}) + ending + _CALL

    return Intrinsic(
        f"mve_units_{size}",
        operands,
        partial(_meaning, size, names),
        without_unused(operands, portable),
        f"Products of eight units of {size} elements with their weights.",
        requires="mve",
        text={"gnu": text},
        definitions=(KEEP_STORES,) if "KEEP_STORES" in text else (),
        count=count,
        calls=ENDING.calls,
    )


_MOVE = ElementLoop(
    (PointerOperand("x", INT8),),
    PointerOperand("y", INT8, "w"),
    INT8,
    lambda k, lanes: lanes[0],
)
INTRINSICS = tuple(
    element_intrinsics(
        "mve_move_bytes",
        (*pointers(INT8, "w", y=1), *pointers(INT8, x=1), *immediates("count")),
        lambda x: x,
        "Copies `count` bytes to memory that may begin before them.",
        "mve",
        helium_text(_MOVE),
        lambda args: 12 + round(args[-1] * 0.2),
        (KEEP_STORES,),
    )
)
INTRINSIC_MAKERS = {
    **_FILTERS.makers,
    **{
        f"mve_units_{size}": partial(_intrinsic, size)
        for size in range(HALVES, _SIZE_MAX + 1, HALVES)
    },
}
SCHEDULES = (
    helium_schedule("helium.svdf.rows", "svdf", configs=_configs, build=_build),
)
