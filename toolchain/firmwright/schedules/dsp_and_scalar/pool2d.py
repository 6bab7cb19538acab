"""average_pool2d, and max_pool2d on the DSP extension: four channels per word."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from firmwright.base.dtypes import INT8, INT32, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import AveragePoolAttrs, PoolAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, binary_expr, call_intrinsic
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.ops.conv_window import OutputPosition
from firmwright.ops.kernel import Kernel
from firmwright.ops.pooling import narrow_to_output, pool_window, stored_mean
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.pool_windows import is_inside, pooled_pixels
from firmwright.schedules.pooling import activation_limits

# SXTAB16 adds two bytes of a word to two int16 sums, which cannot overflow for windows
# of up to 255 elements. SSUB8 and SEL select the greater of four pairs of bytes.
# Averaged windows must be inside the input. If channels are no multiple of four, the
# last group overlaps the one before it.
#
# Other cores add 128 to each byte. One sum has channels 0 and 2 as halves, the other
# one all but channel 0. Windows are of a power of two, so that both means of a pair are
# rounded in one word: half away from zero is half up, less 1 for sums below that of
# zeros.

_LANES = 4
_MAX_SUMMED = 255
_MAX_UNROLLED = 8
_ONES, _SIGNS = 0x10001, 0x80808080
_POWERS = [1 << shift for shift in range(1, 8)]


def _average_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    is_summed = is_inside(op) and math.prod(pool_window(op).size) <= _MAX_SUMMED
    return _configs(op) if is_summed else ()


def _power_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    is_power = math.prod(op.attributes(PoolAttrs).size) in _POWERS
    fits = is_power and _has_whole_words(op) and _max_configs(op)
    return _average_configs(op) if fits else ()


def _max_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if op.input(0).dtype != INT8:
        return ()
    return _configs(op) if activation_limits(op) == (INT8.min, INT8.max) else ()


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    overlaps = is_inside(op) and op.output.shape[3] > _LANES
    fits = op.input(0).dtype == INT8 and (overlaps or _has_whole_words(op))
    return (NO_CONFIG,) if fits else ()


def _has_whole_words(op: OpCall) -> bool:
    return op.output.shape[3] % _LANES == 0


def _build_average(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    size = pool_window(op).size

    def add(sums: tir.Buffer, word: ArithExpr) -> None:
        for half, name in enumerate(("sxtab16", "sxtab16_ror8")):
            operands = [b.load(sums, [half]), word]
            b.store(sums, [half], call_intrinsic(name, operands, UINT32))

    with _groups(op, b) as group:
        sums = b.reg("sums", UINT32, 2)
        for half in (0, 1):
            b.store(sums, [half], 0)
        _each_word(op, b, group.start, lambda word: add(sums, word))
        y = b.view("out", b.y, group.target, (_LANES,), access="w")
        for half in (0, 1):
            for place, shift in ((half, 16), (half + 2, 0)):
                upper = b.load(sums, [half]) << shift  # its upper half is the sum
                value = b.let("total", upper.cast(INT32) >> 16)
                mean = stored_mean(op, value, size[0] * size[1])
                b.store(y, [place], narrow_to_output(op, mean))


def _build_average_of_power(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    attrs = op.attributes(AveragePoolAttrs)
    count = math.prod(attrs.size)
    is_unsigned = attrs.unsigned
    with _groups(op, b) as group:
        even = b.register("even", UINT32, 0)
        rest = b.register("rest", UINT32, 0)

        def add(word: ArithExpr) -> None:
            raised = b.let("raised", binary_expr("xor", word, _SIGNS))
            even.add(raised & 0xFF00FF)
            rest.add(raised >> 8)

        def means(sums: ArithExpr) -> ArithExpr:
            half: ArithExpr | int = count // 2 * _ONES
            if not is_unsigned:
                # 1 in each half whose sum is at least that of zeros, which are 128.
                above = (sums + (0x8000 + INT8.min * count) * _ONES) >> 15 & _ONES
                half = above + (count // 2 - 1) * _ONES
            return b.let("means", sums + half >> count.bit_length() - 1 & 0xFF00FF)

        _each_word(op, b, group.start, add)
        # `rest` also has 256 times the sum of channel 2, which may exceed its half.
        odd = b.let("odd", rest.value - (even.value >> 16 << 8))
        y = b.view(
            "out", b.y, group.target, (1,), dtype=UINT32, access="w", alignment=4
        )
        raised_means = means(even.value) + (means(odd) << 8)
        b.store(y, [0], binary_expr("xor", raised_means, _SIGNS))


def _build_max(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    window = pool_window(op)
    with _groups(op, b) as group:
        maximum = b.register("maximum", UINT32, 0x80808080)

        def take(word: ArithExpr) -> None:
            maximum.set(call_intrinsic("smax8", [maximum.value, word], UINT32))

        if not is_inside(op):
            shape = (*op.input(0).shape[:3], op.input(0).shape[3] // _LANES)
            words = b.view("words", b.input(0), 0, shape, dtype=UINT32, alignment=4)
            with window.taps(b, group.at) as (_, _, iy, ix):
                take(b.let("word", b.load(words, [group.at.n, iy, ix, group.number])))
        else:
            _each_word(op, b, group.start, take)
        size = _LANES if _has_whole_words(op) else 1
        y = b.view(
            "out", b.y, group.target, (1,), dtype=UINT32, access="w", alignment=size
        )
        b.store(y, [0], maximum.value)


@dataclass(frozen=True, slots=True)
class _Group:
    """Four channels of an output pixel, with their elements of window and output."""

    number: ArithExpr
    start: ArithExpr
    target: ArithExpr
    at: OutputPosition


@contextmanager
def _groups(op: OpCall, b: Kernel) -> Iterator[_Group]:
    """Loop over groups of four channels of each pixel."""
    channels = op.output.shape[3]
    blocks = ChannelBlocks(channels, _LANES)
    with (
        pooled_pixels(op, b) as pixel,
        b.for_("group", blocks.count) as group,
    ):
        first = blocks.first(group)
        if not _has_whole_words(op):
            first = b.let("first", first)
        yield _Group(
            group,
            pixel.corner * channels + first,
            pixel.place * channels + first,
            pixel.at,
        )


def _each_word(
    op: OpCall, b: Kernel, start: ArithExpr, take: Callable[[ArithExpr], None]
) -> None:
    size = pool_window(op).size
    _, _, cols, channels = op.input(0).shape
    factors = size[1:] if size[1] <= _MAX_UNROLLED else ()
    x = b.input(0)
    if _has_whole_words(op):
        words = channels // _LANES
        steps = cols * words, words
        taps = b.view("taps", x, start, size, dtype=UINT32, strides=steps, alignment=4)

    def word(ky: ArithExpr, kx: ArithExpr) -> ArithExpr:
        if _has_whole_words(op):
            return b.load(taps, [ky, kx])
        place = start + (ky * cols + kx) * channels
        return b.load(b.view("tap", x, place, (1,), dtype=UINT32), [0])

    with b.for_("ky", size[0]) as ky, b.unrolled("kx", size[1], *factors) as kx:
        take(b.let("word", word(ky, kx)))


SCHEDULES = tuple(
    Schedule(f"{feature}.{op}.words", op, frozenset({feature}), configs, build)
    for feature, op, configs, build in (
        ("dsp", "average_pool2d", _average_configs, _build_average),
        *(
            (feature, "average_pool2d", _power_configs, _build_average_of_power)
            for feature in ("mla", "rvm", "thumb1")
        ),
        ("dsp", "max_pool2d", _max_configs, _build_max),
    )
)
