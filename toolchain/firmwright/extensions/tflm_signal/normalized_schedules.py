"""Logarithms and gains of numbers shifted so that their first bit is the highest.

The bits behind the first one are the fraction of a segment in a table. Without an
instruction that counts zeros, five steps shift the number and count at the same time.
On Armv6-M, a product of 48 bits with a gain is two of the halves of the signal.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import INT16, UINT16, UINT32, Array
from firmwright.base.text_sections import insert_sections, read_sections
from firmwright.extensions.tflm_signal.attributes import PcanAttrs
from firmwright.extensions.tflm_signal.filter_bank import (
    lower_log,
    noise_gains,
    shrink_ratio,
)
from firmwright.extensions.tflm_signal.logarithms import log_table, natural_logarithms
from firmwright.ir.graph import OpCall
from firmwright.ir.tir.builder import ArithExpr, ExprLike, call_intrinsic
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    Meaning,
    Operand,
    immediates,
    inputs,
    pointers,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig

_C = read_sections(__file__)
_HALF_BITS = 16


def _first_lane(table: Array) -> Array:
    return table.reshape(len(table), -1)[:, 0]


def _natural_logarithm(x: Array, table: Array) -> Array:
    return natural_logarithms(np.asarray(x), _first_lane(table)).astype(np.uint32)


def _gain_of_noise(x: Array, gains: Array, count: int) -> Array:
    signed = noise_gains(np.asarray(x), _first_lane(gains))
    return np.asarray(signed.astype(np.uint32))


def _normalized(
    name: str, operands: Sequence[Operand], meaning: Meaning, doc: str
) -> Intrinsic:
    return Intrinsic(
        name,
        (*inputs(UINT32, "x"), *operands),
        meaning,
        insert_sections(_C, name),
        doc,
        result=UINT32,
        count=lambda args: 28,
    )


LOGARITHM = _normalized(
    "natural_logarithm",
    pointers(UINT16, table=129),
    _natural_logarithm,
    "The natural logarithm of x, which is not 0, in units of 2^-16.",
)
GAIN = _normalized(
    "gain_of_noise",
    (replace(*pointers(INT16, gains=1), times="count"), *immediates("count")),
    _gain_of_noise,
    "The gain at the noise level x by a table of quadratic segments.",
)
IN_HALVES = Intrinsic(
    "gain_in_halves",
    (*inputs(UINT32, "x", "gain"), *immediates("right")),
    lambda x, gain, right: (np.asarray(x, np.uint64) * gain >> right).astype(np.uint32),
    _C["gain_in_halves"],
    "The product of x with a gain of 15 bits, shifted right by up to 16 bits.",
    result=UINT32,
    count=lambda args: 8,
)
INTRINSICS = (LOGARITHM, GAIN, IN_HALVES)


def _log_configs(call: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,)


def _gain_configs(call: OpCall) -> Sequence[ScheduleConfig]:
    """Return a configuration if 31 bits hold the products of halves with any gain."""
    gains = call.constant(2)
    if gains is None or call.attributes(PcanAttrs).snr_shift > _HALF_BITS:
        return ()
    fractions = np.arange(1 << 10, 1 << 11)
    noise = [np.arange(1 << 11), *(fractions << left for left in range(1, 22))]
    possible = noise_gains(np.concatenate(noise), gains.array().reshape(-1))
    return (NO_CONFIG,) if possible.min() >= 0 else ()


def _build_log(call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    table = b.constant("table", np.array(log_table(), np.uint16), UINT16)
    count = call.output.elements
    source, y = b.views("signal out", (count,), b.input(0), b.y)
    entries = b.pointer(table, 0, table.elements)

    def natural(x: ArithExpr) -> ArithExpr:
        return call_intrinsic(LOGARITHM.name, [x, entries], UINT32)

    with b.for_("i", count) as i:
        lower_log(b, source, y, i, natural)


def _build_gains(call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    count, length = call.output.elements, call.input(2).elements
    x, noise, y = b.views("signal noise out", (count,), b.input(0), b.input(1), b.y)
    table = b.pointer(b.input(2), 0, length)
    right = call.attributes(PcanAttrs).snr_shift
    with b.for_("i", count) as i:
        operands: Sequence[ExprLike] = [b.load(noise, [i]), table, length]
        gain = b.let("gain", call_intrinsic(GAIN.name, operands, UINT32), UINT32)
        factors: Sequence[ExprLike] = [b.load(x, [i]), gain, right]
        ratio = call_intrinsic(IN_HALVES.name, factors, UINT32)
        b.store(y, [i], shrink_ratio(b.let("ratio", ratio, UINT32)))


SCHEDULES = (
    *(
        Schedule(
            f"{feature}.filter_bank_log.normalized",
            "filter_bank_log",
            frozenset({feature}),
            _log_configs,
            _build_log,
        )
        for feature in ("rvm", "thumb1")
    ),
    Schedule(
        "thumb1.pcan.halves",
        "pcan",
        frozenset({"thumb1"}),
        _gain_configs,
        _build_gains,
    ),
)
