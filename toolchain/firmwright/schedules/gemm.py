"""The matrix product of a layer: one nest of loops for the tiles of all families.

    stores of constant channels
    corrections of the columns
    for each group of channels:
        start of sums, if the schedule adds the bias
        products: the tile
        for each channel: epilogue and stores

A family brings its tiles and chooses between them. The contract of a tile says which of
these parts the micro-kernel leaves to the schedule. The input's zero point is folded
into the bias, which is exact because padding holds the zero point. Constant channels
are stored first and not computed; the last group repeats its last channel, if needed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from firmwright.base.dtypes import FLOAT32, INT32, Array, DType
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, immediate
from firmwright.kernels.contract import (
    BiasAdder,
    ChannelGroups,
    SumPlace,
    TileContract,
    divide_channels,
)
from firmwright.ops.kernel import Kernel
from firmwright.schedules.computed_channels import ComputedChannels
from firmwright.schedules.epilogue import BindChannel, BindGroup, by_arithmetic
from firmwright.schedules.epilogue_forms import FinishElement
from firmwright.schedules.skip_constant_channels import (
    ChannelOrder,
    ConstantChannels,
    no_constant_channels,
    order_all_channels,
)

ColumnsT = TypeVar("ColumnsT")

Correction: TypeAlias = Callable[[ArithExpr, int, int], ArithExpr]
"""Corrects the start of a sum, or the sum, given the channel of the group and the
pixel."""


@dataclass(frozen=True, slots=True)
class GroupOperands:
    """The operands of a group of `channels` rows of a layer's tables, from `first`.

    Its weights are `size` elements from `start`.
    """

    weights: tir.Buffer
    start: ArithExpr
    size: int
    bias: tir.Buffer | None
    first: ArithExpr
    channels: int

    def weight_pointer(self, b: Kernel) -> tir.AccessPtr:
        return b.pointer(self.weights, self.start, self.size)

    def bias_pointer(self, b: Kernel) -> tir.AccessPtr:
        assert self.bias is not None
        return b.pointer(self.bias, self.first, self.channels)

    def load_start(self, b: Kernel, place: int, dtype: DType) -> ArithExpr:
        """Return the start of the sums of a channel, zero if there is no bias."""
        if self.bias is None:
            return ArithExpr(immediate(0, dtype))
        return b.load(self.bias, [self.first + place])


class Tile(ABC, Generic[ColumnsT]):
    """Emits the products of a group of channels and a block of pixels."""

    __slots__ = ()

    @property
    @abstractmethod
    def contract(self) -> TileContract: ...

    def prepare(
        self, b: Kernel, columns: ColumnsT
    ) -> tuple[ColumnsT, Correction | None]:
        """Return the columns that all groups are multiplied by, and how sums are
        corrected, if at all.
        """
        return columns, None

    @abstractmethod
    def multiply(
        self, b: Kernel, group: GroupOperands, columns: ColumnsT, sums: tir.Buffer
    ) -> None:
        """Add the products of a group to `sums`, which are [channel, pixel]."""


def float_epilogue(
    bias: tir.Buffer, activate: Callable[[ArithExpr], ArithExpr]
) -> BindGroup:
    """Return the epilogue of float32 sums: bias, then activation, as the reference."""

    def bind(b: Kernel, index: ArithExpr, place: int) -> FinishElement:
        channel_bias = b.let("channel_bias", b.load(bias, [index]))
        return lambda total: activate(total + channel_bias)

    return lambda b: partial(bind, b)


@dataclass(frozen=True, slots=True)
class Gemm(Generic[ColumnsT]):
    """A layer's constants and its tile.

    `strides` are those of pixels and channels in the result.
    """

    tile: Tile[ColumnsT]
    weights: tir.Buffer
    bias: tir.Buffer | None
    order: ChannelOrder
    constants: ConstantChannels
    bind_group: BindGroup
    strides: tuple[int, int]

    @property
    def pixels(self) -> int:
        return self.tile.contract.pixels

    def emit(
        self,
        b: Kernel,
        columns: ColumnsT,
        at: ArithExpr | int,
        y: tir.Buffer | None = None,
    ) -> None:
        """Compute all channels of a block of pixels from `at`."""
        contract = self.tile.contract
        self.constants.emit_stores(b, at, self.pixels)
        columns, correct = self.tile.prepare(b, columns)
        in_memory: tir.Buffer | None = None
        if contract.sums is SumPlace.MEMORY:
            size = contract.channels * contract.pixels
            in_memory = b.allocate("sums", INT32, (size,))
        at_start = contract.bias is BiasAdder.SCHEDULE
        for groups in divide_channels(len(self.order.rows), contract.layout.widths):
            with b.for_("group", groups.count) as index:
                group = self._operands(groups, index)
                sums = in_memory or self._registers(b, group)
                if at_start:
                    self._start(b, group, sums, correct)
                self.tile.multiply(b, group, columns, sums)
                after = None if at_start else correct
                self._store(b, group, sums, _Stores(y or b.y, at, after))

    def _operands(self, groups: ChannelGroups, index: ArithExpr) -> GroupOperands:
        rows = len(self.order.rows)
        size = self.weights.elements * groups.channels // rows
        skipped = self.weights.elements * groups.first // rows
        return GroupOperands(
            weights=self.weights,
            start=index * size + skipped,
            size=size,
            bias=self.bias,
            first=index * groups.channels + groups.first,
            channels=groups.channels,
        )

    def _registers(self, b: Kernel, group: GroupOperands) -> tir.Buffer:
        is_float = self.tile.contract.layout.element.is_float
        dtype = FLOAT32 if is_float else INT32
        return b.reg("acc", dtype, group.channels * self.pixels)

    def _start(
        self,
        b: Kernel,
        group: GroupOperands,
        sums: tir.Buffer,
        correct: Correction | None,
    ) -> None:
        for place in range(group.channels):
            start = b.let("start", group.load_start(b, place, sums.dtype))
            for pixel in range(self.pixels):
                total = correct(start, place, pixel) if correct else start
                b.store(sums, [place * self.pixels + pixel], total)

    def _store(
        self, b: Kernel, group: GroupOperands, sums: tir.Buffer, stored: "_Stores"
    ) -> None:
        if self.tile.contract.sums is SumPlace.MEMORY:
            with b.for_("row", group.channels) as row:
                bind = self.bind_group(b)
                self._store_channel(b, group, sums, stored, row, bind)
            return
        bind = self.bind_group(b)
        for place in range(group.channels):
            self._store_channel(b, group, sums, stored, place, bind)

    def _store_channel(
        self,
        b: Kernel,
        group: GroupOperands,
        sums: tir.Buffer,
        stored: "_Stores",
        row: ArithExpr | int,
        bind: BindChannel,
    ) -> None:
        place = row if isinstance(row, int) else 0
        index = group.first + row
        channel = b.let("channel", self.order.channel(b, index))
        finish = bind(index, place)
        y = self._outputs(b, stored, channel)
        for form in by_arithmetic(b, finish):
            for pixel in range(self.pixels):
                total = b.load(sums, [row * self.pixels + pixel])
                if stored.correct is not None:
                    total = stored.correct(total, place, pixel)
                b.store(y, [pixel], form(total))

    def _outputs(self, b: Kernel, stored: "_Stores", channel: ArithExpr) -> tir.Buffer:
        """Return the outputs of a channel, of the pixels of the block."""
        of_pixel, of_channel = self.strides
        first = stored.at * of_pixel + channel * of_channel
        shape, strides = (self.pixels,), (of_pixel,)
        return b.view("out", stored.y, first, shape, strides=strides, access="w")


@dataclass(frozen=True, slots=True)
class _Stores:
    """Where the outputs of a block go, and how sums are corrected before."""

    y: tir.Buffer
    at: ArithExpr | int
    correct: Correction | None


def plan_gemm(
    b: Kernel,
    tile: Tile[ColumnsT],
    rows: ComputedChannels,
    starts: Array | None,
    make_end: Callable[[], BindGroup],
) -> Gemm[ColumnsT]:
    """Plan the product of channels; a tile reads `starts`, with which sums begin.

    `make_end` makes the epilogue; its tables follow those of weights and starts.
    """
    layout = tile.contract.layout
    return Gemm(
        tile=tile,
        weights=b.constant("weights", layout.pack(rows.weights), layout.element),
        bias=None if starts is None else b.constant("bias", starts, INT32),
        order=rows.order,
        constants=rows.constants,
        bind_group=make_end(),
        strides=(rows.order.channels, 1),
    )


def float_gemm(
    tile: Tile[ColumnsT],
    weights: tir.Buffer,
    bias: tir.Buffer,
    activate: Callable[[ArithExpr], ArithExpr],
    strides: tuple[int, int],
) -> Gemm[ColumnsT]:
    """Return the product of float32 weights, packed for the tile."""
    outputs = bias.elements
    return Gemm(
        tile=tile,
        weights=weights,
        bias=None,
        order=order_all_channels(outputs),
        constants=no_constant_channels(outputs),
        bind_group=float_epilogue(bias, activate),
        strides=strides,
    )
