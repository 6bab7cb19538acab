"""Micro-kernels of dot products: a block of channels times one or two pixels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    IntrinsicMakers,
    Operand,
    immediates,
    inputs,
    pointers,
)
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.contract import (
    BiasAdder,
    TileContract,
    sums_of_products,
)
from firmwright.kernels.elementwise import without_unused
from firmwright.kernels.mve.dot_products import DotProductLoop, Weights
from firmwright.kernels.mve.weight_layout import WeightRows, column_values
from firmwright.ops.kernel import Kernel
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.block_gemm import BlockGemm
from firmwright.schedules.helium import dot_product_loop
from firmwright.schedules.helium.dot_product_loop import DOT_PRODUCT_LOOPS
from firmwright.schedules.helium.vector_ending import (
    VECTOR,
    SumsInRegisters,
    SumVector,
    VectorEnding,
)

# The sums are in two vectors: those of four channels of two pixels, or of eight
# channels of one. The zero point of weights adds a share to all sums of a column.

COLUMN = ("x",)
PAIR = ("x0", "x1")
"""The columns of two pixels."""
_SUMS = 2 * VECTOR
_CALL = 8
"""Instructions besides those of loops and vectors."""


SumsEnding: TypeAlias = VectorEnding | SumsInRegisters


@dataclass(frozen=True, slots=True)
class DotProductKernel:
    """Micro-kernels of the same sums, `STEM_LOOP` for each loop over the taps.

    With `has_shares`, the last operands before `taps` are a number for each column,
    which its sums begin with.
    """

    stem: str
    columns: tuple[str, ...]
    ending: SumsEnding
    weights: Weights = Weights.INT8
    has_shares: bool = False

    @property
    def channels(self) -> int:
        return _SUMS // len(self.columns)

    @property
    def layout(self) -> WeightRows:
        return WeightRows(self.channels, self.weights)

    def blocks(self, channels: int) -> ChannelBlocks:
        return ChannelBlocks(channels, self.channels)

    @property
    def tile(self) -> TileContract:
        return TileContract(
            self.channels,
            len(self.columns),
            self.layout,
            BiasAdder.EPILOGUE,
            self.ending.requantizer,
        )

    def gemm(
        self,
        b: Kernel,
        weights: Array,
        parameters: Mapping[str, Array | tir.Buffer],
        settings: Sequence[ArithExpr | int],
    ) -> BlockGemm:
        """Return the products with weights [channel, tap], of columns of bytes.

        `parameters` has the values of each table, by the names of constants, or the
        buffer [block, channel] that has them.
        """
        channels, taps = weights.shape
        packed = b.constant(
            "weights", self.layout.pack(self.blocks(channels).rows(weights)), INT8
        )
        tables = []
        for (name, values), table in zip(
            parameters.items(), self.ending.tables, strict=True
        ):
            if isinstance(values, tir.Buffer):
                tables.append(values)
            else:
                tables.append(b.constant(name, values, table.dtype))
        size = taps * self.weights.column.size_bytes
        return BlockGemm(self.tile, self.name, channels, packed, tables, settings, size)

    @property
    def vectors(self) -> tuple[SumVector, SumVector]:
        if len(self.columns) == 1:
            return SumVector("first", "y"), SumVector("second", "y", VECTOR)
        return SumVector("first", "y0"), SumVector("second", "y1")

    @property
    def shares(self) -> tuple[str, ...]:
        """The share of each column."""
        if not self.has_shares:
            return ()
        return tuple(column.replace("x", "share") for column in self.columns)

    def name(self, taps: int) -> str:
        """Return the name of the micro-kernel for columns of `taps` bytes."""
        return f"{self.stem}_{dot_product_loop.choose_loop(taps).suffix}"

    @property
    def makers(self) -> IntrinsicMakers:
        return {
            f"{self.stem}_{loop.suffix}": partial(self.intrinsic, loop)
            for loop in DOT_PRODUCT_LOOPS
        }

    def operands(self, loop: DotProductLoop) -> tuple[Operand, ...]:
        size = (loop.head + loop.tail) * self.layout.step_bytes
        columns = dict.fromkeys(self.columns, loop.least_taps)
        return (
            *pointers(INT8, w=size, **columns),
            *self.ending.operands(self.vectors),
            *inputs(INT32, *self.shares),
            *immediates("taps"),
        )

    def intrinsic(self, loop: DotProductLoop) -> Intrinsic:
        operands = self.operands(loop)
        names = [operand.name for operand in operands]
        given = [operand.name for operand in operands if operand.kind != "out"]
        text = self._text(loop)
        pixels = "two pixels" if len(self.columns) > 1 else "a pixel"
        return Intrinsic(
            f"{self.stem}_{loop.suffix}",
            operands,
            partial(self._meaning, given),
            without_unused(operands, self._portable(loop)),
            f"Products of {self.channels} channels with {pixels}.",
            requires=self.ending.requires,
            text={"gnu": text},
            definitions=(KEEP_STORES,) if "KEEP_STORES" in text else (),
            count=partial(self._count, loop, names),
            calls=self.ending.calls,
        )

    def _text(self, loop: DotProductLoop) -> str:
        parts = [dot_product_loop.frame(loop, self.columns, self.weights)]
        for vector, share in self._shared():
            parts.append(f"{vector.name} = vaddq_n_s32({vector.name}, {share});")
        return "\n".join([*parts, self.ending.text(self.vectors)])

    def _portable(self, loop: DotProductLoop) -> str:
        parts = [dot_product_loop.portable_frame(loop, self.columns, self.weights)]
        for vector, share in self._shared():
            loop_head = f"for (int32_t c = 0; c < {VECTOR}; ++c) {{"
            parts += [loop_head, f"    {vector.name}[c] += {share};", "}"]
        return "\n".join([*parts, self.ending.portable(self.vectors)])

    def _shared(self) -> list[tuple[SumVector, str]]:
        """Return the vectors, each with the share of its column, if there are any."""
        each = len(self.vectors) // len(self.columns)
        shares = [share for share in self.shares for _ in range(each)]
        return list(zip(self.vectors, shares, strict=bool(shares)))

    def _meaning(self, names: Sequence[str], *args: Array) -> Array | tuple[Array, ...]:
        given = dict(zip(names, args, strict=True))
        taps = int(given["taps"])
        weights = self.layout.unpack_block(given["w"])
        columns = []
        for name in self.columns:
            columns.append(column_values(self.weights, np.asarray(given[name])[:taps]))
        values = np.stack(columns, axis=1)
        used = weights[:, : len(values)].swapaxes(0, 1)
        starts: list[Array | int] = [0] * len(columns)
        if self.has_shares:
            starts = [given[share] for share in self.shares]
        sums = np.stack(sums_of_products(used, values, starts * self.channels))
        by_pixel = sums.reshape(self.channels, len(columns), *sums.shape[1:])
        vectors = by_pixel.swapaxes(0, 1).reshape(
            len(self.vectors), VECTOR, *sums.shape[1:]
        )
        return self.ending.results(self.vectors, list(vectors), given)

    def _count(
        self, loop: DotProductLoop, names: Sequence[str], args: Sequence[int]
    ) -> int:
        given = dict(zip(names, args, strict=True))
        products = dot_product_loop.instructions(
            loop, self.columns, given["taps"], self.weights
        )
        ending = len(self.vectors) * (self.ending.instructions(given) + self.has_shares)
        return products + ending + _CALL
