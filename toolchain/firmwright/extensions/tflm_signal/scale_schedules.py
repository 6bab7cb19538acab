"""fft_auto_scale without branches: bits of all magnitudes, and pairs of samples.

The scale follows from the bit length of the greatest magnitude, which is that of the
magnitudes combined by OR. Bit 15 of it is set only if there is a sample of -32768: then
a loop finds the peak as TFLM does (spectrum.py).

Two samples are shifted as one word. The bits that leave the low half are those that the
high half has as zeros. On Helium and RISC-V vectors, the peak is a maximum of vectors,
and so are shifted samples.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT16, INT32, UINT32, Array
from firmwright.base.text_sections import read_sections
from firmwright.extensions.tflm_signal.spectrum import store_scale, wrapping_peak
from firmwright.ir import tir
from firmwright.ir.graph import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    ExprLike,
    Register,
    binary_expr,
    call_intrinsic,
    immediate,
    maximum,
)
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    immediates,
    pointers,
    read_intrinsics,
)
from firmwright.kernels.mve_loops import HELIUM
from firmwright.kernels.rvv_loops import RISCV
from firmwright.kernels.vector_loops import VectorTarget
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.vector_loops import mark_vector_loops

_UNROLLED = 4


def _or_magnitudes(acc: Array, x: Array) -> Array:
    bits = np.asarray(x, np.uint32)
    halves = [
        (part & 0xFFFF).astype(np.uint16).view(np.int16) for part in (bits, bits >> 16)
    ]
    low, high = (np.abs(half.astype(np.int32)).astype(np.uint32) for half in halves)
    return np.asarray(acc, np.uint32) | low | high << np.uint32(16)


_C = read_sections(__file__)
(OR_MAGNITUDES,) = read_intrinsics(
    __file__, {"or_magnitudes": _or_magnitudes}, "dsp"
).values()
WRAPPING_PEAK = Intrinsic(
    "wrapping_peak",
    (
        replace(*pointers(INT16, x=1), times="count"),
        *immediates("count"),
    ),
    lambda x, count: np.int32(wrapping_peak(x.reshape(len(x), -1)[:, 0].tolist())),
    portable="",
    rare=_C["wrapping_peak"],
    doc="The greatest magnitude of `count` samples, in 16 bits that wrap.",
    result=INT32,
    instructions=4,
)


def _greatest_magnitude(x: Array, count: int) -> Array:
    peak: Array = np.abs(x.astype(np.int32)).reshape(len(x), -1).max(axis=0)
    return peak[0] if x.ndim == 1 else peak


def _peak_intrinsic(feature: str, instructions: float) -> Intrinsic:
    """Return the greatest magnitude, with the instructions for a sample."""
    return replace(
        WRAPPING_PEAK,
        name=f"{feature}_greatest_magnitude",
        meaning=_greatest_magnitude,
        portable=_C["greatest_magnitude"],
        rare="",
        doc="The greatest magnitude of `count` samples, up to 32768.",
        requires=feature,
        text={"gnu": _C[f"greatest_magnitude_{feature}"]},
        instructions=1,
        count=lambda args: 10 + round(args[1] * instructions),
    )


_MVE_PEAK = _peak_intrinsic("mve", 0.5)
_RVV_PEAK = _peak_intrinsic("rvv", 0.25)
INTRINSICS = (OR_MAGNITUDES, WRAPPING_PEAK, _MVE_PEAK, _RVV_PEAK)


def _configs(call: OpCall) -> Sequence[ScheduleConfig]:
    return (NO_CONFIG,) if call.input(0).elements > 1 else ()


def _build(in_words: bool, call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    count = call.input(0).elements
    x, y = b.views("samples out", (count,), b.input(0), b.y)
    as_words = partial(b.view, shape=(count // 2,), dtype=UINT32, alignment=4)
    words = as_words("words", b.input(0), 0)
    pairs = as_words("pairs", b.y, 0, access="w")
    combined = b.register("combined", UINT32, 0)
    if in_words:
        _combine_words(b, words, combined)
        for last in range(count - count % 2, count):
            _combine(b, x, last, combined)
    else:
        with b.unrolled("i", count, _UNROLLED) as i:
            _combine(b, x, i, combined)
    left = _store_scale(b, combined.value.cast(INT32))
    one = immediate(1, UINT32)
    lost = b.let("lost", (binary_expr("shl", one, left) - 1) << 16, UINT32)
    kept = b.let("kept", binary_expr("xor", lost, 0xFFFFFFFF), UINT32)
    with b.unrolled("k", count // 2, _UNROLLED) as k:
        b.store(pairs, [k], (b.load(words, [k]) << left) & kept)
    for last in range(count - count % 2, count):
        sample = b.load_i32(x, [last]).cast(UINT32)
        b.store(y, [last], (sample << left).cast(INT16))


def _store_scale(b: Kernel, magnitude: ArithExpr) -> ArithExpr:
    """Store and return the scale, given the greatest magnitude or its bits."""
    count = b.call.input(0).elements
    peak = b.register("peak", INT32, magnitude)
    with b.if_(peak.value > INT16.max):
        samples: Sequence[ExprLike] = [b.pointer(b.input(0), 0, count), count]
        peak.set(call_intrinsic(WRAPPING_PEAK.name, samples, INT32))
    return store_scale(b, peak.value).cast(UINT32)


def _build_vectors(
    peak: Intrinsic,
    target: VectorTarget,
    call: OpCall,
    config: ScheduleConfig,
    b: Kernel,
) -> None:
    count = call.input(0).elements
    x, y = b.views("samples out", (count,), b.input(0), b.y)
    operands: Sequence[ExprLike] = [b.pointer(b.input(0), 0, count), count]
    left = _store_scale(b, call_intrinsic(peak.name, operands, INT32))
    with b.for_("k", count) as k:
        sample = b.load_i32(x, [k]).cast(UINT32)
        b.store(y, [k], (sample << left).cast(INT16))
    b.transform = partial(mark_vector_loops, target=target)


def _combine(
    b: Kernel, samples: tir.Buffer, i: ArithExpr | int, combined: Register
) -> None:
    value = b.load_i32(samples, [i])
    magnitude = maximum(value, value * -1).cast(UINT32)
    combined.set(binary_expr("or", combined.value, magnitude))


def _combine_words(b: Kernel, words: tir.Buffer, combined: Register) -> None:
    with b.unrolled("i", words.shape[0], _UNROLLED) as i:
        parts = combined.value, b.load(words, [i])
        combined.set(call_intrinsic(OR_MAGNITUDES.name, parts, UINT32))
    both = binary_expr("or", combined.value, combined.value >> 16)
    combined.set(both & 0xFFFF)


SCHEDULES = tuple(
    Schedule(name, "fft_auto_scale", frozenset(features), _configs, build)
    for name, features, build in (
        ("dsp.fft_auto_scale.words", {"dsp"}, partial(_build, True)),
        ("scalar.fft_auto_scale.magnitudes", set[str](), partial(_build, False)),
        (
            "helium.fft_auto_scale.vectors",
            {"mve"},
            partial(_build_vectors, _MVE_PEAK, HELIUM),
        ),
        (
            "rvv.fft_auto_scale.vectors",
            {"rvv"},
            partial(_build_vectors, _RVV_PEAK, RISCV),
        ),
    )
)
