"""Channels of spectral_subtraction and filter_bank_log, several at a time.

Even and odd channels of a subtraction have other factors, which are constants in a pair
of channels. On the DSP extension, a word of the table of logarithms has the value and
the slope of a segment, and the product with ln 2 is scaled by 2^16, so that its high
word is the result.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT32, UINT32
from firmwright.extensions.tflm_signal.filter_bank import (
    UINT32_MASK,
    lower_log,
    lower_subtraction_channel,
    split_logarithm,
)
from firmwright.extensions.tflm_signal.logarithms import LN2, log_table
from firmwright.ir.graph import OpCall
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    ExprLike,
    as_expr,
    call_intrinsic,
    minimum,
)
from firmwright.kernels.instruction_intrinsics import instruction_intrinsic
from firmwright.kernels.isa.dsp import smlawt, smmulr
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.schedule_factories import dsp_schedule

_UNROLLED = 4
INTRINSICS = (
    instruction_intrinsic(smlawt, "dsp"),
    instruction_intrinsic(smmulr, "dsp"),
)


def _all_calls(call: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,)


def _several_channels(call: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,) if call.output.elements > 1 else ()


def _build_subtraction(call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    count = call.output.elements
    x = b.view("signal", b.input(0), 0, (count,))
    noise, y = b.views("estimate out", (count,), b.input(1), b.y)
    kept = b.view("kept", b.outputs[1], 0, (count,), access="w")
    buffers = x, noise, y, kept
    with b.for_("pair", count // 2) as pair:
        for parity in range(2):
            lower_subtraction_channel(b, buffers, pair * 2 + parity, parity)
    if count % 2:
        last = ArithExpr(as_expr(count - 1, INDEX))
        lower_subtraction_channel(b, buffers, last, 0)


def _build_log(call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    values = np.array(log_table(), np.int64)
    words = values[:-1] | np.diff(values) << 16 & UINT32_MASK
    table = b.constant("table", words, UINT32)
    count = call.output.elements
    source, y = b.views("signal out", (count,), b.input(0), b.y)

    def natural(x: ArithExpr) -> ArithExpr:
        whole, part = split_logarithm(b, x)
        word = b.let(
            "word", b.load(table, [minimum(part >> 9, 127).cast(INDEX)]), UINT32
        )
        value = (word & 0xFFFF) + ((whole << 16) + part)
        fraction = (part & 511).cast(INT32)
        operands: Sequence[ExprLike] = [fraction, word, value.cast(INT32)]
        log2 = call_intrinsic(smlawt.name, operands, INT32)
        # The logarithms of the greatest words are rounded up to more than 32.
        scaled = (log2.cast(UINT32) << 9).cast(INT32)
        product = call_intrinsic(smmulr.name, [scaled, LN2 << 7], INT32)
        return product.cast(UINT32)

    with b.unrolled("i", count, _UNROLLED) as i:
        lower_log(b, source, y, i, natural)


SCHEDULES = (
    Schedule(
        "scalar.spectral_subtraction.pairs",
        "spectral_subtraction",
        frozenset(),
        _several_channels,
        _build_subtraction,
    ),
    dsp_schedule(
        "dsp.filter_bank_log.words",
        "filter_bank_log",
        configs=_all_calls,
        build=_build_log,
    ),
)
