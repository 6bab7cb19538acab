"""conv2d on Armv6-M without columns: the products of a tap are added to the sums.

A layer whose columns do not fit the memory takes little more time than with them. A tap
outside the input multiplies a constant row of zero points, so that the zero point stays
folded into the bias.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, logical_and
from firmwright.kernels.contract import (
    BiasAdder,
    InterleavedChannels,
    SumPlace,
    TileContract,
)
from firmwright.ops.conv_window import ConvWindow, kernel_window
from firmwright.ops.kernel import Kernel, Nest, Position
from firmwright.ops.requantize import per_tensor_quant, weight_zero_point
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.computed_channels import computed_channels, integer_layer
from firmwright.schedules.epilogue import FormPreference
from firmwright.schedules.gemm import Correction, GroupOperands, Tile, plan_gemm
from firmwright.schedules.scalar.gemm_tiles import StoredOffset, stored_offset
from firmwright.schedules.scalar.thumb1_conv2d_fully_connected import (
    ROWS,
    WEIGHT_OFFSET,
    microkernel_name,
)
from firmwright.schedules.schedule_factories import thumb1_schedule

_CHANNELS_MIN = 4
"""Least channels of a tap, which loads and stores the sums."""
_UNROLL = 4


@dataclass(frozen=True, slots=True)
class _WindowTile(Tile[Position]):
    """Eight channels of one pixel, whose window begins at a position (n, y, x).

    `outside` is the row of zero points, and `image` the input.
    """

    window: ConvWindow
    image: tir.Buffer
    outside: tir.Buffer
    zero_point: int
    stored: StoredOffset

    @property
    def contract(self) -> TileContract:
        layout = InterleavedChannels(UINT8, (ROWS,), self.stored.offset)
        return TileContract(ROWS, 1, layout, BiasAdder.SCHEDULE, sums=SumPlace.MEMORY)

    @property
    def depth(self) -> int:
        return self.outside.elements

    def prepare(
        self, b: Kernel, columns: Position
    ) -> tuple[Position, Correction | None]:
        total = b.register("total", INT32, 0)

        def add(tap: ArithExpr, pixel: tir.Buffer | None) -> None:
            if pixel is None:
                total.add(self.zero_point * self.depth)
                return
            with b.unrolled("k", self.depth, _UNROLL, 2) as k:
                total.add(b.load_i32(pixel, [k]))

        self._visit(b, columns, add)
        total.set(total.value * self.stored.offset)
        return columns, self.stored.subtract([total.value])

    def multiply(
        self, b: Kernel, group: GroupOperands, columns: Position, sums: tir.Buffer
    ) -> None:
        size = self.depth * ROWS

        def add(tap: ArithExpr, pixel: tir.Buffer | None) -> None:
            w = b.pointer(group.weights, group.start + tap * size, size)
            x = b.pointer(pixel or self.outside, 0, self.depth)
            before, after = b.pointer(sums, 0, ROWS), b.pointer(sums, 0, ROWS, "w")
            name = microkernel_name(self.depth)
            b.evaluate(name, [w, x, before, after, self.depth])

        self._visit(b, columns, add)

    def _visit(
        self,
        b: Kernel,
        at: Position,
        add: Callable[[ArithExpr, tir.Buffer | None], None],
    ) -> None:
        """Emit `add` for each tap with its pixel, which is None outside the input."""
        window, (n, top, left) = self.window, at
        height, width = window.input_size
        with Nest() as enter:
            tap = enter(b.for_("tap", window.size[0] * window.size[1]))
            iy = b.let("iy", top + tap // window.size[1] * window.dilation[0])
            ix = b.let("ix", left + tap % window.size[1] * window.dilation[1])
            place = ((n * height + iy) * width + ix) * self.depth
            inside = [
                logical_and(i >= 0, i < size)
                for axis, (i, size) in enumerate(((iy, height), (ix, width)))
                if window.guarded(axis)
            ]
            if inside:
                with b.if_(logical_and(*inside) if len(inside) > 1 else inside[0]):
                    add(tap, b.view("pixel", self.image, place, (self.depth,)))
                with b.else_():
                    add(tap, None)
            else:
                add(tap, b.view("pixel", self.image, place, (self.depth,)))


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    is_int8 = op.input(0).dtype == op.input(1).dtype == INT8
    is_deep = op.input(0).shape[3] >= _CHANNELS_MIN
    is_window = not kernel_window(op).pointwise
    return (NO_CONFIG,) if is_int8 and is_deep and is_window else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    rows = computed_channels(b, integer_layer(op), lambda computed: ROWS)
    window, depth = kernel_window(op), op.input(0).shape[3]
    zero_point = per_tensor_quant(op.input(0)).zero_point
    outside = np.full(depth, zero_point, np.int8)
    tile = _WindowTile(
        window=window,
        image=b.input(0),
        outside=b.constant("outside", outside, INT8),
        zero_point=zero_point,
        stored=stored_offset(rows, WEIGHT_OFFSET + weight_zero_point(op)),
    )
    make_end = partial(rows.requantize, b, preference=FormPreference.NARROW)
    gemm = plan_gemm(b, tile, rows, rows.bias, make_end)
    batch, height, width, _ = op.output.shape
    with Nest() as enter:
        n = enter(b.for_("n", batch))
        oy = enter(b.for_("oy", height))
        ox = enter(b.for_("ox", width))
        top = b.let("top", oy * window.stride[0] - window.padding[0])
        left = b.let("left", ox * window.stride[1] - window.padding[2])
        gemm.emit(b, (n, top, left), (n * height + oy) * width + ox)


SCHEDULES = (
    thumb1_schedule(
        "thumb1.conv2d.windows",
        "conv2d",
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    ),
)
