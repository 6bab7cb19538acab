"""fully_connected on Helium: micro-kernels of one column times eight rows.

If the number of rows is not a multiple of eight, the last block overlaps the one before
it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import minimum
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    IntrinsicMakers,
    Meaning,
    Operand,
    immediates,
    pointers,
)
from firmwright.kernels.mve.dot_products import BYTES_PER_STEP, DotProductLoop, Weights
from firmwright.ops.conv2d import weight_offsets, weights_of
from firmwright.ops.fully_connected import has_int32_multiplier, requantization_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import weight_zero_point
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.epilogue import accumulator_bounds, fold_zero_point_into_bias
from firmwright.schedules.folded_requantize import FoldedRequantize, fold_requantize
from firmwright.schedules.helium import dot_product_loop, vector_requantize
from firmwright.schedules.schedule_factories import helium_schedule

_C = read_sections(__file__)

# `mve_matvec_int8_LOOP` (dot_product_loop.py): a step reads sixteen values of the
# column and sixteen weights of eight rows, 17 instructions for 128 products. The
# epilogue is the folded form of folded_requantize.py, y = (A + nk [sum < 0] + mulhi(sum
# << k, m)) >> S, with per-row bias only: all weights share one scale.
# `mve_matvec_channels_LOOP` has parameters per row, as a GEMM of four channels has
# (vector_requantize.py).

ROWS = 8

_COLUMN = ("x",)

IMMEDIATES = (
    "multiplier",
    "left",
    "addend",
    "sign",
    "shift",
    "low",
    "high",
    "lanes",
    "taps",
)


def _ending(vector: str, number: int, target: str, lanes: str) -> str:
    scaled = fill_text(_C["scaled"], v=vector, n=number, q="q + 4" if number else "q")
    return scaled + "\n" + vector_requantize.store_assembly(vector, target, lanes)


def _text(loop: DotProductLoop, weights: Weights) -> str:
    second = _ending("second", 1, "y + 4", "lanes - 4")
    return "\n".join(
        [
            dot_product_loop.frame(loop, _COLUMN, weights),
            _ending("first", 0, "y", "lanes"),
            "if (lanes > 4) {",
            *("    " + line for line in second.splitlines()),
            "}",
        ]
    )


def _portable(loop: DotProductLoop, weights: Weights, *, by_row: bool = False) -> str:
    step = vector_requantize.PORTABLE if by_row else _C["portable_step"]
    return fill_text(
        _C["portable"],
        frame=dot_product_loop.portable_frame(loop, _COLUMN, weights),
        place="r / 4 * 12 + r % 4" if by_row else "r",
        step=indent(step, "    "),
    )


def _channels_text(loop: DotProductLoop, weights: Weights) -> str:
    loads = vector_requantize.PARAMETER_LOADS
    ending = vector_requantize.requantize_assembly("first", "y")
    first = indent(f"{loads}\n{ending}", "    ")
    loads = loads.replace("(q", "(q + 12")
    ending = vector_requantize.requantize_assembly("second", "y + 4", "lanes - 4")
    second = indent(f"{loads}\n{ending}", "    ")
    frame = dot_product_loop.frame(loop, _COLUMN, weights)
    return fill_text(_C["channels"], frame=frame, first=first, second=second)


def _channels_meaning(w: Array, x: Array, q: Array, y: Array, *rest: int) -> Array:
    *settings, lanes, taps = rest
    weights = dot_product_loop.unpack_weights(w, ROWS, taps)
    products = weights * np.asarray(x, np.int64)[None, :taps]
    values = (*settings, vector_requantize.CHANNELS)
    sums = np.split(products.sum(axis=1), 2)
    tables = np.split(np.asarray(q), 2)
    halves = [
        vector_requantize.requantize_lanes(sums[0], tables[0], values),
        vector_requantize.requantize_lanes(sums[1], tables[1], values),
    ]
    return np.concatenate(halves)[:lanes]


def _meaning(
    unpack: Callable[[Array, int, int], Array],
    w: Array,
    x: Array,
    q: Array,
    y: Array,
    *rest: int,
) -> Array:
    multiplier, left, addend, sign, shift, low, high, lanes, taps = rest
    products = unpack(w, ROWS, taps) * np.asarray(x, np.int64)[None, :taps]
    total = products.sum(axis=1) + np.asarray(q, np.int64)
    scaled = ((total << left) * multiplier) >> 32
    moved = (scaled + addend + np.where(total < 0, sign, 0)) >> shift
    results: Array = np.clip(moved, low, high).astype(INT8.np)
    return results[:lanes]


def matvec_microkernel_name(taps: int, kind: str = "int8") -> str:
    return f"mve_matvec_{kind}_{dot_product_loop.choose_loop(taps).suffix}"


def epilogue_settings(
    folded: FoldedRequantize, lanes: int, taps: int
) -> list[int] | None:
    """Return the immediate operands, or None if rows differ in more than their bias."""
    same = []
    for column in (folded.multiplier, folded.left, folded.addend, folded.sign):
        if len(set(column)) != 1:
            return None
        same.append(column[0])
    return [*same, folded.shift, folded.clamp_min, folded.clamp_max, lanes, taps]


@dataclass(frozen=True, slots=True)
class _RowsKind:
    """One kind of micro-kernel: its weights and its parameters.

    The weights of a block take as many bytes as `weight_rows` rows of int8. `q` has
    `parameters` elements. `settings` are the immediate operands, and
    `epilogue_instructions` their share of the time.
    """

    name: str
    weights: Weights
    weight_rows: int
    parameters: int
    settings: tuple[Operand, ...]
    meaning: Meaning
    portable: Callable[[DotProductLoop, Weights], str]
    doc: str
    text: Callable[[DotProductLoop, Weights], str]
    epilogue_instructions: int

    def intrinsic(self, loop: DotProductLoop, name: str) -> Intrinsic:
        steps = loop.head + loop.tail
        weight_bytes = steps * BYTES_PER_STEP * self.weight_rows

        def count(args: Sequence[int]) -> int:
            products = (loop, _COLUMN, args[-1], self.weights)
            return dot_product_loop.instructions(*products) + self.epilogue_instructions

        return Intrinsic(
            name=name,
            operands=(
                *pointers(INT8, w=weight_bytes, x=loop.least_taps),
                *pointers(INT32, q=self.parameters),
                *pointers(INT8, "w", y=1),
                *self.settings,
            ),
            meaning=self.meaning,
            portable=self.portable(loop, self.weights),
            doc=self.doc,
            requires="mve",
            text={"gnu": self.text(loop, self.weights)},
            definitions=(KEEP_STORES,),
            count=count,
        )


_INT8_ROWS = _RowsKind(
    name="int8",
    weights=Weights.INT8,
    weight_rows=ROWS,
    parameters=ROWS,
    settings=immediates(*IMMEDIATES),
    meaning=partial(_meaning, dot_product_loop.unpack_weights),
    portable=_portable,
    doc="Eight rows of weights: products with a column, requantised.",
    text=_text,
    epilogue_instructions=30,
)
_INT4_ROWS = replace(
    _INT8_ROWS,
    name="int4",
    weights=Weights.INT4,
    weight_rows=ROWS // 2,
    meaning=partial(_meaning, dot_product_loop.unpack_int4_weights),
)
_CHANNELS_ROWS = replace(
    _INT8_ROWS,
    name="channels",
    parameters=2 * vector_requantize.PARAMETERS,
    settings=(*vector_requantize.EPILOGUE_OPERANDS, *immediates("taps")),
    meaning=_channels_meaning,
    portable=partial(_portable, by_row=True),
    doc="Eight rows of weights: products with a column, requantised by row.",
    text=_channels_text,
    epilogue_instructions=26,
)


def _makers(kind: _RowsKind) -> IntrinsicMakers:
    names = f"mve_matvec_{kind.name}_{{}}"
    return dot_product_loop.make_for_loops(names, kind.intrinsic)


INTRINSIC_MAKERS = {
    **_makers(_INT8_ROWS),
    **_makers(_INT4_ROWS),
    **_makers(_CHANNELS_ROWS),
}


def _configs(op: OpCall) -> Sequence[dot_product_loop.WeightConfig]:
    if op.input(0).dtype != INT8 or op.input(1).dtype != INT8:
        return ()
    if not has_int32_multiplier(op) or _settings(op) is None:
        return ()
    return dot_product_loop.int4_configs(op, _row_starts(weights_of(op)), ROWS)


def _settings(op: OpCall) -> list[int] | None:
    """Return the immediate operands, or None if the epilogue is not exact."""
    matrix = weight_offsets(op)
    low, high = accumulator_bounds(fold_zero_point_into_bias(op, matrix), matrix)
    folded = fold_requantize(requantization_of(op), low, high)
    if folded is None or folded.is_float32:
        return None
    return epilogue_settings(folded, min(matrix.shape[0], ROWS), matrix.shape[1])


def _build(op: OpCall, config: dot_product_loop.WeightConfig, b: Kernel) -> None:
    matrix, settings = weights_of(op), _settings(op)
    assert settings is not None
    folded_bias = fold_zero_point_into_bias(op, weight_offsets(op))
    blocks = []
    for start in _row_starts(matrix):
        blocks.append(np.resize(folded_bias[start:], ROWS))
    _multiply_rows(op, b, config.weights, np.stack(blocks), settings)


def _build_float32(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    matrix = weights_of(op)
    outputs, depth = matrix.shape
    starts = _row_starts(matrix)
    half = vector_requantize.CHANNELS
    params = vector_requantize.layer_parameters(op)
    bias = fold_zero_point_into_bias(op, matrix)
    second = [start + half for start in starts]
    halves = [
        vector_requantize.parameter_rows(params, bias, starts),
        vector_requantize.parameter_rows(params, bias, second),
    ]
    settings = vector_requantize.epilogue_settings(params, min(outputs, ROWS))
    _multiply_rows(op, b, "channels", np.hstack(halves), [*settings, depth])


def _row_starts(matrix: Array) -> list[int]:
    """Return the first row of each block; the last block ends at the last row."""
    last = max(len(matrix) - ROWS, 0)
    return [min(start, last) for start in range(0, len(matrix), ROWS)]


def _multiply_rows(
    op: OpCall, b: Kernel, kind: str, parameters: Array, settings: Sequence[int]
) -> None:
    """Call the micro-kernel of `kind` for every block, a row of `parameters`."""
    matrix = weights_of(op)
    starts = _row_starts(matrix)
    outputs, depth = matrix.shape
    lanes, columns = min(outputs, ROWS), parameters.shape[1]
    if kind == "int4":
        values = dot_product_loop.pack_int4_rows(matrix, starts, ROWS)
    else:
        values = dot_product_loop.pack_weight_rows(matrix, starts, ROWS)
    packed = b.constant("weights", values, INT8)
    table = b.constant("bias", parameters, INT32)
    size = packed.elements // len(starts)
    microkernel = matvec_microkernel_name(depth, kind)
    zero_point = weight_zero_point(op)
    with b.for_("n", op.output.elements // outputs) as n:
        x = b.pointer(b.input(0), n * depth, depth)
        biases = _biases(b, table, x, zero_point)
        with b.for_("block", len(starts)) as block:
            row = b.let("row", minimum(block * ROWS, outputs - lanes))
            weights = b.pointer(packed, block * size, size)
            bias = b.pointer(biases, block * columns, columns)
            y = b.pointer(b.y, n * outputs + row, lanes, "w")
            b.evaluate(microkernel, [weights, x, bias, y, *settings])


def _biases(
    b: Kernel, table: tir.Buffer, column: tir.AccessPtr, zero_point: int
) -> tir.Buffer:
    """Return the biases less the weights' zero point times the column's sum."""
    if not zero_point:
        return table
    total = b.register("total", INT32)
    b.evaluate(dot_product_loop.SUM.name, [column, column.extent, total.value])
    total.set(total.value * -zero_point)
    biases = b.allocate("biases", INT32, table.shape)
    source = b.view("from", table, 0, (table.elements,))
    with b.for_("i", table.elements) as i:
        b.store(biases, [i // ROWS, i % ROWS], b.load(source, [i]) + total.value)
    return biases


SCHEDULES = (
    helium_schedule(
        "helium.fully_connected.rows",
        "fully_connected",
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    ),
    vector_requantize.int8_schedules(
        helium_schedule(
            "helium.fully_connected.channels",
            "fully_connected",
            build=_build_float32,
            configs=lambda op: (
                (NO_CONFIG,) if vector_requantize.supports_int8_layer(op) else ()
            ),
        )
    )[1],
)
