"""depthwise_conv2d on Helium: adjacent channels in lanes, directly on NHWC data."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, minimum
from firmwright.kernels.mve import depthwise
from firmwright.kernels.mve.depthwise import VisibleTaps
from firmwright.ops import conv2d
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel, Position
from firmwright.ops.requantize import (
    Requantization,
    has_weight_zero_point,
    per_tensor_quant,
)
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.helium import (
    depthwise_microkernels_8ch,
    depthwise_microkernels_16ch,
    int16_dot,
    vector_requantize,
)
from firmwright.schedules.helium.depthwise_plane_microkernels import LANES
from firmwright.schedules.helium.int16_conv2d_fully_connected import has_int32_sums
from firmwright.schedules.schedule_factories import helium_schedule
from firmwright.schedules.window_bounds import (
    ValidTapRun,
    split_by_valid_rows_and_columns,
)

# Blocks are sixteen channels of one pixel (depthwise_microkernels_16ch.py) or eight
# channels of two pixels (depthwise_microkernels_8ch.py, also int16). Outputs are
# grouped by valid taps. Each group has its own bias, with the zero point of its valid
# taps folded in, so padding is never read. Pixels are the outer loop and each output is
# written after its window was read: the kernel needs no scratch and little distance
# between input and output. It is meant for single output rows and for windows too large
# for depthwise_channel_planes.py.

_MAX_GROUPS = 5
"""Maximum output groups; each takes a bias of four bytes per channel in flash."""
_MAX_LOOPS = 25
"""Maximum output groups if one bias serves all or planes cannot hold the window."""

_PIXELS = {
    depthwise_microkernels_8ch.CHANNELS: 2,
    depthwise.CHANNELS: 1,
}
"""Channels per block -> pixels per block."""


@dataclass(frozen=True, slots=True)
class _ChannelGroupLayer:
    """The constants of a layer.

    `bias` is [group, block, lanes], `parameters` is [block, 2 lanes].
    """

    window: ConvWindow
    weights: tir.Buffer
    bias: tir.Buffer
    parameters: tir.Buffer
    channels: int
    block: int
    settings: list[int]

    @property
    def blocks(self) -> int:
        return self.parameters.shape[0]

    @property
    def lanes(self) -> int:
        return min(self.channels, self.block)

    def first_channel(self, block: ArithExpr) -> ArithExpr:
        start = block * self.block
        if self.channels % self.block == 0:
            return start
        return minimum(start, self.channels - self.lanes)

    def bias_block(self, block: ArithExpr, group: int) -> ArithExpr:
        """Return the row of the bias table; groups share one if the zero point is 0."""
        return block + group * self.blocks if self.bias.shape[0] > 1 else block


@dataclass(frozen=True, slots=True)
class ChannelGroup(ScheduleConfig):
    """The configuration of a depthwise convolution: the channels of a group."""

    channels: int


def _configs(op: OpCall) -> Sequence[ChannelGroup]:
    is_wide = has_int32_sums(op, 3)
    if is_wide:
        applies = int16_dot.supports_requantize(conv2d.requantization_of(op))
    else:
        applies = vector_requantize.supports_int8_layer(op)
    if not applies:
        return ()
    groups = split_by_valid_rows_and_columns(op)
    _, height, width, _ = op.input(1).shape
    is_unbounded = is_wide or height * width > LANES
    max_groups = _MAX_LOOPS if is_unbounded else _MAX_GROUPS
    if not 0 < len(groups) <= max_groups or conv2d.channel_multiplier_of(op) != 1:
        return ()
    configs: list[ChannelGroup] = []
    if not is_wide and not has_weight_zero_point(op) and _fits_sixteen(op, groups):
        configs.append(ChannelGroup(depthwise.CHANNELS))
    if op.input(1).shape[2] <= depthwise_microkernels_8ch.MAX_COLUMNS:
        configs.append(ChannelGroup(depthwise_microkernels_8ch.CHANNELS))
    return configs


def _fits_sixteen(
    op: OpCall, groups: Sequence[tuple[ValidTapRun, ValidTapRun]]
) -> bool:
    _, rows, columns, count = op.input(1).shape
    is_supported = (
        rows <= depthwise_microkernels_16ch.MAX_ROWS
        and columns <= depthwise_microkernels_16ch.MAX_COLUMNS
    )
    if not is_supported or count < depthwise.CHANNELS:
        return False
    kernel = conv2d.weights_of(op)[0]
    for group in groups:
        taps = _seen(kernel, group).reshape(-1, count)
        if not depthwise_microkernels_16ch.pair_sums_fit_int16(taps):
            return False
    return True


def _seen(kernel: Array, group: tuple[ValidTapRun, ValidTapRun]) -> Array:
    """Return the weights [row, column, channel] of the taps that a group reads."""
    down, across = group[0].taps, group[1].taps
    return kernel[down.start : down.stop, across.start : across.stop]


def _build(op: OpCall, config: ChannelGroup, b: Kernel) -> None:
    groups = split_by_valid_rows_and_columns(op)
    layer = _layer(op, b, groups, config.channels)
    pixels = _PIXELS[layer.block]
    for index, (down, across) in enumerate(groups):
        with (
            b.for_("n", op.output.shape[0]) as n,
            b.for_("oy", len(down.outputs), down.outputs.start) as oy,
        ):
            whole, remainder = divmod(len(across.outputs), pixels)
            if whole:
                with b.for_("ox", whole) as i:
                    ox = i * pixels + across.outputs.start
                    _pixels(b, layer, index, (down, across), (n, oy, ox), pixels)
            if remainder:
                last = n * 0 + (across.outputs.stop - 1)
                _pixels(b, layer, index, (down, across), (n, oy, last), 1)


def _layer(
    op: OpCall, b: Kernel, groups: Sequence[tuple[ValidTapRun, ValidTapRun]], block: int
) -> _ChannelGroupLayer:
    kernel = conv2d.weight_offsets(op)[0]
    count = kernel.shape[2]
    last = max(count - block, 0)
    starts = [min(start, last) for start in range(0, count, block)]
    params = _params(op)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    order: Sequence[int]
    if block == depthwise_microkernels_8ch.CHANNELS:
        order = depthwise_microkernels_8ch.LANE_ORDER
    else:
        order = depthwise_microkernels_16ch.LANE_ORDER
    bias = conv2d.bias_of(op, "int32").astype(np.int64)
    rows = []
    for group in groups if zero_point else groups[:1]:
        reach = _seen(kernel, group).sum(axis=(0, 1), dtype=np.int64)
        rows.append(_by_block(bias - zero_point * reach, starts, order))
    scales = []
    for values in (params.multipliers, params.shifts):
        by_channel = np.broadcast_to(np.array(values), count)
        scales.append(_by_block(by_channel, starts, order))
    dtype = INT16 if kernel.dtype == INT16.np else INT8
    return _ChannelGroupLayer(
        window_of(op, kernel.shape[:2]),
        b.constant("weights", _packed(kernel, starts, block), dtype),
        b.constant("bias", np.stack(rows), INT32),
        b.constant("scales", np.hstack(scales), INT32),
        count,
        block,
        _settings(op, min(count, block)),
    )


def _params(op: OpCall) -> Requantization:
    if op.input(0).dtype == INT8:
        return vector_requantize.layer_parameters(op)
    return int16_dot.adjust_round_once_shifts(conv2d.requantization_of(op))


def _settings(op: OpCall, lanes: int) -> list[int]:
    params = _params(op)
    if op.input(0).dtype == INT8:
        return vector_requantize.epilogue_settings(params, lanes)
    return [*int16_dot.epilogue_settings(params), lanes]


def _packed(kernel: Array, starts: Sequence[int], block: int) -> Array:
    """Pack weights as [block, tap, sixteen]; for blocks of eight, only flatten them."""
    if block == depthwise_microkernels_8ch.CHANNELS:
        return kernel.reshape(-1)
    flat = kernel.reshape(-1, kernel.shape[2])
    return np.stack([flat[:, start : start + block] for start in starts])


def _by_block(values: Array, starts: Sequence[int], order: Sequence[int]) -> Array:
    """Rearrange values as [block, lane]; lanes past the end repeat the last value."""
    at = np.array(starts)[:, None] + np.array(order)
    result: Array = values[np.minimum(at, len(values) - 1)]
    return result


def _pixels(
    b: Kernel,
    layer: _ChannelGroupLayer,
    group: int,
    spans: tuple[ValidTapRun, ValidTapRun],
    at: Position,
    pixels: int,
) -> None:
    window, count = layer.window, layer.channels
    down, across = spans[0].taps, spans[1].taps
    n, oy, ox = at
    height, width = window.input_size
    _, out_height, out_width, _ = b.y.shape
    iy = oy * window.stride[0] + (down.start * window.dilation[0] - window.padding[0])
    ix = ox * window.stride[1] + (across.start * window.dilation[1] - window.padding[2])
    source = b.let("source", ((n * height + iy) * width + ix) * count)
    target = b.let("target", ((n * out_height + oy) * out_width + ox) * count)
    with b.for_("block", layer.blocks) as block:
        channel = b.let("channel", layer.first_channel(block))
        steps = (window.dilation[0] * width * count, window.dilation[1] * count)
        pixel_step = window.stride[1] * count
        reach = (len(down) - 1) * steps[0] + (len(across) - 1) * steps[1] + layer.lanes
        reach += (pixels - 1) * pixel_step
        taps = (down, across)
        name, weights, geometry = _form(b, layer, taps, (block, channel), pixels)
        if geometry:
            geometry = [pixel_step, *geometry]
        bias = layer.bias_block(block, group) * layer.block
        outputs = []
        for p in range(pixels):
            place = target + channel + p * count
            outputs.append(b.pointer(b.y, place, layer.lanes, "w"))
        b.evaluate(
            name,
            [
                b.pointer(b.input(0), source + channel, reach),
                weights,
                b.pointer(layer.bias, bias, layer.block),
                b.pointer(layer.parameters, block * (2 * layer.block), 2 * layer.block),
                *outputs,
                *layer.settings,
                *steps,
                *geometry,
            ],
        )


def _form(
    b: Kernel,
    layer: _ChannelGroupLayer,
    taps: tuple[range, range],
    at: tuple[ArithExpr, ArithExpr],
    pixels: int,
) -> tuple[str, tir.AccessPtr, list[int]]:
    """Return the micro-kernel's name, its weights and its geometry for `taps`."""
    down, across = taps
    count, width = layer.channels, layer.window.size[1]
    block, channel = at
    first = down.start * width + across.start
    reach = (len(down) - 1) * width + len(across)
    if layer.block == depthwise_microkernels_8ch.CHANNELS:
        extent = (reach - 1) * count + layer.lanes
        weights = b.pointer(layer.weights, channel + first * count, extent)
        name = depthwise_microkernels_8ch.microkernel_name(
            pixels, len(across), b.y.dtype, layer.weights.dtype
        )
        return name, weights, [width * count, count, len(down)]
    start = block * layer.weights.shape[1] * layer.block + first * layer.block
    weights = b.pointer(layer.weights, start, reach * layer.block)
    return VisibleTaps(len(down), len(across), width).name, weights, []


SCHEDULES = vector_requantize.int8_schedules(
    helium_schedule(
        "helium.depthwise.channels",
        "depthwise_conv2d",
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    ),
)
