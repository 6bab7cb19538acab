"""conv2d on cores without SIMD: two products per multiplication (SWAR)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.base.text_sections import read_sections
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules import narrow_requantize
from firmwright.schedules.computed_channels import (
    ComputedChannels,
    computed_channels,
    integer_layer,
)
from firmwright.schedules.epilogue import (
    BindGroup,
    FormPreference,
    by_arithmetic,
)
from firmwright.schedules.row_band import pixel_blocks
from firmwright.schedules.scalar.gemm_tiles import pack_columns

_C = read_sections(__file__)

# Two pixels share a word, a + 2^16 b, so that one multiplication gives two products. A
# word of sums begins with 2^15 and is exact while both sums fit 16 bits, that is, while
# the absolute weights add up to about 256. The compiler divides the weights of each
# channel into such segments. After a segment, the word and its high half are added to
# two totals of 32 bits, `all` and `high`; the sums are all - 2^16 high and high. A
# stream holds the weights: the length of a segment before its weights, and 0 at the
# end. Micro-kernels multiply one channel by eight pixels.

PIXELS = 8
WORDS = PIXELS // 2
_UNROLL = 8
_LONGEST = 16
"""Maximum weights of a segment: the micro-kernels jump into 16 unrolled steps."""
_START = 1 << 15
_REGISTERS = tuple(Operand(f"c{pixel}", "out", INT32) for pixel in range(PIXELS))
"""The sums on RV32, whose registers hold all of them."""

_COSTS = {"thumb1": (12, 32, 45), "mla": (6, 21, 20), "rvm": (13, 21, 22)}
"""Instructions of each family for a weight, a segment and a channel."""


def divide_row(weights: Sequence[int]) -> list[list[int]]:
    """Divide a row of weights into the longest segments of exact sums."""
    segments: list[list[int]] = [[]]
    low = high = 0
    for weight in weights:
        ends = weight * INT8.min, weight * INT8.max
        low, high = low + min(ends), high + max(ends)
        if len(segments[-1]) == _LONGEST or low < INT16.min or high > INT16.max:
            segments.append([])
            low, high = min(ends), max(ends)
        segments[-1].append(weight)
    return segments


def pack_streams(weights: Array, bias: Array) -> tuple[Array, Array]:
    """Return the streams of all rows, padded to one length, and their initial totals.

    A stream is the length of a segment, its weights, and so on, and a 0:

        | 3 | w | w | w | 2 | w | w | 0 |
    """
    rows = [divide_row(row) for row in weights.tolist()]
    streams = []
    for row in rows:
        stream: list[int] = []
        for part in row:
            stream += [len(part), *part]
        streams.append(stream)
    packed = np.zeros((len(rows), max(map(len, streams)) + 1), np.int64)
    for target, stream in zip(packed, streams, strict=True):
        target[: len(stream)] = stream
    counts = np.array([len(row) for row in rows], np.int64)
    totals = np.stack([(bias << 16) + bias - _START * counts, bias], axis=1)
    return packed.reshape(-1), totals.astype(np.int32).reshape(-1)


def _sum_products(stream: Array, words: Array, start: Array) -> Array:
    """Return the sums of eight columns for a stream of weights."""
    weights: list[int] = []
    at = segments = 0
    while count := int(stream[at]):
        weights += stream[at + 1 : at + 1 + count].tolist()
        at, segments = at + 1 + count, segments + 1
    columns = words[: WORDS * len(weights)].reshape(-1, WORDS)
    low = (columns & 0xFFFF ^ _START) - _START
    first = start[0] - (start[1] << 16) + _START * segments
    even = first + np.array(weights) @ low
    odd = start[1] + np.array(weights) @ ((columns - low) >> 16)
    return np.stack((even, odd), axis=1).reshape(-1)


def _meaning(w: Array, x: Array, start: Array, *_: Array) -> Array:
    """Return the sums; operands are [element, lane]."""
    operands = [np.asarray(values, np.int64).T for values in (w, x, start)]
    lanes = max(map(len, operands))
    full = [np.broadcast_to(each, (lanes, each.shape[1])) for each in operands]
    sums = [_sum_products(*lane) for lane in zip(*full, strict=True)]
    return np.stack(sums, axis=1).astype(np.uint32).astype(np.int32)


def _meaning_of_registers(*operands: Array) -> tuple[Array, ...]:
    return tuple(_meaning(*operands))


def _count(family: str, arguments: Sequence[int]) -> int:
    each, segment, channel = _COSTS[family]
    return arguments[3] * each + arguments[4] * segment + channel


_DOC = "Products of a row of weights in segments with eight columns, two in a word."


def _microkernel(family: str) -> Intrinsic:
    in_registers = family == "rvm"
    sums = _REGISTERS if in_registers else pointers(INT32, "w", sums=PIXELS)
    return Intrinsic(
        name=f"{family}_swar_1x8",
        operands=(
            *pointers(INT8, w=1),
            *pointers(INT32, x=WORDS, start=2),
            *immediates("steps", "segments"),
            *sums,
        ),
        meaning=_meaning_of_registers if in_registers else _meaning,
        portable=_C["portable_rvm" if in_registers else "portable"],
        doc=_DOC,
        requires=family,
        text={"gnu": _C[family]},
        count=partial(_count, family),
        has_coded_loops=True,
    )


INTRINSICS = (*map(_microkernel, _COSTS), *narrow_requantize.INTRINSICS)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    is_int8 = op.input(0).dtype == op.input(1).dtype == INT8
    pixels = op.output.elements // op.output.shape[3]
    return (NO_CONFIG,) if is_int8 and pixels >= PIXELS else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel, family: str) -> None:
    layer = integer_layer(op)
    rows = computed_channels(b, layer, lambda computed: 1)
    streams, starts = pack_streams(rows.weights, rows.bias)
    form = FormPreference.NARROW if family == "thumb1" else FormPreference.FITTED
    gemm = _SwarGemm(
        family=family,
        rows=rows,
        segments=_mean_segments(layer.weights),
        streams=b.constant("weights", streams, INT8),
        starts=b.constant("bias", starts, INT32),
        bind_group=rows.requantize(b, preference=form),
    )
    zero_point = per_tensor_quant(op.input(0)).zero_point
    words = b.allocate("words", INT32, (rows.taps, WORDS))
    with pixel_blocks(b, op.output.elements // len(layer.bias), PIXELS) as at:
        with b.for_("pair", WORDS) as pair:
            place, shape = at + pair * 2, (2, rows.taps)
            has_words = family == "mla"
            pixels = pack_columns(
                b, op, zero_point, place, shape, has_unaligned_words=has_words
            )
            with b.unrolled("k", rows.taps, _UNROLL, 4, 2) as k:
                low = b.load_i32(pixels, [0, k])
                high = b.load_i32(pixels, [1, k])
                b.store(words, [k, pair], low + high * (1 << 16))
        _emit_channels(b, gemm, words, at)


def _mean_segments(weights: Array) -> int:
    counts = [len(divide_row(row)) for row in weights.tolist()]
    return round(float(np.mean(counts)))


@dataclass(frozen=True, slots=True)
class _SwarGemm:
    """The constants of a layer: a stream of segments and two starts for each row."""

    family: str
    rows: ComputedChannels
    segments: int
    streams: tir.Buffer
    starts: tir.Buffer
    bind_group: BindGroup


def _emit_channels(
    b: Kernel, gemm: _SwarGemm, words: tir.Buffer, at: ArithExpr
) -> None:
    rows, family = gemm.rows, gemm.family
    rows.constants.emit_stores(b, at, PIXELS)
    channels, outputs = len(rows.bias), rows.order.channels
    in_registers = family == "rvm"
    sums = None if in_registers else b.allocate("sums", INT32, (PIXELS,))
    size = gemm.streams.elements // channels
    with b.for_("index", channels) as index:
        stream = b.pointer(gemm.streams, index * size, size)
        start = b.pointer(gemm.starts, index * 2, 2)
        x = b.pointer(words, 0, words.elements)
        acc = sums or b.reg("acc", INT32, PIXELS)
        loads = [b.load(acc, [i]) for i in range(PIXELS)] if in_registers else []
        memory = () if in_registers else (b.pointer(acc, 0, PIXELS, "w"),)
        operands = [stream, x, start, rows.taps, gemm.segments, *loads, *memory]
        b.evaluate(f"{family}_swar_1x8", operands)
        channel = b.let("channel", rows.order.channel(b, index))
        finish = gemm.bind_group(b)(index, 0)
        first = at * outputs + channel
        step = (outputs,)
        out = b.view("out", b.y, first, (PIXELS,), strides=step, access="w")
        for form in by_arithmetic(b, finish):
            for place, total in enumerate(loads):
                b.store(out, [place], form(total))
            if in_registers:
                continue
            unroll = 4 if family == "thumb1" else PIXELS
            with b.unrolled("pixel", PIXELS, unroll) as pixel:
                b.store(out, [pixel], form(b.load(acc, [pixel])))


SCHEDULES = tuple(
    Schedule(
        f"{family}.conv2d.swar",
        "conv2d",
        frozenset({family}),
        _configs,
        partial(_build, family=family),
        disable_scheduling=True,
    )
    for family in _COSTS
)
