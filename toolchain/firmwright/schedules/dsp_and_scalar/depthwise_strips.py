"""Depthwise convolution in strips of a few outputs of a row times a few channels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, logical_and
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.conv2d import bias_of, channel_multiplier_of, requantization_of, weights_of
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel, Nest, Position
from firmwright.ops.requantize import per_tensor_quant
from firmwright.schedules.epilogue import accumulator_bounds, make_epilogue
from firmwright.schedules.int16_accumulation import Int16Accumulation, plan_int16_accumulation
from firmwright.schedules.schedule_factories import dsp_schedule
from firmwright.schedules.window_bounds import ValidTapRun, split_by_valid_taps

# A tap's weights serve every output of the strip; an input value serves every output that uses it.
# Outputs of a row are grouped by the tap columns that fall inside the input; tap rows are checked
# at run time.
#
# On the DSP extension, two adjacent channels of int16 share a word, and SMLABB and SMLATT multiply
# one tap of both. Other cores compute one channel at a time and subtract the zero point when int8
# values are loaded; this serves int16 and windows with more taps than registers.

_PIXELS = (3, 1)
_MAX_UNROLLED = 8
"""Maximum window width, since its taps are unrolled."""
_MAX_GROUPS = 7
_PAIR = 2
_FEW_TAPS = 12


@dataclass(frozen=True, slots=True)
class _DepthwiseTaps:
    """Weights [row, column, block] and input [n, y, x, block], in blocks of `channels` channels."""

    channels: int
    taps: tir.Buffer
    x: tir.Buffer
    zero_point: int = 0

    def weights(self, b: Kernel, at: Sequence[ArithExpr | int]) -> ArithExpr:
        return b.load(self.taps, at) if self.channels == _PAIR else b.load_i32(self.taps, at)

    def value(self, b: Kernel, at: Sequence[ArithExpr]) -> ArithExpr:
        value = b.load(self.x, at) if self.channels == _PAIR else b.load_i32(self.x, at)
        return value - self.zero_point if self.zero_point else value

    def product(self, total: ArithExpr, x: ArithExpr, w: ArithExpr, channel: int) -> ArithExpr:
        if self.channels == _PAIR:
            return call_intrinsic(("smlabb", "smlatt")[channel], [x, w, total], INT32)
        return total + x * w


def _strip_configs(op: OpCall) -> Sequence[Config]:
    if op.input(1).shape[2] > _MAX_UNROLLED or channel_multiplier_of(op) != 1:
        return ()
    groups = _groups(op)
    if len(groups) > _MAX_GROUPS or not all(each.taps for each in groups):
        return ()
    width = max(len(across.outputs) for across in groups)
    return [{"pixels": count} for count in _PIXELS if count <= width]


def _groups(op: OpCall) -> list[ValidTapRun]:
    return split_by_valid_taps(window_of(op, op.input(1).shape[1:3]), 1, op.output.shape[2])


@dataclass(frozen=True, slots=True)
class _Strips:
    window: ConvWindow
    taps: _DepthwiseTaps
    sums: Int16Accumulation

    def pixels(self, b: Kernel, columns: range, at: Position, count: int) -> None:
        """Compute all channels of `count` outputs of a row, starting at `at` (n, oy, ox)."""
        n, oy, ox = at
        _, height, width, channels = b.y.shape
        start, lanes = ((n * height + oy) * width + ox) * channels, self.taps.channels
        y = b.view("out", b.y, start, (count, channels), access="w")
        with b.for_("block", channels // lanes) as block:
            acc = b.reg("acc", INT32, lanes * count)
            for c in range(lanes):
                bias = b.let("channel_bias", self.sums.start(b, block * lanes + c))
                for pixel in range(count):
                    b.store(acc, [pixel * lanes + c], bias)
            self._window(b, acc, columns, at, block)
            for c in range(lanes):
                finish = self.sums.bind_channel(b, block * lanes + c)
                for pixel in range(count):
                    b.store(y, [pixel, block * lanes + c], finish(b.load(acc, [pixel * lanes + c])))

    def _window(
        self, b: Kernel, acc: tir.Buffer, columns: range, at: Position, block: ArithExpr
    ) -> None:
        window = self.window
        n, oy, ox = at
        top = oy * window.stride[0] - window.padding[0]
        left = ox * window.stride[1] + (columns.start * window.dilation[1] - window.padding[2])
        with b.for_("ky", window.size[0]) as ky:
            iy = b.let("iy", top + ky * window.dilation[0])
            with Nest() as enter:
                if window.guarded(0):
                    enter(b.if_(logical_and(iy >= 0, iy < window.input_size[0])))
                self._row(b, acc, columns, (n, iy, left), (ky, block))

    def _row(
        self, b: Kernel, acc: tir.Buffer, columns: range, origin: Position,
        at: tuple[ArithExpr, ArithExpr],
    ) -> None:  # fmt: skip
        """Accumulate one window row; `origin` is the input of its first valid tap."""
        n, iy, left = origin
        ky, block = at
        stride, dilation = self.window.stride[1], self.window.dilation[1]
        lanes = self.taps.channels
        inputs: dict[int, ArithExpr] = {}
        for tap in columns:
            weights = b.let("w", self.taps.weights(b, [ky, tap, block]))
            for pixel in range(acc.shape[0] // lanes):
                offset = pixel * stride + (tap - columns.start) * dilation
                if offset not in inputs:
                    inputs[offset] = b.let("x", self.taps.value(b, [n, iy, left + offset, block]))
                for c in range(lanes):
                    total = b.load(acc, [pixel * lanes + c])
                    product = self.taps.product(total, inputs[offset], weights, c)
                    b.store(acc, [pixel * lanes + c], product)


def _build_strips(
    op: OpCall, config: Config, b: Kernel, taps: _DepthwiseTaps, sums: Int16Accumulation
) -> None:
    strips = _Strips(window_of(op, op.input(1).shape[1:3]), taps, sums)
    for across in _groups(op):
        count = min(int(config["pixels"]), len(across.outputs))
        whole, remainder = divmod(len(across.outputs), count)
        with b.for_("n", op.output.shape[0]) as n, b.for_("oy", op.output.shape[1]) as oy:
            with b.for_("ox", whole) as i:
                at = (n, oy, i * count + across.outputs.start)
                strips.pixels(b, across.taps, at, count)
            if remainder:
                last = n * 0 + (across.outputs.stop - remainder)
                strips.pixels(b, across.taps, (n, oy, last), remainder)


def _pair_configs(op: OpCall) -> Sequence[Config]:
    is_even = op.output.shape[3] % _PAIR == 0
    return _strip_configs(op) if op.input(0).dtype == INT16 and is_even else ()


def _build_pairs(op: OpCall, config: Config, b: Kernel) -> None:
    kernel = weights_of(op)[0]
    *image, channels = op.input(0).shape
    words = np.ascontiguousarray(kernel, np.int16).view(np.uint32)
    weights = b.constant("weights", words, UINT32)
    sums = plan_int16_accumulation(b, op, np.moveaxis(kernel, 2, 0), axis=3)
    shape = (*image, channels // _PAIR)
    x = b.view("words", b.input(0), 0, shape, dtype=UINT32, alignment=4)
    _build_strips(op, config, b, _DepthwiseTaps(_PAIR, weights, x), sums)


def _single_configs(op: OpCall) -> Sequence[Config]:
    x, (_, height, width, _) = op.input(0), op.input(1).shape
    is_large = x.dtype == INT8 and height * width > _FEW_TAPS
    return _strip_configs(op) if is_large or x.dtype == INT16 else ()


def _build_single(op: OpCall, config: Config, b: Kernel) -> None:
    kernel, zero_point = weights_of(op)[0], per_tensor_quant(op.input(0)).zero_point
    by_channel = np.moveaxis(kernel, 2, 0)
    taps = _DepthwiseTaps(1, b.constant("weights", kernel, INT8), b.input(0), zero_point)
    is_int16 = op.input(0).dtype == INT16
    sums = plan_int16_accumulation if is_int16 else _int8_sums
    _build_strips(op, config, b, taps, sums(b, op, by_channel, 3))


def _int8_sums(b: Kernel, op: OpCall, kernel: Array, axis: int) -> Int16Accumulation:
    bias, zero_point = bias_of(op, "int32"), per_tensor_quant(op.input(0)).zero_point
    bounds = accumulator_bounds(bias, kernel, INT8.min - zero_point, INT8.max - zero_point)
    biases = b.constant("bias", bias, INT32)
    epilogue = make_epilogue(b, requantization_of(op), bounds, INT8, len(kernel))
    return Int16Accumulation(INT32, biases, epilogue)


_OPERATOR = "depthwise_conv2d"
SCHEDULES = (
    dsp_schedule("dsp.depthwise.int16", _OPERATOR, configs=_pair_configs, build=_build_pairs),
    Schedule("scalar.depthwise.strips", _OPERATOR, frozenset(), _single_configs, _build_single),
)
