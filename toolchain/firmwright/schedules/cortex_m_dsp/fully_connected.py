"""fully_connected on the DSP extension: eight outputs at a time over a widened input.

The input vector is widened once to int16 pairs (the order SXTB16 leaves them in), then each block
of eight rows of the weight matrix runs down it. Weights lie in pairs of rows as for convolution
(columns.py), so one word feeds two rows. Batches run one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT32
from firmwright.ir.graph.opdef import Array, OpCall
from firmwright.ir.tir.builder import E, call
from firmwright.ir.tir.nodes import Buffer
from firmwright.ir.tir.schedule import Config, RowRange, Rule
from firmwright.ops.conv_shapes import Window
from firmwright.ops.fixed_point import per_tensor
from firmwright.ops.fully_connected import bias_of, requant_of
from firmwright.ops.kernel import Kernel
from firmwright.schedules.cortex_m_dsp.columns import ColumnLayout, pack_run
from firmwright.schedules.epilogue import Epilogue, accumulator_bounds, make_epilogue


def _configs(op: OpCall) -> Sequence[Config]:
    if op.input(0).dtype != INT8 or op.input(1).dtype != INT8:
        return ()
    outputs = op.input(1).shape[0]
    return tuple({"rows": rows} for rows in (8, 4, 2) if rows <= outputs + 1)[:1]


def _build(op: OpCall, config: Config, b: Kernel, rows: RowRange | None) -> None:
    weights = op.constants[1]
    assert weights is not None
    matrix = np.asarray(weights.array())
    outputs, depth = matrix.shape
    block = int(config["rows"])
    padded = -(-outputs // block) * block
    zero_point = per_tensor(op.input(0)).zero_point
    bias = bias_of(op, "int32").astype(np.int64) - zero_point * matrix.sum(axis=1, dtype=np.int64)
    bounds = accumulator_bounds(bias, matrix, INT8.min, INT8.max)
    epilogue = make_epilogue(b, requant_of(op), bounds, INT8, padded)
    bias_table = b.constant("bias", np.concatenate([bias, np.zeros(padded - outputs)]), INT32)
    layout = _layout(depth)
    packed = b.constant("weights", _pack_rows(layout, matrix, padded, block), UINT32)
    batch = op.output.elements // outputs
    first, last = (rows.start, rows.end) if rows else (0, batch)
    with (
        b.for_("n", last - first, first) as n,
        b.allocate("wide", UINT32, (layout.words, 1)) as wide,
    ):
        pack_run(b, layout, wide, b.input(0), n * depth, n * 0, 0)
        with b.for_("block", padded // block) as index:
            acc = _multiply(b, wide, packed, bias_table, index, block)
            _store(b, epilogue, acc, n * outputs, index, outputs)


def _layout(depth: int) -> ColumnLayout:
    return ColumnLayout(Window((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)), depth)


def _pack_rows(layout: ColumnLayout, matrix: Array, padded: int, block: int) -> Array:
    """[block index, word, pair]: what one step of a block reads lies together."""
    full = np.zeros((padded, matrix.shape[1]), np.int8)
    full[: len(matrix)] = matrix
    pairs = layout.pack_weights(full.reshape(padded, 1, 1, -1))
    grouped = pairs.reshape(padded // block, block // 2, layout.words)
    return np.ascontiguousarray(grouped.transpose(0, 2, 1))


def _multiply(
    b: Kernel, wide: Buffer, packed: Buffer, bias: Buffer, index: E, block: int
) -> Buffer:
    words = wide.shape[0]
    acc = b.reg("acc", INT32, block)
    for row in range(block):
        b.store(acc, [row], b.load(bias, [index * block + row]))
    size = words * (block // 2)
    with b.window("w", packed, index * size, (words, block // 2), alignment=4) as w:
        unroll = next(n for n in (4, 2, 1) if words % n == 0)
        with b.for_("j", words // unroll) as j, b.for_("u", unroll, kind="unrolled") as u:
            step = j * unroll + u
            with b.let("a", b.load(wide, [step, 0])) as a:
                for pair in range(block // 2):
                    with b.let("both", b.load(w, [step, pair])) as both:
                        for parity, name in enumerate(("sxtb16", "sxtb16_ror8")):
                            at = 2 * pair + parity
                            lanes = call(name, [both], UINT32)
                            total = call("smlad", [lanes, a, b.load(acc, [at])], INT32)
                            b.store(acc, [at], total)
    return acc


def _store(b: Kernel, epilogue: Epilogue, acc: Buffer, base: E, index: E, outputs: int) -> None:
    block = acc.shape[0]
    flat = b.window("out", b.y, base, (outputs,), access="w")
    with flat as y:
        for row in range(block):
            with b.let("channel", index * block + row) as channel:
                if outputs % block and row >= outputs % block:
                    with b.if_(channel < outputs), epilogue.channel(b, channel) as finish:
                        b.store(y, [channel], finish(b.load(acc, [row])))
                else:
                    with epilogue.channel(b, channel) as finish:
                        b.store(y, [channel], finish(b.load(acc, [row])))


RULES = (
    Rule(
        "dsp.fully_connected.rows",
        "fully_connected",
        frozenset({"dsp"}),
        _configs,
        _build,
        keeps_order=True,
    ),
)
