"""svdf of int8: features by a GEMM, units by dot products of words or elements."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT8, UINT32, Array, DType
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.kernels.contract import InterleavedChannels
from firmwright.kernels.scalar.gemm import THUMB1_ROWS, ScalarMicrokernel
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.ops.svdf import folded_feature_biases
from firmwright.schedules.cortex_m_dsp.vector_product import ROWS, VectorProduct
from firmwright.schedules.scalar.microkernels import (
    MLA_FAMILY,
    RV32M_FAMILY,
    MicrokernelFamily,
)
from firmwright.schedules.scalar.thumb1_conv2d_fully_connected import (
    WEIGHT_OFFSET,
    microkernel_name,
)
from firmwright.schedules.schedule_factories import for_inputs_of
from firmwright.schedules.svdf import (
    FeatureStep,
    SvdfSteps,
    UnitPlace,
    emit_steps,
    make_feature_finish,
    move_words,
    multiply_elements,
    unit_size,
    units_one_by_one,
)

_STATE = 4
_UNROLL = (8, 4, 2, 6, 5, 7, 3)
_SPLIT = ("sxtb16", "sxtb16_ror8")


@dataclass(frozen=True, slots=True)
class _Family:
    """The instructions of a core.

    `features(op, b, weights, bias)` returns the second step for a number of filters
    that is a multiple of `rows(filters)`.
    """

    name: str
    rows: Callable[[int], int]
    features: Callable[[OpCall, Kernel, Array, Array], FeatureStep]
    reads_anywhere: bool = True
    is_narrow: bool = False
    has_dsp: bool = False

    def build(self, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
        weights = op.constant_array(1).astype(np.int64)
        padding = (0, -len(weights) % self.rows(len(weights)))
        kernel = np.pad(weights, (padding, (0, 0)))
        bias = np.pad(folded_feature_biases(op), padding)
        features = self.features(op, b, kernel, bias)
        move = partial(move_words, reads_anywhere=self.reads_anywhere)
        multiply = _multiply(op, b, has_dsp=self.has_dsp)
        units = units_one_by_one(op, b, multiply, is_narrow=self.is_narrow)
        emit_steps(op, b, SvdfSteps(move, features, units, len(kernel)))


def _dsp_features(op: OpCall, b: Kernel, kernel: Array, biases: Array) -> FeatureStep:
    finish = make_feature_finish(op)

    def convert(acc: ArithExpr, index: ArithExpr, place: int) -> ArithExpr:
        return finish(acc)

    product = VectorProduct(b, kernel, biases, convert)
    return lambda n, newest: product.emit(b, b.input(0), [n], newest)


def _scalar_features(
    family: MicrokernelFamily, op: OpCall, b: Kernel, kernel: Array, biases: Array
) -> FeatureStep:
    finish = make_feature_finish(op)
    filters, depth = kernel.shape
    lanes = family.rows(filters, 1)
    packed = kernel.reshape(-1, lanes, depth).swapaxes(1, 2).reshape(-1)
    weights = b.constant("weights", packed, INT8)
    begin = b.constant("bias", biases, INT32)
    name = family.block(ScalarMicrokernel("bytes", lanes, 1, family.unrolled(depth)))

    def emit(n: ArithExpr, newest: tir.Buffer) -> None:
        x = b.pointer(b.input(0), n * depth, depth)
        with b.for_("row", filters // lanes) as block:
            first = block * lanes
            acc = b.reg("acc", INT32, lanes)
            values = [b.load(acc, [row]) for row in range(lanes)]
            w_rows = b.pointer(weights, first * depth, lanes * depth)
            start_values = b.pointer(begin, first, lanes)
            b.evaluate(name, [w_rows, x, start_values, depth, depth, *values])
            for row, value in enumerate(values):
                b.store(newest, [first + row], finish(value))

    return emit


def _thumb1_features(
    op: OpCall, b: Kernel, kernel: Array, biases: Array
) -> FeatureStep:
    """Return the step by micro-kernels whose weights have 128 added."""
    finish = make_feature_finish(op, is_narrow=True)
    filters, depth = kernel.shape
    layout = InterleavedChannels(UINT8, (THUMB1_ROWS,), WEIGHT_OFFSET)
    weights = b.constant("weights", layout.pack(kernel), UINT8)
    begin = b.constant("bias", biases, INT32)
    name = microkernel_name(depth)

    def emit(n: ArithExpr, newest: tir.Buffer) -> None:
        row = b.view("row", b.input(0), n * depth, (depth,))
        added = b.register("added", INT32, 0)
        with b.unrolled("i", depth, *_UNROLL) as i:
            added.add(b.load_i32(row, [i]))
        offset = b.let("offset", added.value * WEIGHT_OFFSET)
        sums = b.allocate("sums", INT32, (THUMB1_ROWS,))
        with b.for_("block", filters // THUMB1_ROWS) as block:
            first = block * THUMB1_ROWS
            operands = [
                b.pointer(weights, first * depth, THUMB1_ROWS * depth),
                b.pointer(row, 0, depth),
                b.pointer(begin, first, THUMB1_ROWS),
                b.pointer(sums, 0, THUMB1_ROWS, "w"),
            ]
            b.evaluate(name, [*operands, depth])
            with b.for_("f", THUMB1_ROWS) as f:
                total = b.load(sums, [f]) - offset
                b.store(newest, [first + f], finish(total))

    return emit


def _multiply(
    op: OpCall, b: Kernel, *, has_dsp: bool
) -> Callable[[tir.Buffer, UnitPlace], None]:
    """Return the function that adds the products of a unit."""
    size, kind = unit_size(op), op.input(_STATE).dtype
    weights = op.constant_array(2).reshape(-1, size)
    if not has_dsp or size % (UINT32.size_bytes // kind.size_bytes):
        table = b.constant("time_weights", weights, op.input(2).dtype)
        return partial(multiply_elements, b, table)
    rows = np.ascontiguousarray(weights.astype(kind.np))
    table = b.constant("time_weights", rows.view(np.uint32), UINT32)
    return partial(_multiply_words, b, table)


def _multiply_words(
    b: Kernel, weights: tir.Buffer, state: tir.Buffer, place: UnitPlace
) -> None:
    """Add the products of a unit, two at once."""
    count = weights.shape[1]
    words = b.view("x", state, place.first, (count,), dtype=UINT32, alignment=4)
    row = b.view("w", weights, place.unit * count, (count,))
    with b.unrolled("i", count, *_UNROLL) as i:
        word = b.let("word", b.load(words, [i]))
        weight = b.let("weight", b.load(row, [i]))
        halves = _halves(state.dtype, word), _halves(state.dtype, weight)
        for pair in zip(*halves, strict=True):
            operands = [*pair, b.load(place.total, [0])]
            b.store(place.total, [0], call_intrinsic("smlad", operands, INT32))


def _halves(kind: DType, word: ArithExpr) -> list[ArithExpr]:
    """Return the elements of a word in pairs of 16 bits."""
    if kind == INT16:
        return [word]
    return [call_intrinsic(name, [word], UINT32) for name in _SPLIT]


def _family(family: MicrokernelFamily, *, reads_anywhere: bool) -> _Family:
    return _Family(
        family.name,
        lambda filters: family.rows(filters, 1),
        partial(_scalar_features, family),
        reads_anywhere,
    )


_FAMILIES = (
    _Family("dsp", lambda filters: ROWS, _dsp_features, has_dsp=True),
    _family(MLA_FAMILY, reads_anywhere=True),
    _family(RV32M_FAMILY, reads_anywhere=False),
    _Family(
        "thumb1",
        lambda filters: THUMB1_ROWS,
        _thumb1_features,
        reads_anywhere=False,
        is_narrow=True,
    ),
)
SCHEDULES = tuple(
    Schedule(
        f"{family.name}.svdf.products",
        "svdf",
        frozenset({family.name}),
        for_inputs_of(INT8),
        family.build,
        disable_scheduling=True,
    )
    for family in _FAMILIES
)
