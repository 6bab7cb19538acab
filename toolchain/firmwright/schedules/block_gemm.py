"""GEMM whose micro-kernel requantizes: a call for each block of channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.contract import Requantizer, TileContract
from firmwright.ops.kernel import Kernel

Share: TypeAlias = Callable[[Kernel, tir.AccessPtr], ArithExpr]
"""The number that the weights' zero point adds to all sums of a column."""


class PixelRun(Protocol):
    """Adjacent pixels whose columns are `step` bytes apart."""

    @property
    def step(self) -> int: ...

    @property
    def taps(self) -> int: ...

    @property
    def pixel(self) -> ArithExpr: ...

    @property
    def count(self) -> int: ...

    def columns(self, b: Kernel, first: int, count: int) -> tir.AccessPtr:
        """Return a pointer to the columns of some pixels."""


@dataclass(frozen=True, slots=True)
class BlockGemm:
    """The products of weights with columns, requantized.

    `microkernel` returns the name of the tile's micro-kernel for a number of taps.
    `weights` and `tables` of parameters have a row for each block. The operands are the
    weights, the columns, the parameters, the outputs of each pixel, `settings`, the
    shares of the columns and `taps`. Pixels are relative to output `first`; the outputs
    are in `output`, if not in the kernel's result.
    `run_microkernel` is that of a run of pixels, without shares; its operands after the
    weights are the columns, the parameters, the outputs, `settings` and four numbers.
    """

    tile: TileContract
    microkernel: Callable[[int], str]
    channels: int
    weights: tir.Buffer
    tables: Sequence[tir.Buffer]
    settings: Sequence[ArithExpr | int]
    taps: int
    share: Share | None = None
    first: ArithExpr | None = None
    run_microkernel: Callable[[int], str] | None = None
    output: tir.Buffer | None = None

    @property
    def blocks(self) -> ChannelBlocks:
        return ChannelBlocks(self.channels, self.tile.channels)

    def with_taps(self, taps: int) -> BlockGemm:
        """Return the products with columns that are padded to `taps` values."""
        return replace(self, taps=taps)

    def emit(
        self, b: Kernel, columns: Sequence[tir.AccessPtr], pixels: Sequence[ArithExpr]
    ) -> None:
        """Compute all channels of `pixels`, whose values are in the columns."""
        assert self.tile.requantization is Requantizer.MICROKERNEL
        assert len(pixels) == self.tile.pixels
        blocks, y = self.blocks, self.output or b.y
        if self.first is not None:
            pixels = [self.first + pixel for pixel in pixels]
        shares = [self.share(b, column) for column in columns] if self.share else []
        with b.for_("block", blocks.count) as block:
            channel = b.let("channel", blocks.first(block))
            parameters = [_row(b, table, block) for table in self.tables]
            outputs = []
            for pixel in pixels:
                place = pixel * blocks.channels + channel
                outputs.append(b.pointer(y, place, blocks.stored, "w"))
            b.evaluate(
                self.microkernel(self.taps),
                [
                    _row(b, self.weights, block),
                    *columns,
                    *parameters,
                    *outputs,
                    *self.settings,
                    *shares,
                    self.taps,
                ],
            )

    def emit_run(self, b: Kernel, run: PixelRun) -> None:
        """Compute all channels of a run, by a call for each block."""
        assert self.run_microkernel is not None
        blocks = self.blocks
        first = run.pixel if self.first is None else self.first + run.pixel
        span = (run.count - 1) * blocks.channels + blocks.stored
        with b.for_("block", blocks.count) as block:
            channel = b.let("channel", blocks.first(block))
            parameters = [_row(b, table, block) for table in self.tables]
            b.evaluate(
                self.run_microkernel(run.taps),
                [
                    _row(b, self.weights, block),
                    run.columns(b, 0, run.count),
                    *parameters,
                    b.pointer(
                        self.output or b.y,
                        first * blocks.channels + channel,
                        span,
                        "rw",
                    ),
                    *self.settings,
                    run.step,
                    blocks.channels,
                    run.count,
                    run.taps,
                ],
            )


def _row(b: Kernel, table: tir.Buffer, block: ArithExpr) -> tir.AccessPtr:
    size = table.elements // table.shape[0]
    return b.pointer(table, block * size, size)
