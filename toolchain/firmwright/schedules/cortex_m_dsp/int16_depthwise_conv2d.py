"""int16 depthwise_conv2d on the DSP extension: strips of channel pairs.

Two adjacent channels share a word; SMLABB and SMLATT multiply one tap of both. Requires an even
number of channels and a depth multiplier of 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT16, INT32, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv2d import weights_of
from firmwright.ops.kernel import Kernel
from firmwright.schedules import depthwise_strips
from firmwright.schedules.int16_accumulation import plan_int16_accumulation
from firmwright.schedules.schedule_factories import dsp_schedule

_PAIR = 2


def _configs(op: OpCall) -> Sequence[Config]:
    even = op.output.shape[3] % _PAIR == 0
    if op.input(0).dtype != INT16 or not even:
        return ()
    return depthwise_strips.strip_configs(op)


@dataclass(frozen=True, slots=True)
class _ChannelPairs:
    """Weights [row, column, pair] and input [n, y, x, pair], as words of two channels."""

    words: tir.Buffer
    x: tir.Buffer

    @property
    def channels(self) -> int:
        return _PAIR

    def weights(self, b: Kernel, ky: ArithExpr, kx: int, block: ArithExpr) -> ArithExpr:
        return b.load(self.words, [ky, kx, block])

    def value(self, b: Kernel, at: Sequence[ArithExpr], block: ArithExpr) -> ArithExpr:
        return b.load(self.x, [*at, block])

    def product(
        self, total: ArithExpr, value: ArithExpr, weights: ArithExpr, channel: int
    ) -> ArithExpr:
        return call_intrinsic(("smlabb", "smlatt")[channel], [value, weights, total], INT32)


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    kernel = weights_of(op)[0]
    *image, channels = op.input(0).shape
    words = np.ascontiguousarray(kernel, np.int16).view(np.uint32)
    weights = b.constant("weights", words, UINT32)
    sums = plan_int16_accumulation(b, op, np.moveaxis(kernel, 2, 0), axis=3)
    shape = (*image, channels // _PAIR)
    with b.view("words", b.input(0), 0, shape, dtype=UINT32, alignment=4) as x:
        depthwise_strips.build_strips(op, config, b, _ChannelPairs(weights, x), sums)


SCHEDULES = (
    dsp_schedule("dsp.depthwise.int16", "depthwise_conv2d", configs=_configs, build=_build),
)
