"""svdf of int8: features by a GEMM, units by dot products of words or elements."""

from collections.abc import Callable
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.kernels.scalar.gemm import ScalarMicrokernel
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.ops.svdf import folded_feature_biases, state_and_output_requant
from firmwright.schedules.cortex_m_dsp.vector_product import ROWS, VectorProduct
from firmwright.schedules.scalar.microkernels import (
    MLA_FAMILY,
    RV32M_FAMILY,
    MicrokernelFamily,
)
from firmwright.schedules.schedule_factories import for_inputs_of
from firmwright.schedules.svdf import (
    SvdfSteps,
    UnitPlace,
    emit_steps,
    move_words,
    multiply_elements,
    unit_size,
    units_one_by_one,
)

_STATE = 4
_UNROLL = (8, 4, 2, 6, 5, 7, 3)
Features = Callable[[ArithExpr, tir.Buffer], None]


def _build(
    family: MicrokernelFamily | None, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    weights = op.constant_array(1).astype(np.int64)
    lanes = family.rows(len(weights), 1) if family else ROWS
    rows = (0, -len(weights) % lanes)
    kernel = np.pad(weights, (rows, (0, 0)))
    biases = np.pad(folded_feature_biases(op), rows)
    if family is None:
        features = _dsp_features(op, b, kernel, biases)
    else:
        features = _scalar_features(op, b, kernel, biases, family)
    reads_anywhere = family is not RV32M_FAMILY
    move = partial(move_words, reads_anywhere=reads_anywhere)
    units = units_one_by_one(op, b, _multiply(op, b, has_dsp=family is None))
    emit_steps(op, b, SvdfSteps(move, features, units, len(kernel)))


def _dsp_features(op: OpCall, b: Kernel, kernel: Array, biases: Array) -> Features:
    kind, to_state = op.input(_STATE).dtype, state_and_output_requant(op)[0]

    def convert(acc: ArithExpr, index: ArithExpr, place: int) -> ArithExpr:
        return to_state.lower(acc, kind)

    product = VectorProduct(b, kernel, biases, convert)
    return lambda n, newest: product.emit(b, b.input(0), [n], newest)


def _scalar_features(
    op: OpCall, b: Kernel, kernel: Array, biases: Array, family: MicrokernelFamily
) -> Features:
    kind, to_state = op.input(_STATE).dtype, state_and_output_requant(op)[0]
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
                b.store(newest, [first + row], to_state.lower(value, kind))

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
    halves: Array = weights.astype(np.int16)
    if kind == INT8:
        # A word of the state has two of weights, in the order in which SXTB16 splits
        # it: those of elements 0 and 2, then those of 1 and 3.
        halves = halves.reshape(len(weights), -1, 2, 2).swapaxes(2, 3)
    words = np.ascontiguousarray(halves.reshape(len(weights), -1)).view(np.uint32)
    table = b.constant("time_weights", words, UINT32)
    return partial(_multiply_words, b, table)


def _multiply_words(
    b: Kernel, weights: tir.Buffer, state: tir.Buffer, place: UnitPlace
) -> None:
    """Add the products of a unit, two at once."""
    each = INT16.size_bytes // state.dtype.size_bytes
    count = weights.shape[1] // each
    words = b.view("x", state, place.first, (count,), dtype=UINT32, alignment=4)
    row = b.view("w", weights, place.unit * weights.shape[1], (weights.shape[1],))
    with b.unrolled("i", count, *_UNROLL) as i:
        word = b.let("word", b.load(words, [i]))
        parts = [word]
        if each == 2:
            parts = [
                call_intrinsic(name, [word], UINT32)
                for name in ("sxtb16", "sxtb16_ror8")
            ]
        for number, part in enumerate(parts):
            weight = b.load(row, [i * each + number])
            operands = [part, weight, b.load(place.total, [0])]
            b.store(place.total, [0], call_intrinsic("smlad", operands, INT32))


SCHEDULES = tuple(
    Schedule(
        f"{name}.svdf.products",
        "svdf",
        frozenset({name}),
        for_inputs_of(INT8),
        partial(_build, family),
        disable_scheduling=True,
    )
    for name, family in (("dsp", None), ("mla", MLA_FAMILY), ("rvm", RV32M_FAMILY))
)
