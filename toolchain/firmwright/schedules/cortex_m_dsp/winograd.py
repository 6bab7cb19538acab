"""conv2d 3x3, stride 1, by integer Winograd F(2x2, 3x3): 4 products per output instead of 9."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT32, UINT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv2d import weights_of
from firmwright.ops.kernel import Kernel, Nest, Position
from firmwright.schedules.cortex_m_dsp.microkernels import default_unroll
from firmwright.schedules.epilogue import RequantizeEpilogue
from firmwright.schedules.schedule_factories import dsp_schedule
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

# schedules/winograd.py provides the transformed weights and their proof. The kernel processes four
# adjacent tiles (2 x 8 outputs): `patch` holds their 4 x 10 inputs, `u` the transformed inputs as
# columns for 16 int16 products (microkernels.py, `wide`), and `m` the products of a channel pair.
# With code=looped, the code for both halves of four channels and both channels of a pair is a loop:
# a third less code for two percent more instructions.


def _configs(op: OpCall) -> Sequence[Config]:
    return ({}, {"code": "looped"}) if supports_winograd(op, 2) else ()


@dataclass(frozen=True, slots=True)
class _DspWinograd:
    b: Kernel
    op: OpCall
    weights: tir.Buffer
    bias: tir.Buffer
    epilogue: RequantizeEpilogue
    patch: tir.Buffer
    u: tir.Buffer
    m: tir.Buffer
    looped: bool

    @property
    def channels(self) -> int:
        return self.op.input(0).shape[3]


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    plan = plan_winograd(op)
    assert plan is not None
    outputs, _, _, channels = weights_of(op).shape
    epilogue = make_winograd_epilogue(b, op)
    weights = b.constant("weights", _pack(plan.weights), UINT32)
    bias = b.constant("bias", plan.bias, INT32)
    batch, height, width, _ = op.output.shape
    looped = config.get("code") == "looped"
    with (
        b.allocate("patch", UINT32, (4, COLUMNS + 2, channels // 4)) as patch,
        b.allocate("u", UINT32, (POINTS, channels // 2, TILES), 8) as u,
        b.allocate("m", INT32, (POINTS, COLUMNS), 8) as m,
        b.for_("n", batch) as n,
        b.for_("pair", -(-height // 2)) as row_pair,
        b.for_("group", width // COLUMNS) as group,
    ):
        work = _DspWinograd(b, op, weights, bias, epilogue, patch, u, m, looped)
        copy_input_patch(b, patch, (n, row_pair * 2, group * COLUMNS))
        _transform_inputs(work)
        with b.for_("channels", outputs // 2) as pair:
            _multiply(work, pair)
            _finish(work, (n, row_pair * 2, group * COLUMNS), pair)


def _pack(weights: Array) -> Array:
    """Pack [oc, point, ic] as uint32 [oc / 2, point, ic / 2, 2], taps in the order of SXTB16."""
    outputs, points, channels = weights.shape
    order = (4 * np.arange(channels // 4)[:, None] + [0, 2, 1, 3]).reshape(-1)
    lanes = weights[..., order].reshape(outputs // 2, 2, points, channels // 2, 2)
    ordered = np.ascontiguousarray(lanes.transpose(0, 2, 3, 1, 4)).astype(np.int16)
    packed: Array = ordered.reshape(-1).view(np.uint32)
    return packed.reshape(outputs // 2, points, channels // 2, 2)


def _transform_inputs(work: _DspWinograd) -> None:
    """Compute u[4 i + j, word, tile] = (B' d B)[i, j], two channels per word."""
    b = work.b
    with b.for_("c", work.channels // 4) as c:
        if work.looped:
            with b.for_("half", 2) as half, b.let("shift", (half * 8).cast(UINT32)) as shift:
                _transform_half(work, c, half, "sxtb16", shift)
            return
        for place, name in enumerate(("sxtb16", "sxtb16_ror8")):
            _transform_half(work, c, place, name)


def _transform_half(
    work: _DspWinograd,
    c: ArithExpr,
    half: ArithExpr | int,
    name: str,
    shift: ArithExpr | None = None,
) -> None:
    """Transform the two of every four channels that `name` selects after an optional shift."""
    b = work.b
    vertical: dict[int, list[ArithExpr]] = {}
    with Nest() as enter:
        for column in range(work.patch.shape[1]):
            pixels = [b.load(work.patch, [r, column, c]) for r in range(4)]
            shifted = (
                pixels if shift is None else [word_of_bytes >> shift for word_of_bytes in pixels]
            )
            d = [enter(b.let("d", call_intrinsic(name, [x], UINT32))) for x in shifted]
            vertical[column] = [enter(b.let("v", value)) for value in _input_transform(d)]
            if column >= 3 and column % 2:
                _store_tile(work, vertical, column - 3, c * 2 + half)


def _store_tile(
    work: _DspWinograd, vertical: dict[int, list[ArithExpr]], first: int, word: ArithExpr
) -> None:
    for i in range(4):
        row = [vertical[first + j][i] for j in range(4)]
        for j, value in enumerate(_input_transform(row)):
            work.b.store(work.u, [4 * i + j, word, first // 2], value)


def _input_transform(d: Sequence[ArithExpr]) -> list[ArithExpr]:
    pairs = (("ssub16", 0, 2), ("sadd16", 1, 2), ("ssub16", 2, 1), ("ssub16", 1, 3))
    return [call_intrinsic(name, [d[a], d[b]], UINT32) for name, a, b in pairs]


def _multiply(work: _DspWinograd, pair: ArithExpr) -> None:
    """Compute m[point, channel * 4 + tile] of one channel pair."""
    b, words = work.b, work.channels // 2
    steps = default_unroll(words)
    with b.for_("point", POINTS) as point:
        acc = b.reg("acc", INT32, COLUMNS)
        registers = [b.load(acc, [place]) for place in range(COLUMNS)]
        start = (pair * POINTS + point) * (words * 2)
        w = b.pointer(work.weights, start, steps * 2)
        x = b.pointer(work.u, point * (words * TILES), steps * TILES)
        b.evaluate(f"fresh_2x4_{steps}", [w, x, *registers])
        if steps < words:
            with b.for_("j", words // steps - 1, 1) as j:
                w = b.pointer(work.weights, start + j * (steps * 2), steps * 2)
                x = b.pointer(work.u, (point * words + j * steps) * TILES, steps * TILES)
                b.evaluate(f"wide_2x4_{steps}", [w, x, *registers])
        for place in range(COLUMNS):
            b.store(work.m, [point, place], b.load(acc, [place]))


def _finish(work: _DspWinograd, at: Position, pair: ArithExpr) -> None:
    """Compute Y = A' M A of each tile of a channel pair; requantize and store it."""
    b = work.b
    places: Sequence[ArithExpr | int] = (0, 1)
    with Nest() as enter:
        if work.looped:
            places = (enter(b.for_("parity", 2)),)
        for place in places:
            with (
                b.let("channel", pair * 2 + place) as channel,
                work.epilogue.bind_channel(b, channel) as finish,
                b.let("start", b.load(work.bias, [channel])) as bias,
            ):
                store_output_tiles(b, work.m, bias, at, channel, place * TILES, finish)


SCHEDULES = (dsp_schedule("dsp.conv2d.winograd", "conv2d", configs=_configs, build=_build),)
