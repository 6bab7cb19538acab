"""depthwise_conv2d on the DSP extension for few outputs: four channels at a time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.depthwise_contract import OverlappingBlocks
from firmwright.ops.conv2d import channel_multiplier_of
from firmwright.ops.conv_window import ConvWindow, output_positions, window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.computed_channels import integer_layer
from firmwright.schedules.epilogue import (
    AddendSource,
    RequantizeEpilogue,
    by_arithmetic,
    make_epilogue,
)
from firmwright.schedules.schedule_factories import dsp_schedule

# A window that slides needs several outputs to share its inputs and weights. For one or
# a few, as in streaming networks, channels share instructions instead: a word of the
# input has one tap of four channels, which SXTB16 widens to two words of two halves.
# The weights of a tap are two words, too, or a word of bytes that is widened:
#
#     x:  | c3 | c2 | c1 | c0 |  ->  | c2 | c0 |,  | c3 | c1 |      SMLABB, SMLATT
#     w:                             | c2 | c0 |,  | c3 | c1 |      few taps
#     w:  | c3 | c2 | c1 | c0 |  ->  | c2 | c0 |,  | c3 | c1 |
#
# Halves can be multiplied by powers of two, which the requantization then needs not do.
# With many taps, that is not worth twice the bytes.

_LANES = 4
_ORDER = (0, 2, 1, 3)
"""The channel of each half of the two words of a tap."""
_BYTES = OverlappingBlocks(INT8, _LANES)
_HALF_WORDS = OverlappingBlocks(INT16, _LANES, _ORDER)
_MAX_OUTPUTS = 4
_MAX_UNROLLED = 8
_FACTORS = (4, 3, 2)
_HALVES = ("smlabb", "smlatt")
_WIDENING = ("sxtb16", "sxtb16_ror8")


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    window = window_of(op, op.input(1).shape[1:3])
    _, height, width, channels = op.output.shape
    is_inside = not (window.guarded(0) or window.guarded(1))
    is_plain = op.input(0).dtype == INT8 and channel_multiplier_of(op) == 1
    is_small = height * width <= _MAX_OUTPUTS and channels >= _LANES
    return (NO_CONFIG,) if is_inside and is_plain and is_small else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    layer = integer_layer(op)
    params = layer.requantization
    assert params is not None
    window = window_of(op, op.input(1).shape[1:3])
    has_many_taps = window.size[0] * window.size[1] > _MAX_UNROLLED
    in_bytes = has_many_taps and _BYTES.do_weights_fit(layer.weights)
    layout = _BYTES if in_bytes else _HALF_WORDS
    channels = len(layer.weights)
    epilogue = make_epilogue(
        b,
        params,
        layer.bounds,
        INT8,
        channels,
        bake=None if in_bytes else layer.weights,
        addends=AddendSource.COMPUTED,
    )
    factors = np.array(epilogue.factors, np.int64)
    blocks = ChannelBlocks(channels, _LANES)
    packed = layout.pack(layer.weights * factors[:, None]).view(np.uint32)
    shaped = packed.reshape(blocks.count, -1, 1 if in_bytes else len(_HALVES))
    weights = b.constant("weights", shaped, UINT32)
    bias = b.constant("bias", layer.bias * factors, INT32)
    kernel = _BlockKernel(b, window, weights, bias, epilogue)
    height, width = window.input_size
    with output_positions(b, op.output.shape) as at:
        top = at.n * height + at.oy * window.stride[0]
        source = (top * width + at.ox * window.stride[1]) * channels
        pixel = (at.n * b.y.shape[1] + at.oy) * b.y.shape[2] + at.ox
        with b.for_("block", blocks.count) as block:
            channel = b.let("channel", blocks.first(block))
            kernel.emit(block, channel, source + channel, pixel * channels + channel)


@dataclass(frozen=True, slots=True)
class _BlockKernel:
    """Emits an output of four channels; `weights` are [block, tap, word]."""

    b: Kernel
    window: ConvWindow
    weights: tir.Buffer
    bias: tir.Buffer
    epilogue: RequantizeEpilogue

    def emit(
        self, block: ArithExpr, channel: ArithExpr, source: ArithExpr, target: ArithExpr
    ) -> None:
        b = self.b
        acc = [b.reg(f"acc{lane}", INT32) for lane in range(_LANES)]
        for lane, register in enumerate(acc):
            b.store(register, [0], b.load(self.bias, [channel + lane]))
        with self._taps() as (tap, offset):
            size = _LANES if self.bias.elements % _LANES == 0 else 1
            word = b.view(
                "word", b.input(0), source + offset, (1,), dtype=UINT32, alignment=size
            )
            octets = b.let("bytes", b.load(word, [0]))
            words = self._weights(block, tap)
            for half, name in enumerate(_WIDENING):
                x = b.let("x", call_intrinsic(name, [octets], UINT32))
                w = b.let("w", words(half))
                for lane, product in zip((half, half + 2), _HALVES, strict=True):
                    start = b.load(acc[lane], [0])
                    total = call_intrinsic(product, [x, w, start], INT32)
                    b.store(acc[lane], [0], total)
        y = b.view("out", b.y, target, (_LANES,), access="w")
        for lane, register in enumerate(acc):
            finish = self.epilogue.bind_channel(b, channel + lane)
            for form in by_arithmetic(b, finish, is_tile=False):
                b.store(y, [lane], form(b.load(register, [0])))

    def _weights(self, block: ArithExpr, tap: ArithExpr) -> Callable[[int], ArithExpr]:
        """Return a function of the half of the two words with a tap's weights."""
        b, weights = self.b, self.weights
        if weights.shape[-1] == len(_HALVES):
            return lambda half: b.load(weights, [block, tap, half])
        octets = b.let("weight_bytes", b.load(weights, [block, tap, 0]))
        return lambda half: call_intrinsic(_WIDENING[half], [octets], UINT32)

    @contextmanager
    def _taps(self) -> Iterator[tuple[ArithExpr, ArithExpr]]:
        """Loop over the taps; yield their number, and their place in the input."""
        b, window, channels = self.b, self.window, self.bias.elements
        rows, columns = window.size
        row_step = window.dilation[0] * window.input_size[1] * channels
        column_step = window.dilation[1] * channels
        rows_unrolled, columns_unrolled = _unroll(rows), _unroll(columns)
        if columns > 1:
            rows_unrolled = ()
        with (
            b.unrolled("ky", rows, *rows_unrolled) as ky,
            b.unrolled("kx", columns, *columns_unrolled) as kx,
        ):
            yield ky * columns + kx, ky * row_step + kx * column_step


def _unroll(taps: int) -> tuple[int, ...]:
    return (taps,) if taps <= _MAX_UNROLLED else _FACTORS


SCHEDULES = (
    dsp_schedule(
        "dsp.depthwise.block",
        "depthwise_conv2d",
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    ),
)
