"""GEMM micro-kernels of the DSP extension, as programs.

A micro-kernel executes a number of steps. A step multiplies two taps for eight
accumulators: a tile of 2x4 is two output channels times four pixels, and there are 4x2
and 8x1. It reads one word of weights per channel pair and one word of columns (a pair
of int16) per pixel. Accumulator `c[channel * pixels + pixel]` is the sum of a channel
of a pixel. A program takes all fourteen registers of the core, or one fewer
(`is_narrow`): then it loads pixels one by one.

Packings of the weights of a channel pair (a, a' of the even channel, b, b' of the odd
one):

- `WIDE`: int16, a word for each channel; 11 instructions for 16 products. `FRESH` is
  the same with accumulators that start at zero.
- `BYTES`: bytes a, b, a', b', split by SXTB16 with and without rotation; 13
  instructions for 16 products (15 as 4x2, 19 as 8x1).
- `PAIRED`: lanes 256 b + a and 256 b' + a', as int16:

      bit  31          16 15           0
          | 256 b' + a'  |  256 b + a   |    SXTB16: a', a; the raw word: b', b

  The odd accumulator then holds 256 times the odd sum plus the even sum, and
  `extract_odd_sum` subtracts the latter. 12 instructions for 16 products (15 as 8x1).
  It is exact modulo 2^32 if each lane fits int16 (no b of -128 with a negative a) and
  the odd channel's sum, bias included, fits 24 bits; the caller must prove both.

A column of one pixel may also be plain int8 (`has_byte_column`): a step widens the
word of four taps itself, k0 and k2, then k1 and k3. 31 instructions for 32 products,
or 40 of `BYTES`.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from firmwright.base.dtypes import INT32, UINT32
from firmwright.kernels.assembly import ProgramForms
from firmwright.kernels.isa.dsp import smlad, smuad, sxtb16, sxtb16_ror8
from firmwright.kernels.isa.thumb2 import ldr, ldrd
from firmwright.kernels.program import Index, PointerOperand, Program, VirtualRegister
from firmwright.kernels.program_builder import ProgramBuilder

ACCUMULATORS = 8


class Packing(enum.Enum):
    """How words hold the weights of a channel pair; see the top."""

    WIDE = "wide"
    FRESH = "fresh"
    BYTES = "mac"
    PAIRED = "paired"

    @property
    def words(self) -> int:
        """The words of a channel pair in a step."""
        return 2 if self in (Packing.WIDE, Packing.FRESH) else 1


@dataclass(frozen=True, slots=True)
class GemmTile:
    """The tile of a micro-kernel: `2 * pairs` channels times `pixels`."""

    packing: Packing
    pairs: int
    pixels: int
    has_byte_column: bool = False

    @property
    def channels(self) -> int:
        return 2 * self.pairs

    @property
    def name(self) -> str:
        kind = self.packing.value
        if self.has_byte_column:
            kind = "bytes" if self.packing is Packing.PAIRED else f"{kind}_bytes"
        return f"{kind}_{self.channels}x{self.pixels}"

    @property
    def words(self) -> int:
        """The words of weights that a step reads."""
        return self.pairs * self.packing.words * (2 if self.has_byte_column else 1)

    @property
    def column_words(self) -> int:
        """The words of columns that a step reads."""
        return self.pixels


WIDE_2X4 = GemmTile(Packing.WIDE, 1, 4)
FRESH_2X4 = GemmTile(Packing.FRESH, 1, 4)
MAC_2X4 = GemmTile(Packing.BYTES, 1, 4)
MAC_4X2 = GemmTile(Packing.BYTES, 2, 2)
MAC_8X1 = GemmTile(Packing.BYTES, 4, 1)
PAIRED_2X4 = GemmTile(Packing.PAIRED, 1, 4)
PAIRED_4X2 = GemmTile(Packing.PAIRED, 2, 2)
PAIRED_8X1 = GemmTile(Packing.PAIRED, 4, 1)
BYTES_8X1 = GemmTile(Packing.PAIRED, 4, 1, has_byte_column=True)
MAC_BYTES_8X1 = GemmTile(Packing.BYTES, 4, 1, has_byte_column=True)


@dataclass(frozen=True, slots=True)
class _Tile:
    """The operands of a program under construction."""

    k: ProgramBuilder
    tile: GemmTile
    w: PointerOperand
    x: PointerOperand
    sums: Sequence[VirtualRegister]
    is_narrow: bool
    starts: bool = False

    def add(self, at: int, weights: VirtualRegister, column: VirtualRegister) -> None:
        """Add the products of two taps to accumulator `at`, or set it to them."""
        total = self.sums[at]
        if self.starts:
            self.k(smuad, weights, column, into=total)
        else:
            self.k(smlad, weights, column, total, into=total)

    def words(self, at: Index) -> tuple[VirtualRegister, VirtualRegister]:
        """Load two words of weights."""
        if self.is_narrow:
            return self.k(ldr, self.w[at]), self.k(ldr, self.w[at + 1])
        return self.k.pair(ldrd, self.w[at])

    def columns(self, at: Index, count: int) -> tuple[VirtualRegister, ...]:
        """Load the words of one or two adjacent pixels."""
        if count == 1:
            return (self.k(ldr, self.x[at]),)
        return self.k.pair(ldrd, self.x[at])


def _two_by_four(o: _Tile, i: Index) -> None:
    """Two channels times four pixels, which are loaded in turn."""
    k, at_once = o.k, 1 if o.is_narrow else 2
    w = o.w[i * o.tile.words]
    if o.tile.packing.words == 2:
        even, odd = k.pair(ldrd, w)
        columns = o.columns(i * 4, at_once)
    else:
        both = k(ldr, w)
        columns = o.columns(i * 4, at_once)
        even, odd = k(sxtb16, both), both
        if o.tile.packing is Packing.BYTES:
            odd = k(sxtb16_ror8, both)
    for first in range(0, 4, at_once):
        if first:
            columns = o.columns(i * 4 + first, at_once)
        for pixel, column in enumerate(columns, first):
            o.add(pixel, even, column)
            o.add(pixel + 4, odd, column)


def _four_by_two(o: _Tile, i: Index) -> None:
    """Two pairs of channels times two pixels, paired.

    A product of the second word separates the extension of the first one from its use,
    and the other way around, which saves two cycles of a Cortex-M7.
    """
    k, w = o.k, o.w[i * 2]
    if o.is_narrow:
        _four_by_two_in_turn(o, i)
        return
    first, second = k.pair(ldrd, w)
    left, right = o.columns(i * 2, 2)
    o.add(2, first, left)
    o.add(3, first, right)
    even = k(sxtb16, first)
    o.add(7, second, right)
    o.add(0, even, left)
    o.add(1, even, right)
    others = k(sxtb16, second)
    o.add(6, second, left)
    o.add(4, others, left)
    o.add(5, others, right)


def _four_by_two_in_turn(o: _Tile, i: Index) -> None:
    """Two pairs of channels times two pixels that share a register."""
    k, w = o.k, o.w[i * 2]
    (column,) = o.columns(i * 2, 1)
    first, second = k.pair(ldrd, w)
    o.add(2, first, column)
    even = k(sxtb16, first)
    o.add(6, second, column)
    others = k(sxtb16, second)
    o.add(0, even, column)
    o.add(4, others, column)
    (column,) = o.columns(i * 2 + 1, 1)
    o.add(1, even, column)
    o.add(5, others, column)
    first, second = k.pair(ldrd, w)
    o.add(3, first, column)
    o.add(7, second, column)


def _eight_by_one(o: _Tile, i: Index) -> None:
    """Four pairs of channels times one pixel, paired.

    To load the words of the second half earlier would gain a cycle on Cortex-M7, and
    take a register that gcc needs for the loops around on all cores.
    """
    (column,) = o.columns(i, 1)
    _two_pairs(o, o.words(i * 4), 0, column)
    _two_pairs(o, o.words(i * 4 + 2), 2, column)


def _bytes_four_by_two(o: _Tile, i: Index) -> None:
    """Two pairs of channels times two pixels, of bytes.

    The odd weights of a pair take the register of its bytes. On a Cortex-M7, a word of
    weights before the columns saves a cycle.
    """
    columns: tuple[VirtualRegister, ...] = ()
    for pair in range(2):
        both = o.k(ldr, o.w[i * 2 + pair])
        if o.is_narrow or pair == 0:
            columns = o.columns(i * 2, 1 if o.is_narrow else 2)
        even, odd = o.k(sxtb16, both), o.k(sxtb16_ror8, both)
        for pixel in range(2):
            if o.is_narrow and pixel:
                columns += o.columns(i * 2 + 1, 1)
            o.add(4 * pair + pixel, even, columns[pixel])
            o.add(4 * pair + 2 + pixel, odd, columns[pixel])


def _bytes_eight_by_one(o: _Tile, i: Index) -> None:
    """Four pairs of channels times one pixel, of bytes."""
    (column,) = o.columns(i, 1)
    _four_pairs_of_bytes(o, i * 4, column)


def _four_pairs_of_bytes(o: _Tile, at: Index, column: VirtualRegister) -> None:
    """Multiply four pairs of channels, of bytes.

    A product separates each extension from its use, which saves six cycles of a
    Cortex-M7.
    """
    if o.is_narrow:
        for pair in range(4):
            both = o.k(ldr, o.w[at + pair])
            even, odd = o.k(sxtb16, both), o.k(sxtb16_ror8, both)
            o.add(2 * pair, even, column)
            o.add(2 * pair + 1, odd, column)
        return
    words = o.words(at)
    for pair in (0, 2):
        first, second = words
        even, odd = o.k(sxtb16, first), o.k(sxtb16_ror8, first)
        o.add(2 * pair, even, column)
        even = o.k(sxtb16, second)
        o.add(2 * pair + 1, odd, column)
        odd = o.k(sxtb16_ror8, second)
        o.add(2 * pair + 2, even, column)
        if pair == 0:
            words = o.words(at + 2)
        o.add(2 * pair + 3, odd, column)


def _byte_column(o: _Tile, i: Index) -> None:
    """Four pairs of channels times four taps of one pixel, of plain int8."""
    if o.is_narrow or o.tile.packing is Packing.BYTES:
        _byte_column_twice(o, i)
        return
    taps = o.k(ldr, o.x[i])
    words = o.words(i * 8)
    lower = o.k(sxtb16, taps)
    _two_pairs(o, words, 0, lower)
    words = o.words(i * 8 + 2)
    upper = o.k(sxtb16_ror8, taps)
    _two_pairs(o, words, 2, lower)
    words = _two_pairs(o, o.words(i * 8 + 4), 0, upper, i * 8 + 6)
    _two_pairs(o, words, 2, upper)


def _byte_column_twice(o: _Tile, i: Index) -> None:
    """As `_byte_column`, but the word of taps is loaded for each of its halves."""
    for half, widen in enumerate((sxtb16, sxtb16_ror8)):
        taps, at = o.k(ldr, o.x[i]), i * 8 + 4 * half
        if o.tile.packing is Packing.BYTES:
            _four_pairs_of_bytes(o, at, o.k(widen, taps))
            continue
        words = o.words(at)
        column = o.k(widen, taps)
        words = _two_pairs(o, words, 0, column, at + 2)
        _two_pairs(o, words, 2, column)


def _two_pairs(
    o: _Tile,
    words: tuple[VirtualRegister, VirtualRegister],
    pair: int,
    column: VirtualRegister,
    following: Index | None = None,
) -> tuple[VirtualRegister, VirtualRegister]:
    """Multiply two pairs of channels; return the words that follow, if there are any.

    No product waits for its operand. The words that follow are loaded before the last
    product if there are registers for them.
    """
    first, second = words
    o.add(2 * pair + 1, first, column)
    even = o.k(sxtb16, first)
    o.add(2 * pair + 3, second, column)
    others = o.k(sxtb16, second)
    o.add(2 * pair, even, column)
    if following and not o.is_narrow:
        words = o.words(following)
    o.add(2 * pair + 2, others, column)
    if following and o.is_narrow:
        words = o.words(following)
    return words


def _step(tile: GemmTile) -> Callable[[_Tile, Index], None]:
    if tile.has_byte_column:
        return _byte_column
    if tile in (MAC_4X2, MAC_8X1):
        return _bytes_four_by_two if tile.pixels == 2 else _bytes_eight_by_one
    return {4: _two_by_four, 2: _four_by_two, 1: _eight_by_one}[tile.pixels]


def gemm_program(
    tile: GemmTile, steps: int, *, is_narrow: bool = False, is_loop: bool = False
) -> Program:
    """Return the program of `steps` steps; the first of `FRESH` sets the sums.

    If `is_loop`, these are the steps of an iteration of a loop over the columns.
    """
    k = ProgramBuilder(f"{tile.name}_loop" if is_loop else tile.name)
    w, x = k.pointer("w", UINT32), k.pointer("x", UINT32)
    sums = k.registers("c", ACCUMULATORS, INT32)
    multiply = _step(tile)
    if is_loop:
        with k.loop("steps", steps, until=x) as i:
            multiply(_Tile(k, tile, w, x, sums, is_narrow), i)
        return k.build()
    first = tile.packing is Packing.FRESH
    if first:
        with k.repeat(1) as i:
            multiply(_Tile(k, tile, w, x, sums, is_narrow, starts=True), i)
    if steps > first:
        with k.repeat(steps - first) as i:
            multiply(_Tile(k, tile, w, x, sums, is_narrow), i + int(first))
    return k.build()


def gemm_forms(tile: GemmTile, steps: int, *, is_loop: bool = False) -> ProgramForms:
    make = partial(gemm_program, tile, steps, is_loop=is_loop)
    size = f"{tile.channels} channels x {tile.pixels} pixels"
    return ProgramForms(
        make(),
        make(is_narrow=True),
        f"Micro-kernel of {size}{', in a loop' if is_loop else ''}.",
    )
