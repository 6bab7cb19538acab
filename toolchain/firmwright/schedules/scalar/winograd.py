"""conv2d 3x3, stride 1, by integer Winograd on cores without SIMD instructions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.conv2d import weights_of
from firmwright.ops.kernel import Kernel, Nest, Position
from firmwright.schedules.epilogue import RequantizeEpilogue
from firmwright.schedules.scalar.microkernels import MicrokernelFamily, ScalarMicrokernel
from firmwright.schedules.scalar.rv32_microkernels import RV32M_FAMILY
from firmwright.schedules.scalar.thumb2_microkernels import MLA_FAMILY
from firmwright.schedules.winograd import (
    COLUMNS,
    POINTS,
    TILES,
    copy_input_patch,
    make_winograd_epilogue,
    plan_winograd,
    store_output_tiles,
    supports_winograd,
)

# Sixteen products replace thirty-six (schedules/winograd.py). The kernel processes four adjacent
# tiles, 2 x 8 outputs: `patch` holds their 4 x 10 inputs, `u` the transformed inputs of each
# channel as int16, and `m` the products of a few output channels (microkernels.py, layout `tiles`).


def _rows(family: MicrokernelFamily) -> int:
    return next(r for layout, r, p in family.shapes if layout == "tiles" and p == TILES)


def _configs(op: OpCall, family: MicrokernelFamily) -> Sequence[Config]:
    return ({},) if supports_winograd(op, _rows(family)) else ()


@dataclass(frozen=True, slots=True)
class _ScalarWinograd:
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
    shape = ScalarMicrokernel("tiles", _rows(family), TILES, family.unrolled(channels))
    weights = b.constant("weights", _packed(plan.weights, shape.rows), INT16)
    zeros = b.constant("zeros", np.zeros(shape.rows), INT32)
    bias = b.constant("bias", plan.bias, INT32)
    batch, height, width, _ = op.output.shape
    with (
        b.allocate("patch", UINT32, (4, COLUMNS + 2, channels // 4)) as patch,
        b.allocate("u", INT16, (POINTS, channels, TILES), 4) as u,
        b.allocate("m", INT32, (POINTS, shape.sums), 4) as m,
        b.for_("n", batch) as n,
        b.for_("pair", height // 2) as pair,
        b.for_("group", width // COLUMNS) as group,
    ):
        at = (n, pair * 2, group * COLUMNS)
        work = _ScalarWinograd(
            family, shape, weights, zeros, bias, make_winograd_epilogue(b, op), patch, u, m
        )
        copy_input_patch(b, patch, at)
        _transform_inputs(b, work)
        with b.for_("block", outputs // shape.rows) as block:
            _multiply(b, work, block)
            with work.epilogue.bind_shared(b) as shared:
                for row in range(shape.rows):
                    _finish(b, work, at, block * shape.rows + row, row, shared)


def _packed(weights: Array, rows: int) -> Array:
    """Pack [oc, point, ic] as [oc / rows, point, ic, rows]."""
    outputs, points, channels = weights.shape
    blocks = weights.reshape(outputs // rows, rows, points, channels).transpose(0, 2, 3, 1)
    packed: Array = np.ascontiguousarray(blocks)
    return packed


def _transform_inputs(b: Kernel, work: _ScalarWinograd) -> None:
    """Compute u[4 i + j, channel, tile] = (B' d B)[i, j]."""
    columns = COLUMNS + 2
    window = b.view("bytes", work.patch, 0, (4, columns, work.channels), dtype=INT8)
    with window as d, b.for_("c", work.channels) as c, Nest() as enter:
        vertical: dict[int, list[ArithExpr]] = {}
        for column in range(columns):
            values = [enter(b.let("d", b.load_i32(d, [row, column, c]))) for row in range(4)]
            vertical[column] = [enter(b.let("v", value)) for value in _input_transform(values)]
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
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _multiply(b: Kernel, work: _ScalarWinograd, block: ArithExpr) -> None:
    """Compute m[point, row * 4 + tile] of one block of output channels."""
    shape, channels = work.shape, work.channels
    with b.for_("point", POINTS) as point:
        acc = b.reg("acc", INT32, shape.sums)
        registers = [b.load(acc, [place]) for place in range(shape.sums)]
        start = (block * POINTS + point) * (channels * shape.rows)
        w = b.pointer(work.weights, start, channels * shape.rows)
        x = b.pointer(work.u, point * (channels * TILES), channels * TILES)
        zeros = b.pointer(work.zeros, 0, shape.rows)
        b.evaluate(work.family.block(shape), [w, x, zeros, 1, channels, *registers])
        for place in range(shape.sums):
            b.store(work.m, [point, place], b.load(acc, [place]))


def _finish(
    b: Kernel,
    work: _ScalarWinograd,
    at: Position,
    channel: ArithExpr,
    row: int,
    shared: Mapping[str, ArithExpr] | None,
) -> None:
    """Compute Y = A' M A of each tile of one output channel, and requantize it."""
    with Nest() as enter:
        finish = enter(work.epilogue.bind_channel(b, channel, 0, shared))
        bias = enter(b.let("start", b.load(work.bias, [channel])))
        store_output_tiles(b, work.m, bias, at, channel, row * TILES, finish)


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
