"""depthwise_conv2d on Helium: one channel at a time, on its padded copy (plane)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8, UINT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.conv2d import channel_multiplier_of, weights_of
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.epilogue import fold_zero_point_into_bias
from firmwright.schedules.helium import im2col as vector_copy
from firmwright.schedules.helium import vector_requantize
from firmwright.schedules.helium.depthwise_plane_microkernels import (
    COPY_PLANE,
    GROUP_COUNTS,
    LANES,
    plane_copy_instructions,
    window_instructions,
)
from firmwright.schedules.helium.vector_requantize import LaneRounding
from firmwright.schedules.schedule_factories import helium_schedule

# The margins of a plane hold the zero point, so every window is inside and the zero
# point is folded into the bias. Each filter of the channel then runs over the plane.
# The inner axis and the outputs that share a gather are chosen by predicted
# instructions. A gather reaches sixteen values at most 255 bytes apart, which limits
# the window size.

_REACH = 255
_OFFSETS_16 = 65535
_OUTPUTS = 4


@dataclass(frozen=True, slots=True)
class _PlaneAxis:
    outputs: int
    taps: int
    stride: int
    dilation: int
    before: int
    """Positions of the plane in front of the input."""
    inside: int
    """Positions of the plane in the input."""
    start: int
    """The first input position in the plane."""
    x_step: int
    y_step: int
    tap_step: int

    @property
    def length(self) -> int:
        return (self.outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    def window(self, outputs: int) -> list[int]:
        """Return the positions that the windows of adjacent outputs read, in order."""
        positions = set()
        for output in range(outputs):
            for tap in range(self.taps):
                positions.add(output * self.stride + tap * self.dilation)
        return sorted(positions)

    def tap(self, output: int, position: int) -> int | None:
        """Return the weight offset of the tap of `output` at `position`, or None."""
        k, rest = divmod(position - output * self.stride, self.dilation)
        return k * self.tap_step if rest == 0 and 0 <= k < self.taps else None


@dataclass(frozen=True, slots=True)
class _GatherLayout:
    """How gathers cover a channel plane.

    Each gather yields `shape` (rows, columns) outputs; a block has `groups` gathers
    along one axis. Two gathers along the inner axis, of 1 x 2 outputs of 3 x 3 taps at
    stride 1, read 3 x 4 values each:

        0 0 0 0 . .      . . 1 1 1 1
        0 0 0 0 . .      . . 1 1 1 1
        0 0 0 0 . .      . . 1 1 1 1
    """

    outer: _PlaneAxis
    inner: _PlaneAxis
    shape: tuple[int, int]
    groups: int
    along_inner: bool

    @property
    def block(self) -> tuple[int, int]:
        rows, columns = self.shape
        if self.along_inner:
            return rows, columns * self.groups
        return rows * self.groups, columns

    @property
    def lanes(self) -> int:
        return self.block[0] * self.block[1]

    @property
    def group(self) -> int:
        if self.along_inner:
            return self.shape[1] * self.inner.stride
        return self.shape[0] * self.outer.stride * self.inner.length

    def positions(self) -> list[tuple[int, int]]:
        """Return the (row, column) of each value that a gather reads."""
        rows, columns = self.shape
        down = self.outer.window(rows)
        right = self.inner.window(columns)
        return [(row, column) for row in down for column in right]

    def fits(self) -> bool:
        spots = self.positions()
        reach = max(row * self.inner.length + column for row, column in spots)
        rows, columns = self.block
        inside = rows <= self.outer.outputs and columns <= self.inner.outputs
        return inside and len(spots) <= LANES and reach <= _REACH

    def instructions(self, rounding: LaneRounding) -> int:
        spread = (self.outer.outputs, self.inner.outputs, *self.block)
        copied = plane_copy_instructions(self.outer.inside, self.inner.inside)
        return copied + window_instructions(self.groups, rounding, self.lanes, *spread)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    applies = vector_requantize.supports_int8_layer(op) and _layout(op) is not None
    return (NO_CONFIG,) if applies else ()


def _layout(op: OpCall) -> _GatherLayout | None:
    window = window_of(op, op.input(1).shape[1:3])
    vertical = _axis(op, window, 0)
    horizontal = _axis(op, window, 1)
    rounding = vector_requantize.rounding_mode(vector_requantize.layer_parameters(op))
    layouts: list[_GatherLayout] = []
    for outer, inner in ((vertical, horizontal), (horizontal, vertical)):
        # `mve_copy_plane` gathers eight elements by offsets of 16 bits.
        if 7 * inner.x_step <= _OFFSETS_16:
            layouts += filter(_GatherLayout.fits, _layouts(outer, inner))
    return min(layouts, key=lambda layout: layout.instructions(rounding), default=None)


def _layouts(outer: _PlaneAxis, inner: _PlaneAxis) -> Iterator[_GatherLayout]:
    for groups in GROUP_COUNTS:
        each = _OUTPUTS // groups
        for rows in range(1, each + 1):
            for columns in range(1, each // rows + 1):
                if groups == 1:
                    yield _GatherLayout(outer, inner, (rows, columns), 1, True)
                elif rows * columns == each:
                    yield _GatherLayout(outer, inner, (rows, columns), groups, True)
                    yield _GatherLayout(outer, inner, (rows, columns), groups, False)


def _axis(op: OpCall, window: ConvWindow, axis: int) -> _PlaneAxis:
    x, y = op.input(0).shape, op.output.shape
    outputs = y[1 + axis]
    taps = window.size[axis]
    stride = window.stride[axis]
    dilation = window.dilation[axis]
    begin = -window.padding[2 * axis]
    end = begin + (outputs - 1) * stride + (taps - 1) * dilation + 1
    start = max(begin, 0)
    stop = min(end, window.input_size[axis])
    across = (x[2], y[2], window.size[1]) if axis == 0 else (1, 1, 1)
    return _PlaneAxis(
        outputs=outputs,
        taps=taps,
        stride=stride,
        dilation=dilation,
        before=start - begin,
        inside=max(stop - start, 0),
        start=start,
        x_step=across[0] * x[3],
        y_step=across[1] * y[3],
        tap_step=across[2],
    )


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    layout = _layout(op)
    assert layout is not None
    outer, inner = layout.outer, layout.inner
    batch, height, width, channels = op.input(0).shape
    filters = op.output.shape[3]
    multiplier = channel_multiplier_of(op)
    flat = weights_of(op).reshape(-1, filters).T
    weights = b.constant("weights", np.pad(flat, ((0, 0), (0, 1))), INT8)
    table = b.constant("lanes", _lane_table(layout, flat.shape[1]), UINT8)
    places = b.constant("places", _places(layout), UINT32)
    params = vector_requantize.layer_parameters(op)
    parameters = b.constant("parameters", _parameters(op, params, flat), INT32)
    size = outer.length * inner.length
    plane = b.allocate("plane", INT8, (size,))
    if (outer.inside, inner.inside) != (outer.length, inner.length):
        zero_point = per_tensor_quant(op.input(0)).zero_point
        vector_copy.fill_bytes(b, plane, 0, zero_point, size)
    with b.for_("n", batch) as n, b.for_("c", channels) as c:
        start = outer.start * outer.x_step + inner.start * inner.x_step
        source = n * (height * width * channels) + start + c
        if outer.inside and inner.inside:
            _copy_plane(b, layout, plane, source)
        with b.for_("m", multiplier) as m:
            index = b.let("filter", c * multiplier + m)
            image = op.output.elements // batch
            y_start = n * image + index
            y_last = (outer.outputs - 1) * outer.y_step
            y_last += (inner.outputs - 1) * inner.y_step
            b.evaluate(
                f"mve_depthwise_plane_{layout.groups}",
                [
                    b.pointer(plane, 0, size),
                    b.pointer(weights, index * weights.shape[1], weights.shape[1]),
                    b.pointer(table, 0, table.elements),
                    b.pointer(places, 0, _OUTPUTS),
                    b.pointer(parameters, index * 3, 3),
                    b.pointer(b.y, y_start, y_last + 1, "rw", op.output.shape[3]),
                    *vector_requantize.epilogue_settings(params, layout.lanes),
                    *_geometry(layout),
                ],
            )


def _copy_plane(
    b: Kernel, layout: _GatherLayout, plane: tir.Buffer, source: ArithExpr
) -> None:
    outer, inner = layout.outer, layout.inner
    margin = outer.before * inner.length + inner.before
    extent = (outer.inside - 1) * inner.length + inner.inside
    reach = (outer.inside - 1) * outer.x_step + (inner.inside - 1) * inner.x_step + 1
    b.evaluate(
        COPY_PLANE.name,
        [
            b.pointer(plane, margin, extent, "rw"),
            b.pointer(b.input(0), source, reach, stride=b.input(0).shape[3]),
            outer.inside,
            inner.inside,
            outer.x_step,
            inner.x_step,
            inner.length,
        ],
    )


def _geometry(layout: _GatherLayout) -> list[int]:
    """Return the immediate operands that place outputs and windows."""
    outer, inner = layout.outer, layout.inner
    steps = (outer.stride * inner.length, inner.stride, outer.y_step, inner.y_step)
    group = [layout.group] if layout.groups > 1 else []
    return [outer.outputs, inner.outputs, *layout.block, *steps, *group]


def _lane_table(layout: _GatherLayout, taps: int) -> Array:
    """Return the plane offsets of a gather, then the weight offsets of each output."""
    spots = layout.positions()
    rows, columns = layout.shape
    table = np.full((1 + _OUTPUTS // layout.groups, LANES), taps, np.int64)
    table[0] = 0
    for lane, (row, column) in enumerate(spots):
        table[0, lane] = row * layout.inner.length + column
    for o in range(rows * columns):
        for lane, (row, column) in enumerate(spots):
            down = layout.outer.tap(o // columns, row)
            right = layout.inner.tap(o % columns, column)
            if down is not None and right is not None:
                table[1 + o, lane] = down + right
    return table


def _places(layout: _GatherLayout) -> Array:
    """Return the element offsets of a block's outputs from the first one."""
    rows, columns = layout.shape
    down, right = layout.outer.y_step, layout.inner.y_step
    group = columns * right if layout.along_inner else rows * down
    spots = []
    for g in range(layout.groups):
        for row in range(rows):
            for column in range(columns):
                spots.append(g * group + row * down + column * right)
    return np.array((spots + [0] * _OUTPUTS)[:_OUTPUTS])


def _parameters(op: OpCall, params: Requantization, flat: Array) -> Array:
    """Return [filter, 3]: bias with the zero point folded in, multiplier, shift."""
    bias = fold_zero_point_into_bias(op, flat)
    columns = (bias, np.array(params.multipliers), np.array(params.shifts))
    return np.stack([np.broadcast_to(column, len(bias)) for column in columns], axis=1)


SCHEDULES = vector_requantize.int8_schedules(
    helium_schedule(
        "helium.depthwise.plane", "depthwise_conv2d", configs=_configs, build=_build
    )
)
