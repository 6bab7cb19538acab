"""Tiles of the GEMM (gemm.py) on the DSP extension, and the plans of their layers.

A tile of 2x4, 4x2 or 8x1 (channels x pixels) always has eight accumulators
(microkernels.py).

Weights are `PAIRED` if each pair of channels meets its obligations: no odd weight is
-128 together with a negative even weight, so each lane fits int16, and the sum of the
odd channel fits 24 bits. Otherwise they are plain bytes.

The column of a single pixel may also be its plain bytes (`ByteColumnTile`): no scratch
memory, and one instruction more per four taps of eight channels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from firmwright.base.dtypes import INT32, UINT32, Array
from firmwright.ir import tir
from firmwright.ir.tir.builder import INDEX, ArithExpr, call_intrinsic, immediate
from firmwright.kernels.contract import TileContract
from firmwright.kernels.dsp.int4_gemm import STEPS_MAX as INT4_STEPS_MAX
from firmwright.kernels.dsp.weight_packing import (
    BYTES,
    INT4,
    PAIRED,
    PairedChannels,
    PairPacking,
)
from firmwright.kernels.isa.lanes import wrap_sum
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization
from firmwright.schedules.computed_channels import (
    ComputedChannels,
    IntegerLayer,
    computed_channels,
    raw_layer,
)
from firmwright.schedules.cortex_m_dsp.im2col import Im2colLayout
from firmwright.schedules.cortex_m_dsp.microkernels import (
    MAX_UNROLL,
    default_unroll,
    repeated_steps,
)
from firmwright.schedules.epilogue import AddendSource, BindGroup
from firmwright.schedules.gemm import (
    Correction,
    Gemm,
    GroupOperands,
    Tile,
    plan_gemm,
)

_ACCUMULATORS = 8
_UNROLL = 4
_ONES = 0x00010001


@dataclass(frozen=True, slots=True)
class PairTile(Tile[tir.Buffer]):
    """A tile of columns [word, pixel] of int16 pairs.

    `steps` are those of a micro-kernel call, by default the most that the layer
    permits. If `is_shared`, their number is an operand.
    """

    layout: PairedChannels
    pixels: int
    steps: int | None = None
    is_shared: bool = False

    @property
    def contract(self) -> TileContract:
        return TileContract(self.layout.channels, self.pixels, self.layout)

    def prepare(
        self, b: Kernel, columns: tir.Buffer
    ) -> tuple[tir.Buffer, Correction | None]:
        if not self.layout.offset:
            return columns, None
        # -(weight zero point) times the sum of each column, modulo 2^32
        sums = b.reg("column_sum", INT32, self.pixels)
        for pixel in range(self.pixels):
            b.store(sums, [pixel], 0)
        ones = ArithExpr(immediate(_ONES, UINT32))
        with b.for_("j", self.layout.steps) as j:
            for pixel in range(self.pixels):
                operands = [b.load(columns, [j, pixel]), ones, b.load(sums, [pixel])]
                b.store(sums, [pixel], call_intrinsic("smlad", operands, INT32))
        for pixel in range(self.pixels):
            b.store(sums, [pixel], b.load(sums, [pixel]) * -self.layout.offset)

        def correct(start: ArithExpr, place: int, pixel: int) -> ArithExpr:
            term = b.load(sums, [pixel])
            if self.layout.packing is PAIRED and place % 2:
                return PAIRED.add_to_both(start, term)
            return wrap_sum(start, term)

        return columns, correct

    def multiply(
        self, b: Kernel, group: GroupOperands, columns: tir.Buffer, sums: tir.Buffer
    ) -> None:
        count = self.layout.steps
        size = f"{self.layout.channels}x{self.pixels}"
        if self.layout.packing is PAIRED:
            self._evaluate(b, f"paired_{size}", group, columns, sums)
            _separate(b, sums, self.pixels)
        elif sums.elements == _ACCUMULATORS:
            self._evaluate(b, f"mac_{size}", group, columns, sums)
        else:
            w = _words(b, group, count)
            pairs = range(self.layout.channels // 2)
            with b.unrolled("j", count, _UNROLL, 2) as j:
                for pair in pairs:
                    taps = [b.load(columns, [j, p]) for p in range(self.pixels)]
                    _add_pair(b, sums, taps, b.load(w, [j, pair]), pair)

    def _evaluate(
        self,
        b: Kernel,
        kind: str,
        group: GroupOperands,
        columns: tir.Buffer,
        sums: tir.Buffer,
    ) -> None:
        limit = min(self.steps or MAX_UNROLL, MAX_UNROLL)
        call = _ProductCall(b, kind, group, columns, self.pixels, sums)
        call.emit(self.layout.steps, limit, is_loop=self.is_shared)


@dataclass(frozen=True, slots=True)
class ByteColumnTile(Tile[tir.Buffer]):
    """A tile of one pixel, whose column is its plain bytes, in words."""

    layout: PairedChannels
    steps: int | None = None

    @property
    def contract(self) -> TileContract:
        return TileContract(self.layout.channels, 1, self.layout)

    def multiply(
        self, b: Kernel, group: GroupOperands, columns: tir.Buffer, sums: tir.Buffer
    ) -> None:
        count = self.layout.steps // 2
        if sums.elements == _ACCUMULATORS:
            is_paired = self.layout.packing is PAIRED
            kind = "bytes_8x1" if is_paired else "mac_bytes_8x1"
            limit = min(self.steps or MAX_UNROLL, MAX_UNROLL // 2)
            _ProductCall(b, kind, group, columns, 1, sums).emit(count, limit)
            if is_paired:
                _separate(b, sums, 1)
            return
        w = _words(b, group, self.layout.steps)
        with b.for_("i", count) as i:
            bytes_word = b.let("bytes", b.load(columns, [i]))
            for half, name in enumerate(("sxtb16", "sxtb16_ror8")):
                taps = b.let("taps", call_intrinsic(name, [bytes_word], UINT32))
                for pair in range(self.layout.channels // 2):
                    _add_pair(b, sums, [taps], b.load(w, [i * 2 + half, pair]), pair)


@dataclass(frozen=True, slots=True)
class Int4Tile(Tile[tir.Buffer]):
    """A tile of two channels and four pixels, with two weights of four bits in a byte.

    Columns have another word, for the share of the offset of weights.
    """

    layout: PairedChannels
    steps: int | None = None

    @property
    def contract(self) -> TileContract:
        return TileContract(self.layout.channels, 4, self.layout)

    def prepare(
        self, b: Kernel, columns: tir.Buffer
    ) -> tuple[tir.Buffer, Correction | None]:
        words, pixels = columns.shape[0] - 1, columns.shape[1]
        sums = b.reg("column_sum", INT32, pixels)
        for pixel in range(pixels):
            b.store(sums, [pixel], 0)
        steps = default_unroll(words)
        shares = [b.load(sums, [pixel]) for pixel in range(pixels)]
        with b.for_("j", words // steps) as j:
            x = b.pointer(columns, j * (steps * pixels), steps * pixels)
            b.evaluate(f"int4_shares_{steps}", [x, *shares])
        for pixel, share in enumerate(shares):
            b.store(columns, [words, pixel], share.cast(UINT32))
        return columns, None

    def multiply(
        self, b: Kernel, group: GroupOperands, columns: tir.Buffer, sums: tir.Buffer
    ) -> None:
        pixels = columns.shape[1]
        count = self.layout.steps
        steps = _unroll(count, self.steps, INT4_STEPS_MAX)
        size = steps * pixels * 2
        registers = _loads(b, sums)

        def evaluate(j: ArithExpr, end: int = 0) -> None:
            w = b.pointer(group.weights, group.start + j * steps, steps)
            x = b.pointer(columns, j * size, size + end * pixels)
            b.evaluate(f"int4_2x4_{steps}{'_end' * end}", [w, x, *registers])

        repeats = count // steps - 1
        if repeats:
            with b.for_("j", repeats) as j:
                evaluate(j)
        evaluate(ArithExpr(immediate(repeats, INDEX)), end=1)


def _unroll(count: int, steps: int | None, most: int) -> int:
    return default_unroll(count, min(steps or most, most))


def _loads(b: Kernel, sums: tir.Buffer) -> list[ArithExpr]:
    return [b.load(sums, [place]) for place in range(sums.elements)]


def _words(b: Kernel, group: GroupOperands, count: int) -> tir.Buffer:
    shape = count, group.channels // 2
    return b.view("w", group.weights, group.start, shape, alignment=4)


@dataclass(frozen=True, slots=True)
class _ProductCall:
    """The operands of the micro-kernels `kind`; a step reads `pixels` column words."""

    b: Kernel
    kind: str
    group: GroupOperands
    columns: tir.Buffer
    pixels: int
    sums: tir.Buffer

    def emit(self, count: int, limit: int, *, is_loop: bool = False) -> None:
        """Call them for `count` steps, at most `limit` at a time."""
        split = repeated_steps(count, limit)
        words = self.group.size // count
        looped = count - split.rest
        sums = _loads(self.b, self.sums)
        x = self.b.pointer(self.columns, 0, looped * self.pixels)
        w = self.b.pointer(self.group.weights, self.group.start, looped * words)
        if split.steps < looped or is_loop:
            name = f"{self.kind}_loop_{split.steps}"
            self.b.evaluate(name, [w, x, looped, *sums])
        else:
            self.b.evaluate(f"{self.kind}_{split.steps}", [w, x, *sums])
        if split.rest:
            first, size = looped * self.pixels, split.rest * self.pixels
            x = self.b.pointer(self.columns, first, size)
            start, size = self.group.start + looped * words, split.rest * words
            w = self.b.pointer(self.group.weights, start, size)
            self.b.evaluate(f"{self.kind}_{split.rest}", [w, x, *sums])


def _separate(b: Kernel, sums: tir.Buffer, pixels: int) -> None:
    """Subtract the sums of even channels from those of odd ones."""
    for place in range(sums.elements):
        if (place // pixels) % 2:
            both = [b.load(sums, [place]), b.load(sums, [place - pixels])]
            b.store(sums, [place], call_intrinsic("extract_odd_sum", both, INT32))


def _add_pair(
    b: Kernel,
    sums: tir.Buffer,
    taps: list[ArithExpr],
    weights: ArithExpr,
    pair: int,
) -> None:
    """Add the products of a word of bytes of a pair of channels and of two taps."""
    weight_pair = b.let("weight_pair", weights)
    even = b.let("even", call_intrinsic("sxtb16", [weight_pair], UINT32))
    odd = b.let("odd", call_intrinsic("sxtb16_ror8", [weight_pair], UINT32))
    for pixel, value in enumerate(taps):
        a = b.let("a", value)
        for parity, lanes in enumerate((even, odd)):
            at = (2 * pair + parity) * len(taps) + pixel
            total = call_intrinsic("smlad", [lanes, a, b.load(sums, [at])], INT32)
            b.store(sums, [at], total)


# ---- plans ---------------------------------------------------------------------------

TileMaker = Callable[[PairedChannels], Tile[tir.Buffer]]


def plan_dsp_gemm(
    b: Kernel,
    columns: Im2colLayout,
    layer: IntegerLayer,
    channels: int,
    make_tile: TileMaker,
    zero_point: int = 0,
    *,
    is_int4: bool = False,
    is_shared: bool = False,
) -> Gemm[tir.Buffer]:
    """Plan a layer in groups of `channels`, for a tile of the packing that fits.

    Weights are stored with their zero point. With `is_int4`, they are within four bits.
    """
    rows = computed_channels(b, layer, lambda computed: channels)
    paired = make_tile(columns.of_weights(channels, PAIRED, zero_point))
    packing = INT4 if is_int4 else _packing(b, paired.contract, rows)
    starts = _mixed_starts(packing, rows)
    addends = _addend_source(rows.params, is_shared)
    return plan_gemm(
        b,
        make_tile(columns.of_weights(channels, packing, zero_point)),
        rows,
        starts,
        partial(rows.requantize, b, odd_shift=packing.odd_shift, addends=addends),
    )


def plan_dsp_sums(
    b: Kernel,
    columns: Im2colLayout,
    weights: Array,
    channels: int,
    make_tile: TileMaker,
    make_end: Callable[[ComputedChannels, bool], BindGroup],
    bias: Array | None = None,
) -> Gemm[tir.Buffer]:
    """Plan the raw sums of `weights` in groups of `channels`.

    They begin at 0 or `bias`. `make_end` makes the epilogue of the rows, given whether
    channels are paired.
    """
    rows = computed_channels(b, raw_layer(weights, bias), lambda computed: channels)
    paired = make_tile(columns.of_weights(channels, PAIRED))
    packing = _packing(b, paired.contract, rows)
    tile = make_tile(columns.of_weights(channels, packing))
    starts = None if bias is None else _mixed_starts(packing, rows)
    return plan_gemm(b, tile, rows, starts, lambda: make_end(rows, packing is PAIRED))


def _mixed_starts(packing: PairPacking, rows: ComputedChannels) -> Array:
    """Return the first values of sums; those of odd channels are mixed if paired."""
    starts = rows.bias.copy()
    if packing.odd_shift:
        starts[1::2] = packing.mix_sums(starts[0::2], starts[1::2])
    return starts


def _packing(b: Kernel, paired: TileContract, rows: ComputedChannels) -> PairPacking:
    """Return `PAIRED` if there is such a tile and its obligations are met."""
    if b.call.any_weights or paired.channels * paired.pixels != _ACCUMULATORS:
        return BYTES
    fit = paired.layout.do_weights_fit(rows.weights)
    return PAIRED if fit and paired.layout.do_sums_fit(*rows.bounds) else BYTES


def _addend_source(params: Requantization, is_shared: bool) -> AddendSource:
    if is_shared:
        return AddendSource.COMPUTED_WITH_SIGN
    has_sign = params.clamp_min < params.zero_point  # then computed addends cost time
    return AddendSource.TABLE if has_sign else AddendSource.COMPUTED


def fits_int4(columns: Im2colLayout, layer: IntegerLayer) -> bool:
    """Whether weights fit four bits, sums 28, and the number of words is even."""
    # An element holds any two weights of four bits, so pairs need no further check.
    is_narrow = INT4.do_weights_fit(layer.weights, layer.weights)
    bounds = layer.bounds
    return is_narrow and INT4.do_sums_fit(*bounds) and columns.words % 2 == 0
