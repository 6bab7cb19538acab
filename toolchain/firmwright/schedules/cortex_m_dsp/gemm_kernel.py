"""GEMM kernel of conv2d and fully_connected on the DSP extension.

A tile of 2x4, 4x2 or 8x1 (channels x pixels) always has eight accumulators
(microkernels.py). The caller folds the input's zero point into the bias.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT32, Array
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, immediate
from firmwright.kernels.dsp.int4_gemm import STEPS_MAX as INT4_STEPS_MAX
from firmwright.kernels.dsp.weight_packing import BYTES, INT4, PAIRED, PairPacking
from firmwright.kernels.isa.lanes import wrap_sum
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization
from firmwright.schedules.cortex_m_dsp.im2col import Im2colLayout
from firmwright.schedules.cortex_m_dsp.microkernels import MAX_UNROLL, default_unroll
from firmwright.schedules.epilogue import (
    AddendSource,
    accumulator_bounds,
    by_arithmetic,
    make_epilogue,
)
from firmwright.schedules.epilogue_forms import FinishElement
from firmwright.schedules.skip_constant_channels import (
    ChannelOrder,
    ConstantChannels,
    find_constant_channels,
    order_computed_channels,
    select_channels,
)

# Weights are `PAIRED` if each pair of channels meets its obligations: no odd weight is
# -128 together with a negative even weight, so each lane fits int16, and the sum of the
# odd channel fits 24 bits. Otherwise they are plain bytes.
#
# The column of a single pixel may also be its plain bytes (`emit_from_bytes`): no
# scratch memory, and one instruction more per four taps of eight channels. Constant
# channels are stored first and not computed; `order` maps table rows to channels.

_ACCUMULATORS = 8
_UNROLL = 4
_ONES = 0x00010001


class ChannelEpilogue(Protocol):
    """Converts a channel's accumulators to elements; see `RequantizeEpilogue`."""

    def bind_shared(self, b: Kernel) -> Mapping[str, ArithExpr] | None:
        """Bind the values common to all channels."""

    def bind_channel(
        self,
        b: Kernel,
        index: ArithExpr,
        place: int = 0,
        shared: Mapping[str, ArithExpr] | None = None,
    ) -> FinishElement:
        """Bind the values of channel `index`; return a function from sum to element."""


@dataclass(frozen=True, slots=True)
class GemmKernel:
    """The constants of one layer and its tile size."""

    outputs: int
    blocks: int
    block: int
    pixels: int
    is_paired: bool
    words: int
    weights: tir.Buffer
    bias: tir.Buffer | None
    order: ChannelOrder
    constant_channels: ConstantChannels
    epilogue: ChannelEpilogue
    steps: int | None = None
    zero_point: int = 0
    is_int4: bool = False
    is_shared: bool = False

    def emit(self, b: Kernel, columns: tir.Buffer, at: ArithExpr) -> None:
        self.constant_channels.emit_stores(b, at, self.pixels)
        corrections = self._corrections(b, columns) if self.zero_point else None
        with b.for_("channel_block", self.blocks) as index:
            acc = self._multiply(b, columns, index, corrections)
            self._store(b, acc, at, index, b.y)

    def _corrections(self, b: Kernel, columns: tir.Buffer) -> tir.Buffer:
        """Return -(weight zero point) times the sum of each column, modulo 2^32."""
        sums = b.reg("column_sum", INT32, self.pixels)
        for pixel in range(self.pixels):
            b.store(sums, [pixel], 0)
        if self.is_int4:
            steps = default_unroll(self.words)
            with b.for_("j", self.words // steps) as j:
                x = b.pointer(columns, j * (steps * self.pixels), steps * self.pixels)
                shares = [b.load(sums, [pixel]) for pixel in range(self.pixels)]
                b.evaluate(f"int4_shares_{steps}", [x, *shares])
            for pixel, share in enumerate(shares):
                b.store(columns, [self.words, pixel], share.cast(UINT32))
            return sums
        ones = ArithExpr(immediate(_ONES, UINT32))
        with b.for_("j", self.words) as j:
            for pixel in range(self.pixels):
                operands = [b.load(columns, [j, pixel]), ones, b.load(sums, [pixel])]
                b.store(sums, [pixel], call_intrinsic("smlad", operands, INT32))
        for pixel in range(self.pixels):
            b.store(sums, [pixel], b.load(sums, [pixel]) * -self.zero_point)
        return sums

    def emit_from_bytes(
        self, b: Kernel, x: tir.Buffer, at: ArithExpr | int, y: tir.Buffer | None = None
    ) -> None:
        """Compute all channels of pixel `at` from int8, in tiles of one pixel."""
        self.constant_channels.emit_stores(b, at, self.pixels)
        with b.for_("channel_block", self.blocks) as index:
            acc = self._multiply(b, x, index, is_bytes=True)
            self._store(b, acc, at, index, y or b.y)

    def _multiply(
        self,
        b: Kernel,
        columns: tir.Buffer,
        index: ArithExpr,
        corrections: tir.Buffer | None = None,
        *,
        is_bytes: bool = False,
    ) -> tir.Buffer:
        """Return the sums of tile `index` with bias, acc[channel * pixels + pixel]."""
        acc = self._started(b, index, None if self.is_int4 else corrections)
        if is_bytes and self.is_paired:
            words = self.words // 2
            self._evaluate(b, acc, columns, index, _Steps("bytes_8x1", words, 8, 1))
        elif is_bytes:
            self._multiply_byte_steps(b, acc, columns, index)
        elif self.is_int4:
            self._multiply_int4(b, acc, columns, index)
        elif self._assembly:
            words = self.weights.shape[1]
            pairs = self.block // 2
            steps = _Steps(self._assembly, words, pairs, self.pixels)
            self._evaluate(b, acc, columns, index, steps)
        else:
            self._multiply_steps(b, acc, columns, index)
        if self.is_paired and not self.is_int4:
            for place in range(self.block * self.pixels):
                if (place // self.pixels) % 2:
                    sums = [b.load(acc, [place]), b.load(acc, [place - self.pixels])]
                    odd = call_intrinsic("extract_odd_sum", sums, INT32)
                    b.store(acc, [place], odd)
        return acc

    def _started(
        self, b: Kernel, index: ArithExpr, corrections: tir.Buffer | None
    ) -> tir.Buffer:
        """Return accumulators with the bias and the corrections of the columns."""
        acc = b.reg("acc", INT32, self.block * self.pixels)
        for channel in range(self.block):
            bias = self._start(b, index * self.block + channel)
            start = b.let(f"start{channel}", bias)
            for pixel in range(self.pixels):
                total = start
                if corrections is not None:
                    correction = b.load(corrections, [pixel])
                    total = self._corrected(start, correction, channel)
                b.store(acc, [channel * self.pixels + pixel], total)
        return acc

    def _corrected(
        self, start: ArithExpr, correction: ArithExpr, channel: int
    ) -> ArithExpr:
        """Add a correction modulo 2^32."""
        if self.is_paired and channel % 2:
            return PAIRED.add_to_both(start, correction)
        return wrap_sum(start, correction)

    def _start(self, b: Kernel, row: ArithExpr) -> ArithExpr:
        if self.bias is None:
            return ArithExpr(immediate(0, INT32))
        return b.load(self.bias, [row])

    @property
    def _assembly(self) -> str:
        if self.is_paired:
            return f"paired_{self.block}x{self.pixels}"
        return "mac_2x4" if (self.block, self.pixels) == (2, 4) else ""

    def _evaluate(
        self,
        b: Kernel,
        acc: tir.Buffer,
        columns: tir.Buffer,
        index: ArithExpr,
        steps: "_Steps",
    ) -> None:
        limit = MAX_UNROLL // 2 if steps.kind == "bytes_8x1" else MAX_UNROLL
        unroll = default_unroll(steps.count, min(self.steps or limit, limit))
        size = steps.count * steps.weights
        w = b.pointer(self.weights, index * size, size)
        x = b.pointer(columns, 0, steps.count * steps.pixels)
        registers = [b.load(acc, [i]) for i in range(self.block * self.pixels)]
        if unroll < steps.count or self.is_shared:
            name = f"{steps.kind}_loop_{unroll}"
            b.evaluate(name, [w, x, steps.count, *registers])
        else:
            b.evaluate(f"{steps.kind}_{unroll}", [w, x, *registers])

    def _multiply_int4(
        self, b: Kernel, acc: tir.Buffer, columns: tir.Buffer, index: ArithExpr
    ) -> None:
        words = self.weights.shape[1]
        steps = default_unroll(words, min(self.steps or INT4_STEPS_MAX, INT4_STEPS_MAX))
        size = steps * self.pixels * 2
        registers = [b.load(acc, [i]) for i in range(self.block * self.pixels)]

        def multiply(j: ArithExpr, end: int = 0) -> None:
            w = b.pointer(self.weights, index * words + j * steps, steps)
            x = b.pointer(columns, j * size, size + end * self.pixels)
            b.evaluate(f"int4_2x4_{steps}{'_end' * end}", [w, x, *registers])

        repeats = words // steps - 1
        if repeats:
            with b.for_("j", repeats) as j:
                multiply(j)
        multiply(index * 0 + repeats, end=1)

    def _multiply_byte_steps(
        self, b: Kernel, acc: tir.Buffer, x: tir.Buffer, index: ArithExpr
    ) -> None:
        pairs = self.block // 2
        start = index * (self.words * pairs)
        w = b.view("w", self.weights, start, (self.words, pairs), alignment=4)
        with b.for_("group", self.words // 2) as group:
            bytes_word = b.let("bytes", b.load(x, [group]))
            for half, name in enumerate(("sxtb16", "sxtb16_ror8")):
                taps = b.let("taps", call_intrinsic(name, [bytes_word], UINT32))
                for pair in range(pairs):
                    weights = b.load(w, [group * 2 + half, pair])
                    self._pair(b, acc, [taps], weights, pair)

    def _multiply_steps(
        self, b: Kernel, acc: tir.Buffer, columns: tir.Buffer, index: ArithExpr
    ) -> None:
        pairs = self.block // 2
        start = index * (self.words * pairs)
        w = b.view("w", self.weights, start, (self.words, pairs), alignment=4)
        with b.unrolled("j", self.words, _UNROLL, 2) as step:
            for pair in range(pairs):
                taps = [b.load(columns, [step, pixel]) for pixel in range(self.pixels)]
                self._pair(b, acc, taps, b.load(w, [step, pair]), pair)

    def _pair(
        self,
        b: Kernel,
        acc: tir.Buffer,
        taps: list[ArithExpr],
        weights: ArithExpr,
        pair: int,
    ) -> None:
        weight_pair = b.let("weight_pair", weights)
        even = b.let("even", call_intrinsic("sxtb16", [weight_pair], UINT32))
        odd = b.let("odd", call_intrinsic("sxtb16_ror8", [weight_pair], UINT32))
        for pixel, value in enumerate(taps):
            a = b.let("a", value)
            for parity, lanes in enumerate((even, odd)):
                at = (2 * pair + parity) * self.pixels + pixel
                total = call_intrinsic("smlad", [lanes, a, b.load(acc, [at])], INT32)
                b.store(acc, [at], total)

    def _store(
        self,
        b: Kernel,
        acc: tir.Buffer,
        at: ArithExpr | int,
        index: ArithExpr,
        target: tir.Buffer,
    ) -> None:
        shared = self.epilogue.bind_shared(b)
        for place in range(self.block):
            row = index * self.block + place
            channel = b.let(f"channel{place}", self.order.channel(b, row))
            finish = self.epilogue.bind_channel(b, row, place, shared)
            y = b.view(
                f"out{place}",
                target,
                at * self.outputs + channel,
                (self.pixels,),
                strides=(self.outputs,),
                access="w",
            )
            for form in by_arithmetic(b, finish):
                for pixel in range(self.pixels):
                    total = b.load(acc, [place * self.pixels + pixel])
                    b.store(y, [pixel], form(total))


@dataclass(frozen=True, slots=True)
class _Steps:
    """The `count` steps of micro-kernel `kind`, and the words that each of them reads.

    A step reads `weights` words of weights and `pixels` words of columns.
    """

    kind: str
    count: int
    weights: int
    pixels: int


def plan_gemm(
    b: Kernel,
    layout: Im2colLayout,
    kernel: Array,
    bias: Array,
    params: Requantization,
    block: int,
    pixels: int,
    zero_point: int = 0,
    *,
    is_int4: bool = False,
    is_shared: bool = False,
) -> GemmKernel:
    """Plan `kernel` [outputs, rows, columns, channels] in tiles of `block` x `pixels`.

    The weights are relative to `zero_point`, and so is the zero point's share of the
    bias. With `is_int4`, they are within four bits, and `zero_point` is 0.
    """
    offsets = kernel.astype(np.int16) - zero_point
    low, high = accumulator_bounds(bias, offsets)
    constant_channels = find_constant_channels(b, params, low, high)
    order = order_computed_channels(b, constant_channels, block)
    rows = list(order.rows)
    start = bias[rows]
    bounds = accumulator_bounds(start, offsets[rows])
    packing = INT4 if is_int4 else BYTES
    if not is_int4 and block * pixels == _ACCUMULATORS and not b.call.any_weights:
        packing = _packing(kernel[rows], *bounds)
    odd_shift = packing.odd_shift
    if odd_shift:
        start[1::2] = packing.mix_sums(start[0::2], start[1::2])
    packed = layout.of_weights(block, packing).pack(kernel[rows])
    weights = b.constant("weights", packed, UINT32)
    biases = b.constant("bias", start, INT32)
    params = select_channels(params, rows)
    addends = _addend_source(params, is_shared)
    epilogue = make_epilogue(
        b, params, bounds, INT8, len(rows), odd_shift=odd_shift, addends=addends
    )
    return GemmKernel(
        outputs=len(kernel),
        blocks=len(rows) // block,
        block=block,
        pixels=pixels,
        is_paired=odd_shift > 0,
        words=layout.words,
        weights=weights,
        bias=biases,
        order=order,
        constant_channels=constant_channels,
        epilogue=epilogue,
        zero_point=packing.even_offset or zero_point,
        is_int4=is_int4,
        is_shared=is_shared,
    )


def _addend_source(params: Requantization, is_shared: bool) -> AddendSource:
    if is_shared:
        return AddendSource.COMPUTED_WITH_SIGN
    has_sign = params.clamp_min < params.zero_point  # then computed addends cost time
    return AddendSource.TABLE if has_sign else AddendSource.COMPUTED


def fits_int4(layout: Im2colLayout, kernel: Array, bias: Array) -> bool:
    """Whether weights fit four bits, sums 28, and the number of words is even."""
    low, high = accumulator_bounds(bias, kernel)
    # An element holds any two weights of four bits, so pairs need no further check.
    is_narrow = INT4.do_weights_fit(kernel, kernel)
    return is_narrow and INT4.do_sums_fit(low, high) and layout.words % 2 == 0


def plan_gemm_without_bias(
    b: Kernel,
    layout: Im2colLayout,
    kernel: Array,
    end: Callable[[ChannelOrder, bool], ChannelEpilogue],
    block: int,
) -> GemmKernel:
    """Plan the raw sums of `kernel` in tiles of `block` channels.

    `end` builds the epilogue from the channel order and whether channels are paired.
    """
    pixels = _ACCUMULATORS // block
    constant_channels = ConstantChannels({}, len(kernel), None)
    order = order_computed_channels(b, constant_channels, block)
    packed = kernel[list(order.rows)]
    packing = BYTES
    if not b.call.any_weights:
        no_bias = np.zeros(len(packed), np.int64)
        packing = _packing(packed, *accumulator_bounds(no_bias, packed))
    is_paired = packing is PAIRED
    words = layout.of_weights(block, packing).pack(packed)
    weights = b.constant("weights", words, UINT32)
    return GemmKernel(
        outputs=len(kernel),
        blocks=len(packed) // block,
        block=block,
        pixels=pixels,
        is_paired=is_paired,
        words=layout.words,
        weights=weights,
        bias=None,
        order=order,
        constant_channels=constant_channels,
        epilogue=end(order, is_paired),
    )


def _packing(weights: Array, low: Array, high: Array) -> PairPacking:
    """Return `PAIRED` if weights and bounds of sums allow it, else `BYTES`."""
    fit = PAIRED.do_weights_fit(weights[0::2], weights[1::2])
    return PAIRED if fit and PAIRED.do_sums_fit(low[1::2], high[1::2]) else BYTES
