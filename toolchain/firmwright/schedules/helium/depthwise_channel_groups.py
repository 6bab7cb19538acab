"""depthwise_conv2d on Helium: adjacent channels in lanes, directly on NHWC data."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.contract import (
    BiasAdder,
    InterleavedChannels,
    Requantizer,
    WeightLayout,
)
from firmwright.kernels.depthwise_contract import (
    DepthwiseContract,
    OutsideTaps,
    OverlappingBlocks,
    WindowInputs,
)
from firmwright.kernels.mve import depthwise, depthwise_lanes
from firmwright.kernels.mve.depthwise import VisibleTaps
from firmwright.kernels.mve.depthwise_lanes import LaneWindow
from firmwright.ops import conv2d
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    Requantization,
    has_weight_zero_point,
    per_tensor_quant,
)
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.depthwise import (
    LaneTile,
    lane_tiles,
    strips_of,
)
from firmwright.schedules.helium import (
    depthwise_microkernels,
    int16_dot,
    vector_requantize,
)
from firmwright.schedules.helium.depthwise_plane_microkernels import LANES
from firmwright.schedules.helium.int16_conv2d_fully_connected import has_int32_sums
from firmwright.schedules.schedule_factories import helium_schedule
from firmwright.schedules.window_bounds import ValidTapRun, window_axes

# Blocks are sixteen channels of one pixel or eight channels of two pixels, also of
# int16 (depthwise_microkernels.py). Outputs are
# grouped by valid taps. Each group has its own bias, with the zero point of its valid
# taps folded in, so padding is never read. Pixels are the outer loop and each output is
# written after its window was read: the kernel needs no scratch and little distance
# between input and output. It is meant for single output rows and for windows too large
# for depthwise_channel_planes.py.

_MAX_GROUPS = 5
"""Maximum output groups; each takes a bias of four bytes per channel in flash."""
_MAX_LOOPS = 25
"""Maximum output groups if one bias serves all or planes cannot compute the layer."""


def _contract(op: OpCall, channels: int) -> DepthwiseContract:
    """Return the contract of the tiles of sixteen or of eight channels."""
    is_sixteen = channels == depthwise.CHANNELS
    element = INT16 if has_weight_zero_point(op) else INT8
    return DepthwiseContract(
        channels=channels,
        outputs=1 if is_sixteen else 2,
        inputs=WindowInputs.IN_PLACE,
        outside=OutsideTaps.BIAS_OF_RUN,
        layout=OverlappingBlocks(element, channels)
        if is_sixteen
        else InterleavedChannels(element, (op.output.shape[3],)),
        bias=BiasAdder.MICROKERNEL,
        requantization=Requantizer.MICROKERNEL,
    )


@dataclass(frozen=True, slots=True)
class _ChannelGroupLayer:
    """The constants of a layer.

    `bias` is [group, block, lanes], `parameters` is [block, 2 lanes].
    """

    window: ConvWindow
    contract: DepthwiseContract
    blocks: ChannelBlocks
    weights: tir.Buffer
    bias: tir.Buffer
    parameters: tir.Buffer
    settings: list[int]

    def bias_row(self, b: Kernel, block: ArithExpr, group: int) -> tir.AccessPtr:
        """Return a block's biases; groups share them if the zero point is 0."""
        row = block
        if self.bias.shape[0] > 1:
            row = block + group * self.blocks.count
        return b.pointer(self.bias, row * self.blocks.size, self.blocks.size)

    def parameter_row(self, b: Kernel, block: ArithExpr) -> tir.AccessPtr:
        """Return the multipliers of a block, then its shifts."""
        count = self.parameters.shape[1]
        return b.pointer(self.parameters, block * count, count)


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
    groups = _groups(op)
    _, height, width, _ = op.input(1).shape
    is_small = height * width <= LANES
    has_planes = is_small and not is_wide and not has_weight_zero_point(op)
    max_groups = _MAX_GROUPS if has_planes else _MAX_LOOPS
    if not 0 < len(groups) <= max_groups or conv2d.channel_multiplier_of(op) != 1:
        return ()
    configs: list[ChannelGroup] = []
    if not is_wide and not has_weight_zero_point(op) and _fits_sixteen(op, groups):
        configs.append(ChannelGroup(depthwise.CHANNELS))
    if op.input(1).shape[2] <= depthwise_microkernels.MAX_LANE_COLUMNS:
        configs.append(ChannelGroup(depthwise_lanes.CHANNELS))
    return configs


def _groups(op: OpCall) -> list[tuple[ValidTapRun, ValidTapRun]]:
    """Return runs of (rows, columns) with equal valid taps, none without a tap."""
    rows, columns = window_axes(op)
    if not (rows.has_taps and columns.has_taps):
        return []
    return list(product(rows.runs(), columns.runs()))


def _fits_sixteen(
    op: OpCall, groups: Sequence[tuple[ValidTapRun, ValidTapRun]]
) -> bool:
    _, rows, columns, count = op.input(1).shape
    is_supported = (
        rows <= depthwise_microkernels.MAX_ROWS
        and columns <= depthwise_microkernels.MAX_COLUMNS
    )
    if not is_supported or count < depthwise.CHANNELS:
        return False
    kernel = conv2d.weights_of(op)[0]
    for group in groups:
        taps = _seen(kernel, group).reshape(-1, count)
        if not depthwise_microkernels.pair_sums_fit_int16(taps):
            return False
    return True


def _seen(kernel: Array, group: tuple[ValidTapRun, ValidTapRun]) -> Array:
    """Return the weights [row, column, channel] of the taps that a group reads."""
    down, across = group[0].taps, group[1].taps
    return kernel[down.start : down.stop, across.start : across.stop]


def _build(op: OpCall, config: ChannelGroup, b: Kernel) -> None:
    groups = _groups(op)
    layer = _layer(op, b, groups, _contract(op, config.channels))
    window, channels = layer.window, layer.blocks.channels
    row_step = window.dilation[0] * window.input_size[1] * channels
    steps = (row_step, window.dilation[1] * channels)
    for index, (down, across) in enumerate(groups):
        strips = strips_of(window, across, layer.contract.outputs)
        for tile in lane_tiles(b, op, layer.blocks, down, strips):
            name, weights, geometry = _form(b, layer, (down.taps, across.taps), tile)
            b.evaluate(
                name,
                [
                    tile.x,
                    weights,
                    layer.bias_row(b, tile.block, index),
                    layer.parameter_row(b, tile.block),
                    *tile.outputs,
                    *layer.settings,
                    *steps,
                    *geometry,
                ],
            )


def _layer(
    op: OpCall,
    b: Kernel,
    groups: Sequence[tuple[ValidTapRun, ValidTapRun]],
    contract: DepthwiseContract,
) -> _ChannelGroupLayer:
    kernel = conv2d.weight_offsets(op)[0]
    order = depthwise_microkernels.LANE_ORDERS[contract.channels]
    blocks = ChannelBlocks(kernel.shape[2], contract.channels)
    params = _params(op)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    bias = conv2d.bias_of(op, "int32").astype(np.int64)
    rows = []
    for group in groups[:1] if contract.is_bias_shared(zero_point) else groups:
        reach = _seen(kernel, group).sum(axis=(0, 1), dtype=np.int64)
        rows.append(blocks.pack(bias - zero_point * reach, order))
    scales = []
    for values in (params.multipliers, params.shifts):
        by_channel = np.broadcast_to(np.array(values), blocks.channels)
        scales.append(blocks.pack(by_channel, order))
    return _ChannelGroupLayer(
        window_of(op, kernel.shape[:2]),
        contract,
        blocks,
        _weights(b, contract.layout, kernel),
        b.constant("bias", np.stack(rows), INT32),
        b.constant("scales", np.hstack(scales), INT32),
        _settings(op, blocks.stored),
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


def _weights(b: Kernel, layout: WeightLayout, kernel: Array) -> tir.Buffer:
    packed = layout.pack(kernel.reshape(-1, kernel.shape[2]).T)
    return b.constant("weights", packed, layout.element)


def _form(
    b: Kernel, layer: _ChannelGroupLayer, taps: tuple[range, range], tile: LaneTile
) -> tuple[str, tir.AccessPtr, list[int]]:
    """Return the micro-kernel's name, its weights and its geometry for `taps`."""
    down, across = taps
    blocks, window = layer.blocks, layer.window
    count, width = blocks.channels, window.size[1]
    first = down.start * width + across.start
    reach = (len(down) - 1) * width + len(across)
    if blocks.size == depthwise.CHANNELS:
        taps_of_block = window.size[0] * width
        start = tile.block * (taps_of_block * blocks.size) + first * blocks.size
        weights = b.pointer(layer.weights, start, reach * blocks.size)
        return VisibleTaps(len(down), len(across), width).name, weights, []
    extent = (reach - 1) * count + blocks.stored
    weights = b.pointer(layer.weights, tile.channel + first * count, extent)
    lanes = LaneWindow(
        tile.strips.outputs,
        len(across),
        b.y.dtype,
        layer.weights.dtype,
        is_partial=blocks.stored < blocks.size,
    )
    name = depthwise_microkernels.lane_window_name(lanes)
    pixel_step = window.stride[1] * count
    return name, weights, [pixel_step, width * count, count, len(down)]


SCHEDULES = vector_requantize.int8_schedules(
    helium_schedule(
        "helium.depthwise.channels",
        "depthwise_conv2d",
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    ),
)
