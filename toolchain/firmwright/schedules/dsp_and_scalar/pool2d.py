"""average_pool2d, and max_pool2d on the DSP extension: four channels per word."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from firmwright.base.dtypes import INT8, INT32, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, binary_expr, call_intrinsic
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.conv_window import OutputPosition
from firmwright.ops.kernel import Kernel
from firmwright.ops.pooling import narrow_to_output, pool_window, stored_mean
from firmwright.ops.requantize import quantized_activation_range

# SXTAB16 adds two bytes of a word to two int16 sums, which cannot overflow for windows of up to 255
# elements. SSUB8 and SEL select the greater of four pairs of bytes. Averaged windows must be
# inside the input.
#
# Other cores add 128 to each byte. One sum has channels 0 and 2 as halves, the other one all
# but channel 0: a word shifted by a byte is below 2^24, so 255 of them cannot overflow. For a
# power of two, both means of a pair are rounded in one word: half away from zero is half up, less 1
# for sums below that of zeros.

_LANES = 4
_MAX_SUMMED = 255
_MAX_UNROLLED = 8
_ONES, _SIGNS = 0x10001, 0x80808080
_SHIFTS = {1 << shift: shift for shift in range(8)}


def _average_configs(op: OpCall) -> Sequence[Config]:
    window = pool_window(op)
    inside = not window.guarded(0) and not window.guarded(1)
    return _configs(op) if inside and window.size[0] * window.size[1] <= _MAX_SUMMED else ()


def _max_configs(op: OpCall) -> Sequence[Config]:
    return _configs(op) if op.input(0).dtype == INT8 and _is_whole_range(op) else ()


def _is_whole_range(op: OpCall) -> bool:
    bounds = quantized_activation_range(op.str_attr("activation"), op.output)
    return bounds == (INT8.min, INT8.max)


def _configs(op: OpCall) -> Sequence[Config]:
    return ({},) if op.input(0).dtype == INT8 and op.output.shape[3] % _LANES == 0 else ()


def _build_average(feature: str, op: OpCall, config: Config, b: Kernel) -> None:
    count = pool_window(op).size[0] * pool_window(op).size[1]
    with _outputs(op, b) as (start, target, _):
        sums = b.reg("sums", UINT32, 2)
        for half in (0, 1):
            b.store(sums, [half], 0)
        _each_word(op, b, start, partial(_add_pairs if feature == "dsp" else _add_bytes, b, sums))
        pairs, excess = [b.let("pair", b.load(sums, [half])) for half in (0, 1)], 0
        if feature != "dsp":
            pairs[1], excess = b.let("odd", pairs[1] - (pairs[0] >> 16 << 8)), -INT8.min * count
            if count in _SHIFTS and _is_whole_range(op):
                y = b.view("out", b.y, target, (1,), dtype=UINT32, access="w", alignment=4)
                even, odd = (_mean_pair(op, b, pair, count) for pair in pairs)
                b.store(y, [0], binary_expr("xor", even + (odd << 8), _SIGNS))
                return
        y = b.view("out", b.y, target, (_LANES,), access="w")
        for half, pair in enumerate(pairs):
            for place, shift in ((half, 16), (half + 2, 0)):
                lane = pair << shift
                lane = lane.cast(INT32) >> 16 if feature == "dsp" else (lane >> 16).cast(INT32)
                mean = stored_mean(op, b.let("total", lane - excess), count)
                b.store(y, [place], narrow_to_output(op, mean))


def _add_pairs(b: Kernel, sums: tir.Buffer, word: ArithExpr) -> None:
    for half, name in enumerate(("sxtab16", "sxtab16_ror8")):
        b.store(sums, [half], call_intrinsic(name, [b.load(sums, [half]), word], UINT32))


def _add_bytes(b: Kernel, sums: tir.Buffer, word: ArithExpr) -> None:
    raised = b.let("raised", binary_expr("xor", word, _SIGNS))
    for half, term in enumerate((raised & 0xFF00FF, raised >> 8)):
        b.store(sums, [half], b.load(sums, [half]) + term)


def _mean_pair(op: OpCall, b: Kernel, sums: ArithExpr, count: int) -> ArithExpr:
    """Return the means of two sums of bytes that are 128 higher, in the halves of a word."""
    rounded = sums + count // 2 * _ONES
    if count > 1 and not op.attrs.get("unsigned"):
        is_high = (sums + (0x8000 + INT8.min * count) * _ONES) >> 15 & _ONES
        rounded = rounded - _ONES + is_high
    return b.let("means", rounded >> _SHIFTS[count] & 0xFF00FF)


def _build_max(op: OpCall, config: Config, b: Kernel) -> None:
    window = pool_window(op)
    with _outputs(op, b) as (start, target, (at, group)):
        maximum = b.register("maximum", UINT32, _SIGNS)

        def take(word: ArithExpr) -> None:
            maximum.set(call_intrinsic("smax8", [maximum.value, word], UINT32))

        if window.guarded(0) or window.guarded(1):
            shape = (*op.input(0).shape[:3], op.input(0).shape[3] // _LANES)
            words = b.view("words", b.input(0), 0, shape, dtype=UINT32, alignment=4)
            with window.taps(b, at) as (_, _, iy, ix):
                take(b.let("word", b.load(words, [at.n, iy, ix, group])))
        else:
            _each_word(op, b, start, take)
        y = b.view("out", b.y, target, (1,), dtype=UINT32, access="w", alignment=4)
        b.store(y, [0], maximum.value)


@contextmanager
def _outputs(
    op: OpCall, b: Kernel
) -> Iterator[tuple[ArithExpr, ArithExpr, tuple[OutputPosition, ArithExpr]]]:
    """Loop over groups of four channels; yield offsets of window and output, and the indices."""
    window = pool_window(op)
    batch, height, width, channels = op.output.shape
    _, rows, cols, _ = op.input(0).shape
    extents = (batch, height, width, channels // _LANES)
    with b.loops("n oy ox group", extents) as (n, oy, ox, group):
        first = (n * rows + oy * window.stride[0]) * cols + ox * window.stride[1]
        at = ((n * height + oy) * width + ox) * channels
        indices = (OutputPosition(n, oy, ox), group)
        yield first * channels + group * _LANES, at + group * _LANES, indices


def _each_word(op: OpCall, b: Kernel, start: ArithExpr, take: Callable[[ArithExpr], None]) -> None:
    size = pool_window(op).size
    _, _, cols, channels = op.input(0).shape
    factors = size[1:] if size[1] <= _MAX_UNROLLED else ()
    words = channels // _LANES
    taps = b.view(
        "taps", b.input(0), start, size, dtype=UINT32, strides=(cols * words, words), alignment=4
    )
    with b.for_("ky", size[0]) as ky, b.unrolled("kx", size[1], *factors) as kx:
        take(b.let("word", b.load(taps, [ky, kx])))


SCHEDULES = (
    *(
        Schedule(
            f"{feature}.average_pool2d.words", "average_pool2d", frozenset({feature}),
            _average_configs, partial(_build_average, feature),
        )
        for feature in ("dsp", "mla", "rvm", "thumb1")
    ),
    Schedule(
        "dsp.max_pool2d.words", "max_pool2d", frozenset({"dsp"}), _max_configs, _build_max
    ),
)  # fmt: skip
