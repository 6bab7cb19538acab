"""rfft of floats on vectors, rounded as the definition in fft.py.

On Helium, a vector has two complex numbers. VCMUL multiplies by the real or by the
imaginary part, and VCADD adds with a quarter turn. VCMLA would round once where the
definition rounds twice. On RISC-V, a vector has the real or the imaginary parts.

The transform has stages of radix 4 only, of whole frames. Factors are in the order of
their use.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import FLOAT32, UINT16, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.extensions.tflm_signal.attributes import FftAttrs
from firmwright.extensions.tflm_signal.fft_lowering import (
    digit_reversal,
    radix_stages,
    real_twiddle_factors,
    twiddle_factors,
)
from firmwright.ir.graph import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig

_C = read_sections(__file__)
_RADIX = 4
_LANES = 4


def _numbers(x: Array, *shape: int) -> Array:
    """Return complex numbers [*shape, part, case] of float32."""
    return np.asarray(x, np.float32).reshape(*shape, 2, -1)


def _multiplied(x: Array, by: Array) -> Array:
    """Return products, each part the sum of two; the axes end with (part, case)."""
    (re, im), (c, s) = (np.moveaxis(each, -2, 0) for each in (x, by))
    return np.stack([re * c - im * s, re * s + im * c], axis=-2)


def _sums(parts: Array) -> Array:
    """Return the sums of the parts of butterflies, along axis 1."""
    a, b, c, d = np.moveaxis(parts, 1, 0)
    even, odd, outer, across = a + c, a - c, b + d, b - d
    turned = np.stack([across[..., 1, :], -across[..., 0, :]], axis=-2)
    return np.stack([even + outer, odd + turned, even - outer, odd - turned], axis=1)


def _first_stage(numbers: Array, samples: Array, order: Array, blocks: int) -> Array:
    places = order.reshape(len(order), -1)[::2, :1] + blocks * np.arange(_RADIX)
    return _sums(_numbers(samples, _RADIX * blocks)[places]).reshape(numbers.shape)


def _stage(numbers: Array, factors: Array, size: int, blocks: int) -> Array:
    parts = _numbers(numbers, blocks, _RADIX, size)
    turned = _multiplied(parts[:, 1:], _numbers(factors, _RADIX - 1, size))
    whole = np.concatenate([parts[:, :1], turned], axis=1)
    return _sums(whole).reshape(numbers.shape)


def _bins(bins: Array, numbers: Array, halves: Array, count: int) -> Array:
    x, k = _numbers(numbers, count), np.arange(1, count // 2 + 1)
    signs = np.array([[1], [-1]], np.float32)
    near, far = x[k], x[count - k] * signs
    total = (near + far) * np.float32(0.5)
    turned = _multiplied(near - far, _numbers(halves, count // 2))
    result = np.zeros((count + 1, *x.shape[1:]), np.float32)
    result[0, 0] = x[0, 0] + x[0, 1]
    result[count, 0] = x[0, 0] - x[0, 1]
    result[k] = total + turned
    result[count - k] = (total - turned) * signs
    return result.reshape(bins.shape)


def _insert(name: str, **parts: Sequence[str]) -> str:
    texts = {part: indent("\n".join(lines), "    ") for part, lines in parts.items()}
    return fill_text(_C[name], **texts)


def _of_parts(section: str, first: int = 0) -> list[str]:
    return [fill_text(_C[section], q=q) for q in range(first, _RADIX)]


def _helium_texts() -> tuple[str, str, str]:
    """Return the C of the first stage, of the others, and of the bins."""
    first = [*_of_parts("load_samples"), _C["sums_of_four"], *_of_parts("store_first")]
    other = [*_of_parts("load_part", 1), _C["sums_of_four"], *_of_parts("store_part")]
    stages = _insert("first_stage", body=first), _insert("stage", body=other)
    return (*stages, _C["bins"])


def _riscv_texts() -> tuple[str, str, str]:
    """Return the C of the first stage, of the others, and of the bins."""
    sums, stores = _C["rvv_sums_of_four"], _of_parts("rvv_store")
    first = [*_of_parts("rvv_load_samples"), sums, *stores]
    bodies: dict[str, list[str]] = {}
    for kind in ("vector", "number"):
        turns = _of_parts(f"rvv_turn_by_{kind}", 1)
        loads = [_C["rvv_load_first"], *_of_parts("rvv_load_part", 1)]
        bodies[f"by_{kind}"] = [*loads, *turns, sums, *stores]
    stages = _insert("rvv_first_stage", body=first), _insert("rvv_stage", **bodies)
    return (*stages, _C["rvv_bins"])


@dataclass(frozen=True, slots=True)
class _Kernels:
    """The micro-kernels of a transform: of the first and the other stages, and bins."""

    first_stage: Intrinsic
    stage: Intrinsic
    bins: Intrinsic


def _kernels(feature: str, texts: Sequence[str], costs: Sequence[int]) -> _Kernels:
    """Return micro-kernels, with the instructions of four complex numbers."""
    first, stage, bins = texts
    of_first, of_stage, of_bins = costs
    return _Kernels(
        Intrinsic(
            f"{feature}_float_fft_first_stage",
            (
                *pointers(FLOAT32, "w", numbers=2),
                *pointers(FLOAT32, samples=2),
                *pointers(UINT16, order=2),
                *immediates("blocks"),
            ),
            _first_stage,
            _insert("first_stage_portable", sums=[_C["sums_portable"]]),
            "The first stage of a transform of samples in digit-reversed order.",
            requires=feature,
            text={"gnu": first},
            count=lambda args: 10 + -(-args[3] // _LANES) * of_first,
        ),
        Intrinsic(
            f"{feature}_float_fft_stage",
            (
                *pointers(FLOAT32, "rw", numbers=2),
                *pointers(FLOAT32, factors=2),
                *immediates("size", "blocks"),
            ),
            _stage,
            _insert("stage_portable", sums=[_C["sums_portable"]]),
            "A stage of a transform, of radix 4.",
            requires=feature,
            text={"gnu": stage},
            count=lambda args: 10 + -(-args[2] * args[3] // _LANES) * of_stage,
        ),
        Intrinsic(
            f"{feature}_float_fft_bins",
            (
                *pointers(FLOAT32, "w", bins=2),
                *pointers(FLOAT32, numbers=2, halves=2),
                *immediates("count"),
            ),
            _bins,
            "\n".join([_C["ends"], _C["bins_portable"]]),
            "The bins of real samples, given the transform of their pairs.",
            requires=feature,
            text={"gnu": "\n".join([_C["ends"], bins])},
            count=lambda args: 20 + -(-args[3] // (2 * _LANES)) * of_bins,
        ),
    )


_MVE = _kernels("mvefp", _helium_texts(), (44, 62, 40))
_RVV = _kernels("rvvf", _riscv_texts(), (62, 80, 46))
INTRINSICS = tuple(
    kernel for of in (_MVE, _RVV) for kernel in (of.first_stage, of.stage, of.bins)
)


def _whole_frames(call: OpCall) -> Sequence[ScheduleConfig]:
    """Return a configuration for frames of floats without zeros after them."""
    x, length = call.input(0), call.attributes(FftAttrs).length
    stages = radix_stages(length // 2)
    fits = len(stages) > 1 and all(stage.radix == _RADIX for stage in stages)
    return (NO_CONFIG,) if x.dtype == FLOAT32 and x.shape[-1] == length and fits else ()


def _build(kernels: _Kernels, call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    x, length = call.input(0), call.attributes(FftAttrs).length
    count, (first, *others) = length // 2, radix_stages(length // 2)
    places = np.array(digit_reversal(count))[::_RADIX]
    pairs = np.stack([places, np.zeros_like(places)], axis=-1)
    order = b.constant("order", pairs, UINT16, 4)
    halves = real_twiddle_factors(count, 0, reverse=False) / 2
    table = b.constant("halves", halves, FLOAT32, 4)
    circle, factors = twiddle_factors(count, 0, reverse=False), []
    for stage in others:
        turns = np.outer(np.arange(1, _RADIX), np.arange(stage.size)) * stage.blocks
        name = f"factors_{stage.size}"
        factors.append(b.constant(name, circle[turns], FLOAT32, 4))
    numbers = b.allocate("numbers", FLOAT32, (count, 2))
    with b.for_("frame", x.elements // length) as frame:
        operands = [
            b.pointer(numbers, 0, length, "w"),
            b.pointer(b.input(0), frame * length, length),
            b.pointer(order, 0, order.elements),
        ]
        b.evaluate(kernels.first_stage.name, [*operands, first.blocks])
        for stage, by in zip(others, factors, strict=True):
            both = b.pointer(numbers, 0, length, "rw"), b.pointer(by, 0, by.elements)
            b.evaluate(kernels.stage.name, [*both, stage.size, stage.blocks])
        bins = b.pointer(b.y, frame * (length + 2), length + 2, "w")
        inputs = b.pointer(numbers, 0, length), b.pointer(table, 0, count)
        b.evaluate(kernels.bins.name, [bins, *inputs, count])


SCHEDULES = (
    Schedule(
        "helium.rfft.floats",
        "rfft",
        frozenset({"mve", "mvefp"}),
        _whole_frames,
        partial(_build, _MVE),
    ),
    Schedule(
        "rvv.rfft.floats",
        "rfft",
        frozenset({"rvvf"}),
        _whole_frames,
        partial(_build, _RVV),
    ),
)
