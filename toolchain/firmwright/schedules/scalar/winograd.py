"""conv2d 3x3, stride 1, by integer Winograd on cores without SIMD instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.conv2d import bias_of, requantization_of, weights_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import tensor_quant
from firmwright.schedules.epilogue import RequantizeEpilogue, accumulator_bounds, make_epilogue
from firmwright.schedules.scalar.microkernels import MicrokernelFamily, ScalarMicrokernel
from firmwright.schedules.scalar.rv32_microkernels import RV32M_FAMILY
from firmwright.schedules.scalar.thumb2_microkernels import MLA_FAMILY
from firmwright.schedules.winograd import POINTS, copy_input_patch, plan_winograd

# Sixteen products replace thirty-six (schedules/winograd.py). The kernel processes four adjacent
# tiles, 2 x 8 outputs: `patch` holds their 4 x 10 inputs, `u` the transformed inputs of each
# channel as int16, and `m` the products of a few output channels (microkernels.py, layout `tiles`).

_TILES = 4
_COLUMNS = 2 * _TILES
_LEAST_CHANNELS = 8


def _rows(family: MicrokernelFamily) -> int:
    """Output channels per block."""
    return next(r for layout, r, p in family.shapes if layout == "tiles" and p == _TILES)


def _configs(op: OpCall, family: MicrokernelFamily) -> Sequence[Config]:
    outputs, kh, kw, channels = op.input(1).shape
    _, height, width, _ = op.output.shape
    fits = (
        op.input(0).dtype == INT8
        and (kh, kw) == (3, 3)
        and op.ints_attr("stride") == (1, 1)
        and op.ints_attr("dilation") == (1, 1)
        and channels % 4 == 0
        and channels >= _LEAST_CHANNELS
        and outputs % _rows(family) == 0
        and height % 2 == 0
        and width % _COLUMNS == 0
    )
    return ({},) if fits and plan_winograd(op) is not None else ()


@dataclass(frozen=True, slots=True)
class _ScalarWinograd:
    """Buffers and constants of the kernel."""

    family: MicrokernelFamily
    shape: ScalarMicrokernel
    weights: tir.Buffer
    zeros: tir.Buffer
    bias: tir.Buffer
    epilogue: RequantizeEpilogue
    patch: tir.Buffer
    u: tir.Buffer
    m: tir.Buffer

    @property
    def channels(self) -> int:
        return self.u.shape[1]


def _build(op: OpCall, config: Config, b: Kernel, family: MicrokernelFamily) -> None:
    plan = plan_winograd(op)
    assert plan is not None
    outputs, _, _, channels = weights_of(op).shape
    shape = ScalarMicrokernel("tiles", _rows(family), _TILES, family.unrolled(channels))
    weights = b.constant("weights", _packed(plan.weights, shape.rows), INT16)
    zeros = b.constant("zeros", np.zeros(shape.rows), INT32)
    bias = b.constant("bias", plan.bias, INT32)
    batch, height, width, _ = op.output.shape
    with (
        b.allocate("patch", UINT32, (4, _COLUMNS + 2, channels // 4)) as patch,
        b.allocate("u", INT16, (POINTS, channels, _TILES), 4) as u,
        b.allocate("m", INT32, (POINTS, shape.sums), 4) as m,
        b.for_("n", batch) as n,
        b.for_("pair", height // 2) as pair,
        b.for_("group", width // _COLUMNS) as group,
    ):
        at = (n, pair * 2, group * _COLUMNS)
        work = _ScalarWinograd(family, shape, weights, zeros, bias, _epilogue(b, op), patch, u, m)
        copy_input_patch(b, patch, at)
        _transform_inputs(b, work)
        with b.for_("block", outputs // shape.rows) as block:
            _multiply(b, work, block)
            with work.epilogue.shared(b) as shared:
                for row in range(shape.rows):
                    _finish(b, work, at, block * shape.rows + row, row, shared)


def _epilogue(b: Kernel, op: OpCall) -> RequantizeEpilogue:
    kernel = weights_of(op)
    flat = kernel.reshape(len(kernel), -1).astype(np.int64)
    sums = bias_of(op, "int32").astype(np.int64)
    sums = sums - tensor_quant(op.input(0)).zero_point * flat.sum(axis=1)
    bounds = accumulator_bounds(sums, flat, INT8.min, INT8.max)
    bake = np.zeros((len(flat), 1), np.int64)
    return make_epilogue(b, requantization_of(op), bounds, INT8, len(flat), bake)


def _packed(weights: Array, rows: int) -> Array:
    """[oc, point, ic] -> [oc / rows, point, ic, rows]."""
    outputs, points, channels = weights.shape
    blocks = weights.reshape(outputs // rows, rows, points, channels).transpose(0, 2, 3, 1)
    packed: Array = np.ascontiguousarray(blocks)
    return packed


def _transform_inputs(b: Kernel, work: _ScalarWinograd) -> None:
    """u[4 i + j, channel, tile] = (B' d B)[i, j]."""
    columns = _COLUMNS + 2
    window = b.view("bytes", work.patch, 0, (4, columns, work.channels), dtype=INT8)
    with window as d, b.for_("c", work.channels) as c, ExitStack() as stack:
        vertical: dict[int, list[ArithExpr]] = {}
        for column in range(columns):
            values = [
                stack.enter_context(b.let("d", b.load_i32(d, [row, column, c]))) for row in range(4)
            ]
            vertical[column] = [
                stack.enter_context(b.let("v", value)) for value in _input_transform(values)
            ]
            if column >= 3 and column % 2:
                _store_tile(b, work, vertical, column - 3, c)


def _store_tile(
    b: Kernel,
    work: _ScalarWinograd,
    vertical: Mapping[int, list[ArithExpr]],
    first: int,
    c: ArithExpr,
) -> None:
    for i in range(4):
        row = [vertical[first + j][i] for j in range(4)]
        for j, value in enumerate(_input_transform(row)):
            b.store(work.u, [4 * i + j, c, first // 2], value.cast(INT16))


def _input_transform(d: Sequence[ArithExpr]) -> list[ArithExpr]:
    """B' applied to four values."""
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _multiply(b: Kernel, work: _ScalarWinograd, block: ArithExpr) -> None:
    """m[point, row * 4 + tile] of one block of output channels."""
    shape, channels = work.shape, work.channels
    with b.for_("point", POINTS) as point:
        acc = b.reg("acc", INT32, shape.sums)
        registers = [b.load(acc, [place]) for place in range(shape.sums)]
        start = (block * POINTS + point) * (channels * shape.rows)
        w = b.pointer(work.weights, start, channels * shape.rows)
        x = b.pointer(work.u, point * (channels * _TILES), channels * _TILES)
        zeros = b.pointer(work.zeros, 0, shape.rows)
        b.evaluate(work.family.block(shape), [w, x, zeros, 1, channels, *registers])
        for place in range(shape.sums):
            b.store(work.m, [point, place], b.load(acc, [place]))


def _finish(
    b: Kernel,
    work: _ScalarWinograd,
    at: tuple[ArithExpr, ArithExpr, ArithExpr],
    channel: ArithExpr,
    row: int,
    shared: Mapping[str, ArithExpr] | None,
) -> None:
    """Y = A' M A of each tile of one output channel, requantized."""
    n, y, x = at
    with ExitStack() as stack:
        finish = stack.enter_context(work.epilogue.channel(b, channel, 0, shared))
        bias = stack.enter_context(b.let("start", b.load(work.bias, [channel])))
        tile = stack.enter_context(b.for_("t", _TILES))
        halves: list[list[ArithExpr]] = [[], []]
        for j in range(4):
            column = [b.load(work.m, [4 * i + j, row * _TILES + tile]) for i in range(4)]
            m0, m1, m2, m3 = (stack.enter_context(b.let("m", value)) for value in column)
            if j == 1:
                m1 = stack.enter_context(b.let("m", m1 + bias))
            halves[0].append(stack.enter_context(b.let("y", m0 + m1 + m2)))
            halves[1].append(stack.enter_context(b.let("y", m1 - m2 - m3)))
        for dy, (y0, y1, y2, y3) in enumerate(halves):
            for dx, total in enumerate((y0 + y1 + y2, y1 - y2 - y3)):
                value = stack.enter_context(b.let("total", total))
                b.store(b.y, [n, y + dy, x + tile * 2 + dx, channel], finish(value))


SCHEDULES = tuple(
    Schedule(
        f"{family.name}.conv2d.winograd",
        "conv2d",
        frozenset({family.name}),
        partial(_configs, family=family),
        partial(_build, family=family),
        disable_scheduling=True,
        goal="speed",
    )
    for family in (MLA_FAMILY, RV32M_FAMILY)
)
