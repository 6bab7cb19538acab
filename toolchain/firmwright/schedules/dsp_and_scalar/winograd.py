"""conv2d 3x3 by integer Winograd F(2x2, 3x3): 4 products per output instead of 9."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32, Array, DType
from firmwright.base.rounding import divide_up
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import WindowAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, immediate, logical_and
from firmwright.kernels.scalar.gemm import ScalarMicrokernel
from firmwright.ops.conv2d import requantization_of, weights_of
from firmwright.ops.kernel import Kernel, Position
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.cortex_m_dsp.microkernels import default_unroll
from firmwright.schedules.epilogue import (
    FormPreference,
    RequantizeEpilogue,
    accumulator_bounds,
    by_arithmetic,
    fold_zero_point_into_bias,
    make_epilogue,
)
from firmwright.schedules.epilogue_forms import FinishElement
from firmwright.schedules.folded_requantize import fold_requantize
from firmwright.schedules.scalar.microkernels import (
    MLA_FAMILY,
    RV32M_FAMILY,
    MicrokernelFamily,
)
from firmwright.schedules.schedule_factories import dsp_schedule

# With stride 1, a tile of 4x4 inputs d gives 2x2 outputs: Y = A' [(G g G') * (B' d B)]
# A, elementwise in between. G has halves, so 2 G is used and every value is an integer:
# the result is exactly four times the convolution, which requantization absorbs as two
# bits of its left shift. The remaining shift is folded into the transformed weights.
#
# `_plan_weights` checks that requantization folds, that the scaled weights fit int16,
# and that the sum of the magnitudes of all products fits int32. Transformed inputs are
# sums of four int8 and fit.
#
# Kernels process four adjacent tiles (2 x 8 outputs): `patch` holds their 4 x 10
# inputs, `u` the transformed inputs as int16 and `m` the products of a few output
# channels. On the DSP extension, a word of `u` has two channels, in the order of
# SXTB16, and micro-kernels multiply channel pairs (cortex_m_dsp/microkernels.py,
# `wide`). With code=looped, the code for both halves of four channels and both channels
# of a pair is a loop: a third less code for two percent more instructions. Other cores
# use micro-kernels of the layout `tiles` (scalar/microkernels.py).

_TILES = 4
_COLUMNS = 2 * _TILES
"""Output columns of a row of tiles."""
_LEAST_CHANNELS = 8
_POINTS = 16
"""Elements of a transformed tile, that is, products per input channel."""
_G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.int64)
_LEFT = 2
"""log2 of the factor by which 2 G in both directions scales the result."""
_INPUT_REACH = 512
"""Bound of an element of B' d B: four times the greatest magnitude of an int8."""


@dataclass(frozen=True, slots=True)
class _WinogradWeights:
    """Transformed weights [oc, point, ic] and bias [oc] that include the left shift."""

    weights: Array
    bias: Array


def _plan_weights(op: OpCall) -> _WinogradWeights | None:
    """Return the transformed weights and bias, or None if a proof fails."""
    kernel = weights_of(op).astype(np.int64)
    bias = fold_zero_point_into_bias(op, kernel)
    folded = fold_requantize(requantization_of(op), *accumulator_bounds(bias, kernel))
    if folded is None:
        return None
    left = np.array(folded.left)
    tiles = np.einsum("ia,jb,oabc->oijc", _G, _G, kernel)
    transformed = tiles.reshape(len(kernel), _POINTS, -1)
    baked = transformed << np.maximum(left - _LEFT, 0)[:, None, None]
    if min(folded.left) < _LEFT or np.abs(baked).max() > INT16.max:
        return None
    baked_bias = bias << left
    reach = _INPUT_REACH * np.abs(baked).sum(axis=(1, 2)) + np.abs(baked_bias)
    return _WinogradWeights(baked, baked_bias) if reach.max() <= INT32.max else None


def _supports(op: OpCall, channel_block: int) -> bool:
    attrs = op.attributes(WindowAttrs)
    outputs, kh, kw, channels = op.input(1).shape
    _, height, width, _ = op.output.shape
    fits = (
        op.input(0).dtype == INT8
        and (kh, kw) == (3, 3)
        and attrs.stride == attrs.dilation == (1, 1)
        and channels % 4 == 0
        and channels >= _LEAST_CHANNELS
        and outputs % channel_block == 0
        and height % 2 == 0
        and width % _COLUMNS == 0
    )
    return fits and _plan_weights(op) is not None


def _make_epilogue(b: Kernel, op: OpCall) -> RequantizeEpilogue:
    """Build the epilogue for transformed weights, which include the left shift."""
    kernel = weights_of(op)
    bounds = accumulator_bounds(fold_zero_point_into_bias(op, kernel), kernel)
    return make_epilogue(
        b,
        requantization_of(op),
        bounds,
        INT8,
        len(kernel),
        bake=np.zeros((len(kernel), 1), np.int64),  # the shift is folded already
        preference=FormPreference.FOLDED,
    )


def _store_output_tiles(
    b: Kernel,
    products: tir.Buffer,
    bias: ArithExpr,
    at: Position,
    channel: ArithExpr,
    start: ArithExpr | int,
    finish: FinishElement,
) -> None:
    """Store Y = A' M A of the tiles of one output channel.

    M is `products` [point, start + tile]; `at` (n, y, x) is the first tile's output.
    Sums are unsigned: analyzers of the C do not know the bounds of `_plan_weights`.
    """
    n, row, column = at
    with b.for_("t", _TILES) as tile:
        halves: list[list[ArithExpr]] = [[], []]
        for j in range(4):
            values = [b.load(products, [4 * i + j, start + tile]) for i in range(4)]
            m0, m1, m2, m3 = (b.let("m", value.cast(UINT32)) for value in values)
            if j == 1:
                m1 = b.let("m", m1 + bias.cast(UINT32))
            halves[0].append(b.let("y", m0 + m1 + m2))
            halves[1].append(b.let("y", m1 - m2 - m3))
        for dy, (y0, y1, y2, y3) in enumerate(halves):
            for dx, total in enumerate((y0 + y1 + y2, y1 - y2 - y3)):
                value = b.let("total", total.cast(INT32))
                place = [n, row + dy, column + tile * 2 + dx, channel]
                b.store(b.y, place, finish(value))


def _copy_input_patch(b: Kernel, patch: tir.Buffer, at: Position) -> None:
    """Copy the inputs needed from output `at` (n, y, x) to `patch`.

    This is [4, columns, channels / 4], as channels are copied as words. It holds the
    zero point outside the input.
    """
    n, row, column = at
    x = b.input(0)
    _, height, width, channels = x.shape
    top, _, left, _ = b.call.attributes(WindowAttrs).padding
    point = per_tensor_quant(b.call.input(0)).zero_point & 0xFF
    outside = ArithExpr(immediate(point * 0x01010101, UINT32))
    words = channels // 4
    columns = patch.shape[1]
    with b.for_("r", 4) as r:
        iy = b.let("iy", row + r - top)
        x0 = b.let("x0", column - left)
        whole = logical_and(iy >= 0, iy < height, x0 >= 0, x0 <= width - columns)
        with b.if_(whole):
            start = ((n * height + iy) * width + x0) * channels
            run = b.view("run", x, start, (columns, words), dtype=UINT32, alignment=4)
            with b.for_("i", columns) as i, b.for_("c", words) as c:
                b.store(patch, [r, i, c], b.load(run, [i, c]))
        with b.else_(), b.for_("i", columns) as i:
            ix = b.let("ix", x0 + i)
            with b.if_(logical_and(iy >= 0, iy < height, ix >= 0, ix < width)):
                start = ((n * height + iy) * width + ix) * channels
                run = b.view("run", x, start, (words,), dtype=UINT32, alignment=4)
                with b.for_("c", words) as c:
                    b.store(patch, [r, i, c], b.load(run, [c]))
            with b.else_(), b.for_("c", words) as c:
                b.store(patch, [r, i, c], outside)


_Transform = Callable[[Sequence[ArithExpr]], Sequence[ArithExpr]]


@dataclass(frozen=True, slots=True)
class _WinogradLayer:
    """Constants and scratch memory of a layer: `m` is [point, channel * 4 + tile]."""

    b: Kernel
    channels: int
    weights: tir.Buffer
    bias: tir.Buffer
    epilogue: RequantizeEpilogue
    patch: tir.Buffer
    u: tir.Buffer
    m: tir.Buffer

    def transform(
        self,
        word: ArithExpr,
        load: Callable[[int, int], ArithExpr],
        transform: _Transform,
        dtype: DType,
    ) -> None:
        """Compute u[4 i + j, word, tile] = (B' d B)[i, j]; `load` gives d[row, col]."""
        # Tiles begin every two columns and overlap, so a column is transformed once.
        b, vertical = self.b, dict[int, list[ArithExpr]]()
        for column in range(_COLUMNS + 2):
            d = [b.let("d", load(row, column)) for row in range(4)]
            vertical[column] = [b.let("v", value) for value in transform(d)]
            if column < 3 or column % 2 == 0:
                continue
            for i in range(4):
                row = [vertical[column - 3 + j][i] for j in range(4)]
                for j, value in enumerate(transform(row)):
                    stored = value.cast(dtype) if dtype == INT16 else value
                    b.store(self.u, [4 * i + j, word, (column - 3) // 2], stored)

    def finish(
        self,
        at: Position,
        channel: ArithExpr,
        start: ArithExpr | int,
        shared: Mapping[str, ArithExpr] | None = None,
    ) -> None:
        """Compute, requantize and store a channel's outputs, products from `start`."""
        b = self.b
        finish = self.epilogue.bind_channel(b, channel, 0, shared)
        bias = b.let("start", b.load(self.bias, [channel]))
        for form in by_arithmetic(b, finish, is_tile=False):
            _store_output_tiles(b, self.m, bias, at, channel, start, form)


@dataclass(frozen=True, slots=True)
class WinogradConfig(ScheduleConfig):
    """The configuration of the DSP kernel: whether loops over two are unrolled."""

    code: Literal["unrolled", "looped"] = "unrolled"


def _dsp_configs(op: OpCall) -> Sequence[WinogradConfig]:
    return (WinogradConfig(), WinogradConfig("looped")) if _supports(op, 2) else ()


def _build_dsp(op: OpCall, config: WinogradConfig, b: Kernel) -> None:
    plan = _plan_weights(op)
    assert plan is not None
    outputs, _, _, channels = weights_of(op).shape
    epilogue = _make_epilogue(b, op)
    weights = b.constant("weights", pack_pairs(plan.weights), UINT32)
    bias = b.constant("bias", plan.bias, INT32)
    batch, height, width, _ = op.output.shape
    is_looped = config.code == "looped"
    patch = b.allocate("patch", UINT32, (4, _COLUMNS + 2, channels // 4))
    u = b.allocate("u", UINT32, (_POINTS, channels // 2, _TILES), 8)
    m = b.allocate("m", INT32, (_POINTS, _COLUMNS), 8)
    extents = (batch, divide_up(height, 2), width // _COLUMNS)
    with b.loops("n pair group", extents) as (n, row_pair, group):
        layer = _WinogradLayer(
            b=b,
            channels=channels,
            weights=weights,
            bias=bias,
            epilogue=epilogue,
            patch=patch,
            u=u,
            m=m,
        )
        at = (n, row_pair * 2, group * _COLUMNS)
        _copy_input_patch(b, patch, at)
        _transform_pairs(layer, is_looped=is_looped)
        with b.for_("channels", outputs // 2) as pair:
            _multiply_pairs(layer, pair)
            if is_looped:
                with b.for_("parity", 2) as parity:
                    channel = b.let("channel", pair * 2 + parity)
                    layer.finish(at, channel, parity * _TILES)
            else:
                for place in (0, 1):
                    channel = b.let("channel", pair * 2 + place)
                    layer.finish(at, channel, place * _TILES)


def pack_pairs(weights: Array) -> Array:
    """Pack [oc, point, ic] as uint32 [oc / 2, point, ic / 2, 2], in SXTB16's order."""
    outputs, points, channels = weights.shape
    order = (4 * np.arange(channels // 4)[:, None] + [0, 2, 1, 3]).reshape(-1)
    lanes = weights[..., order].reshape(outputs // 2, 2, points, channels // 2, 2)
    ordered = np.ascontiguousarray(lanes.transpose(0, 2, 3, 1, 4)).astype(np.int16)
    packed: Array = ordered.reshape(-1).view(np.uint32)
    return packed.reshape(outputs // 2, points, channels // 2, 2)


def _transform_pairs(layer: _WinogradLayer, *, is_looped: bool) -> None:
    b = layer.b
    with b.for_("c", layer.channels // 4) as c:
        if is_looped:
            with b.for_("half", 2) as half:
                shift = b.let("shift", (half * 8).cast(UINT32))
                _transform_half(layer, c, half, "sxtb16", shift)
        else:
            _transform_half(layer, c, 0, "sxtb16")
            _transform_half(layer, c, 1, "sxtb16_ror8")


def _transform_half(
    layer: _WinogradLayer,
    c: ArithExpr,
    half: ArithExpr | int,
    name: str,
    shift: ArithExpr | None = None,
) -> None:
    """Transform the bytes of the patch's words `c` that intrinsic `name` extracts."""

    def load(row: int, column: int) -> ArithExpr:
        pixel = layer.b.load(layer.patch, [row, column, c])
        shifted = pixel if shift is None else pixel >> shift
        return call_intrinsic(name, [shifted], UINT32)

    layer.transform(c * 2 + half, load, _transform_words, UINT32)


def _transform_words(d: Sequence[ArithExpr]) -> list[ArithExpr]:
    pairs = (("ssub16", 0, 2), ("sadd16", 1, 2), ("ssub16", 2, 1), ("ssub16", 1, 3))
    return [call_intrinsic(name, [d[a], d[b]], UINT32) for name, a, b in pairs]


def _multiply_pairs(layer: _WinogradLayer, pair: ArithExpr) -> None:
    b, words = layer.b, layer.channels // 2
    steps = default_unroll(words)
    with b.for_("point", _POINTS) as point:
        acc = b.reg("acc", INT32, _COLUMNS)
        registers = [b.load(acc, [place]) for place in range(_COLUMNS)]
        start = (pair * _POINTS + point) * (words * 2)
        w = b.pointer(layer.weights, start, steps * 2)
        x = b.pointer(layer.u, point * (words * _TILES), steps * _TILES)
        b.evaluate(f"fresh_2x4_{steps}", [w, x, *registers])
        if steps < words:
            with b.for_("j", words // steps - 1, 1) as j:
                w = b.pointer(layer.weights, start + j * (steps * 2), steps * 2)
                first = (point * words + j * steps) * _TILES
                x = b.pointer(layer.u, first, steps * _TILES)
                b.evaluate(f"wide_2x4_{steps}", [w, x, *registers])
        for place in range(_COLUMNS):
            b.store(layer.m, [point, place], b.load(acc, [place]))


def _rows(family: MicrokernelFamily) -> int:
    return next(r for layout, r, p in family.shapes if (layout, p) == ("tiles", _TILES))


def _scalar_configs(family: MicrokernelFamily, op: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,) if _supports(op, _rows(family)) else ()


def _build_scalar(
    family: MicrokernelFamily, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    plan = _plan_weights(op)
    assert plan is not None
    outputs, _, _, channels = weights_of(op).shape
    shape = ScalarMicrokernel("tiles", _rows(family), _TILES, family.unrolled(channels))
    blocks = plan.weights.reshape(outputs // shape.rows, shape.rows, _POINTS, channels)
    by_row = blocks.transpose(0, 2, 3, 1)  # [block, point, ic, row]
    weights = b.constant("weights", np.ascontiguousarray(by_row), INT16)
    zeros = b.constant("zeros", np.zeros(shape.rows), INT32)
    bias = b.constant("bias", plan.bias, INT32)
    batch, height, width, _ = op.output.shape
    patch = b.allocate("patch", UINT32, (4, _COLUMNS + 2, channels // 4))
    u = b.allocate("u", INT16, (_POINTS, channels, _TILES), 4)
    m = b.allocate("m", INT32, (_POINTS, shape.sums), 4)
    extents = (batch, height // 2, width // _COLUMNS)
    with b.loops("n pair group", extents) as (n, pair, group):
        at = (n, pair * 2, group * _COLUMNS)
        layer = _WinogradLayer(
            b=b,
            channels=channels,
            weights=weights,
            bias=bias,
            epilogue=_make_epilogue(b, op),
            patch=patch,
            u=u,
            m=m,
        )
        _copy_input_patch(b, patch, at)
        d = b.view("bytes", patch, 0, (4, _COLUMNS + 2, channels), dtype=INT8)
        with b.for_("c", channels) as c:

            def load(row: int, column: int) -> ArithExpr:
                return b.load_i32(d, [row, column, c])

            layer.transform(c, load, _transform_values, INT16)
        with b.for_("block", outputs // shape.rows) as block:
            _multiply_rows(layer, family, shape, zeros, block)
            shared = layer.epilogue.bind_shared(b)
            for row in range(shape.rows):
                layer.finish(at, block * shape.rows + row, row * _TILES, shared)


def _transform_values(d: Sequence[ArithExpr]) -> list[ArithExpr]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _multiply_rows(
    layer: _WinogradLayer,
    family: MicrokernelFamily,
    shape: ScalarMicrokernel,
    zeros: tir.Buffer,
    block: ArithExpr,
) -> None:
    b, channels = layer.b, layer.channels
    with b.for_("point", _POINTS) as point:
        acc = b.reg("acc", INT32, shape.sums)
        registers = [b.load(acc, [place]) for place in range(shape.sums)]
        start = (block * _POINTS + point) * (channels * shape.rows)
        w = b.pointer(layer.weights, start, channels * shape.rows)
        x = b.pointer(layer.u, point * (channels * _TILES), channels * _TILES)
        start_values = b.pointer(zeros, 0, shape.rows)
        b.evaluate(family.block(shape), [w, x, start_values, 1, channels, *registers])
        for place in range(shape.sums):
            b.store(layer.m, [point, place], b.load(acc, [place]))


SCHEDULES = (
    dsp_schedule(
        "dsp.conv2d.winograd", "conv2d", configs=_dsp_configs, build=_build_dsp
    ),
    *(
        Schedule(
            f"{family.name}.conv2d.winograd",
            "conv2d",
            frozenset({family.name}),
            partial(_scalar_configs, family),
            partial(_build_scalar, family),
            disable_scheduling=True,
            goal="speed",
        )
        for family in (MLA_FAMILY, RV32M_FAMILY)
    ),
)
