"""Micro-kernels of dot products: a block of channels times one or two pixels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import indent
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
from firmwright.schedules.helium.pixel_runs import PixelRuns
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


_PAIR = 10
"""The instructions of a pair of a run besides those."""
_PAIR_OF_RUN = """\
const int8_t *w = weights, *x0 = x, *x1 = x + step;
{type} *y0 = y, *y1 = y + channels;"""


def _each_pair(body: str, kept: str = "") -> str:
    """Return the loop over pairs of a run, of which the last may overlap another."""
    return f"""\
for (int32_t left = count; left > 0; left -= 2) {{
    if (count % 2 != 0 && left == 1) {{ /* the last pair overlaps the one before it */
        x -= step;
        y -= channels;
    }}
{indent(body, "    ")}
    x += 2 * step;
    y += 2 * channels;{kept}
}}"""


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
        return BlockGemm(
            self.tile,
            self.name,
            channels,
            packed,
            tables,
            settings,
            size,
            run_microkernel=self.run_name if self.computes_runs else None,
        )

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
    def computes_runs(self) -> bool:
        """Whether there are micro-kernels of runs of pixels."""
        is_stored = isinstance(self.ending, VectorEnding)
        return is_stored and self.columns == PAIR and not self.has_shares

    def run_name(self, taps: int) -> str:
        """Return the name of the micro-kernel of a run, for columns of `taps` bytes."""
        return f"{self.stem}_run_{dot_product_loop.choose_loop(taps).suffix}"

    @property
    def makers(self) -> IntrinsicMakers:
        makers: dict[str, Callable[[], Intrinsic]] = {}
        for loop in DOT_PRODUCT_LOOPS:
            makers[f"{self.stem}_{loop.suffix}"] = partial(self.intrinsic, loop)
            if self.computes_runs:
                name = f"{self.stem}_run_{loop.suffix}"
                makers[name] = partial(self.run_intrinsic, loop)
        return makers

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

    def run_intrinsic(self, loop: DotProductLoop) -> Intrinsic:
        """Return the micro-kernel of the pixels of a run, two at a time."""
        assert isinstance(self.ending, VectorEnding)
        size = (loop.head + loop.tail) * self.layout.step_bytes
        run = PixelRuns(self.layout, self.ending, self.weights)
        head = _PAIR_OF_RUN.format(type=self.ending.output.c_type)
        text = f"{head}\n{self._text(loop)}"
        portable = f"{head}\n{self._portable(loop)}"
        return Intrinsic(
            f"{self.stem}_run_{loop.suffix}",
            run.operands(size, "weights"),
            run.meaning,
            _each_pair(portable),
            f"Products of {self.channels} channels with the columns of `count` pixels.",
            requires=self.ending.requires,
            text={"gnu": _each_pair(text, self._kept_pointers())},
            definitions=(KEEP_STORES,) if "KEEP_STORES" in text else (),
            count=partial(self._count_run, loop, run.names),
            calls=self.ending.calls,
        )

    def _kept_pointers(self) -> str:
        """Return C by which each pair takes pointers and offsets from registers."""
        names = ["x", "y", *(table.pointer for table in self.ending.tables)]
        operands = ", ".join(f'"+r"({name})' for name in names)
        return (
            "\n    /* Keep the pointers: offsets are free, sums with them are not. */"
            f'\n    __asm__("" : {operands});'
        )

    def _count_run(
        self, loop: DotProductLoop, names: Sequence[str], args: Sequence[int]
    ) -> int:
        given = dict(zip(names, args, strict=True))
        pair = dot_product_loop.instructions(
            loop, self.columns, given["taps"], self.weights
        )
        pair += len(self.vectors) * self.ending.instructions(given) + _PAIR
        return 12 + -(given["count"] // -2) * pair

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
