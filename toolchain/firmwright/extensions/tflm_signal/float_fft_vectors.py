"""rfft of floats on vectors, rounded as the definition in fft.py.

On Helium, a vector has two complex numbers. VCMUL multiplies by the real or by the
imaginary part, and VCADD adds with a quarter turn. VCMLA would round once where the
definition rounds twice. On RISC-V, a vector has the real or the imaginary parts.

The transform has stages of radix 4 only, of whole frames. Factors are in the order of
their use.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, UINT16, Array
from firmwright.base.text_sections import read_sections
from firmwright.extensions.tflm_signal.attributes import FftAttrs
from firmwright.extensions.tflm_signal.fft_kernels import (
    FftArithmetic,
    FftKernels,
    KernelText,
    insert_lines,
    make_fft_kernels,
    text_of_parts,
)
from firmwright.extensions.tflm_signal.fft_lowering import (
    digit_reversal,
    radix_stages,
    real_twiddle_factors,
    twiddle_factors,
)
from firmwright.ir.graph import OpCall
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig

_C = read_sections(__file__)
_RADIX = 4
_PARTS, _TURNED = range(_RADIX), range(1, _RADIX)
"""The parts of a butterfly, and those that are multiplied by a factor."""


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


def _helium_texts() -> tuple[str, str, str]:
    """Return the C of the first stage, of the others, and of the bins."""
    sums = _C["sums_of_four"]
    loads = text_of_parts(_C["load_samples"], _PARTS)
    first = [*loads, sums, *text_of_parts(_C["store_first"], _PARTS)]
    turns = text_of_parts(_C["load_part"], _TURNED)
    other = [*turns, sums, *text_of_parts(_C["store_part"], _PARTS)]
    return (
        insert_lines(_C["first_stage"], body=first),
        insert_lines(_C["stage"], body=other),
        "\n".join([_C["ends"], _C["bins"]]),
    )


def _riscv_texts() -> tuple[str, str, str]:
    """Return the C of the first stage, of the others, and of the bins."""
    sums = _C["rvv_sums_of_four"]
    stores = text_of_parts(_C["rvv_store"], _PARTS)
    first = [*text_of_parts(_C["rvv_load_samples"], _PARTS), sums, *stores]
    loads = [_C["rvv_load_first"], *text_of_parts(_C["rvv_load_part"], _TURNED)]
    bodies: dict[str, list[str]] = {}
    for kind in ("vector", "number"):
        turns = text_of_parts(_C[f"rvv_turn_by_{kind}"], _TURNED)
        bodies[f"by_{kind}"] = [*loads, *turns, sums, *stores]
    return (
        insert_lines(_C["rvv_first_stage"], body=first),
        insert_lines(_C["rvv_stage"], **bodies),
        "\n".join([_C["ends"], _C["rvv_bins"]]),
    )


_FLOATS = FftArithmetic(
    name="float_fft",
    dtype=FLOAT32,
    lanes=4,
    order_elements=2,
    first_settings=("blocks",),
    factors="halves",
    meanings=(_first_stage, _stage, _bins),
    portable=(
        insert_lines(_C["first_stage_portable"], sums=[_C["sums_portable"]]),
        insert_lines(_C["stage_portable"], sums=[_C["sums_portable"]]),
        "\n".join([_C["ends"], _C["bins_portable"]]),
    ),
    ends_instructions=10,
)
_MVE = make_fft_kernels(
    _FLOATS, "mvefp", tuple(map(KernelText, _helium_texts(), (44, 62, 40)))
)
_RVV = make_fft_kernels(
    _FLOATS, "rvvf", tuple(map(KernelText, _riscv_texts(), (62, 80, 46)))
)
INTRINSICS = tuple(
    kernel for of in (_MVE, _RVV) for kernel in (of.first_stage, of.stage, of.bins)
)


def _whole_frames(call: OpCall) -> Sequence[ScheduleConfig]:
    """Return a configuration for frames of floats without zeros after them."""
    x, length = call.input(0), call.attributes(FftAttrs).length
    stages = radix_stages(length // 2)
    fits = len(stages) > 1 and all(stage.radix == _RADIX for stage in stages)
    return (NO_CONFIG,) if x.dtype == FLOAT32 and x.shape[-1] == length and fits else ()


def _build(
    kernels: FftKernels, call: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
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
