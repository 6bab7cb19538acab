"""rfft of floats on Helium: a vector has two complex numbers.

VCMUL and VCMLA multiply complex numbers, VCADD adds with a quarter turn. The transform
has stages of radix 4 only, of whole frames. Factors are in the order of their use.
"""

from collections.abc import Sequence
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
_FEATURES = frozenset({"mve", "mvefp"})


def _complex(x: Array, *shape: int) -> Array:
    """Return floats [..., part, case] as complex numbers [*shape, case]."""
    pairs = x.astype(np.float64).reshape(-1, 2, x.shape[-1] if x.ndim > 1 else 1)
    numbers: Array = (pairs[:, 0] + 1j * pairs[:, 1]).reshape(*shape, -1)
    return numbers


def _floats(x: Array, like: Array) -> Array:
    """Return complex numbers [count, case] in the form of `like`."""
    parts = np.stack([x.real, x.imag], axis=1).astype(np.float32)
    return parts.reshape(like.shape)


def _sums(parts: Array) -> Array:
    """Return the sums of the parts of butterflies, along axis 1."""
    a, b, c, d = np.moveaxis(parts, 1, 0)
    turned = (b - d) * -1j
    sums = (a + c + b + d, a - c + turned, a + c - b - d, a - c - turned)
    return np.stack(sums, axis=1)


def _first_stage(numbers: Array, samples: Array, order: Array, blocks: int) -> Array:
    x = _complex(samples, _RADIX * blocks)
    places = order.reshape(len(order), -1)[::2, :1] + blocks * np.arange(_RADIX)
    return _floats(_sums(x[places]).reshape(_RADIX * blocks, -1), numbers)


def _stage(numbers: Array, factors: Array, size: int, blocks: int) -> Array:
    parts = _complex(numbers, blocks, _RADIX, size)
    parts[:, 1:] *= _complex(factors, _RADIX - 1, size)
    return _floats(_sums(parts).reshape(_RADIX * size * blocks, -1), numbers)


def _bins(bins: Array, numbers: Array, halves: Array, count: int) -> Array:
    x, k = _complex(numbers, count), np.arange(1, count // 2 + 1)
    far = x[count - k].conj()
    total, turned = (x[k] + far) / 2, (x[k] - far) * _complex(halves, count // 2)
    result = np.zeros((count + 1, x.shape[-1]), np.complex128)
    result[0], result[count] = x[0].real + x[0].imag, x[0].real - x[0].imag
    result[k], result[count - k] = total + turned, (total - turned).conj()
    return _floats(result, bins)


def _insert(name: str, **parts: Sequence[str]) -> str:
    texts = {part: indent("\n".join(lines), "    ") for part, lines in parts.items()}
    return fill_text(_C[name], **texts)


def _of_parts(section: str, first: int = 0) -> list[str]:
    return [fill_text(_C[section], q=q) for q in range(first, _RADIX)]


_FIRST = [*_of_parts("load_samples"), _C["sums_of_four"], *_of_parts("store_first")]
_OTHER = [*_of_parts("load_part", 1), _C["sums_of_four"], *_of_parts("store_part")]
_FIRST_STAGE = Intrinsic(
    "mve_float_fft_first_stage",
    (
        *pointers(FLOAT32, "w", numbers=2),
        *pointers(FLOAT32, samples=2),
        *pointers(UINT16, order=2),
        *immediates("blocks"),
    ),
    _first_stage,
    _insert("first_stage_portable", sums=[_C["sums_portable"]]),
    "The first stage of a transform of samples in digit-reversed order.",
    requires="mvefp",
    text={"gnu": _insert("first_stage", body=_FIRST)},
    count=lambda args: 10 + args[3] // 2 * 22,
)
_STAGE = Intrinsic(
    "mve_float_fft_stage",
    (
        *pointers(FLOAT32, "rw", numbers=2),
        *pointers(FLOAT32, factors=2),
        *immediates("size", "blocks"),
    ),
    _stage,
    _insert("stage_portable", sums=[_C["sums_portable"]]),
    "A stage of a transform, of radix 4.",
    requires="mvefp",
    text={"gnu": _insert("stage", body=_OTHER)},
    count=lambda args: 10 + args[2] * args[3] // 2 * 28,
)
_BINS = Intrinsic(
    "mve_float_fft_bins",
    (
        *pointers(FLOAT32, "w", bins=2),
        *pointers(FLOAT32, numbers=2, halves=2),
        *immediates("count"),
    ),
    _bins,
    "\n".join([_C["ends"], _C["bins_portable"]]),
    "The bins of real samples, given the transform of their pairs.",
    requires="mvefp",
    text={"gnu": "\n".join([_C["ends"], _C["bins"]])},
    count=lambda args: 20 + args[3] // 4 * 18,
)
INTRINSICS = (_FIRST_STAGE, _STAGE, _BINS)


def _whole_frames(call: OpCall) -> Sequence[ScheduleConfig]:
    """Return a configuration for frames of floats without zeros after them."""
    x, length = call.input(0), call.attributes(FftAttrs).length
    stages = radix_stages(length // 2)
    fits = len(stages) > 1 and all(stage.radix == _RADIX for stage in stages)
    return (NO_CONFIG,) if x.dtype == FLOAT32 and x.shape[-1] == length and fits else ()


def _build(call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    x, length = call.input(0), call.attributes(FftAttrs).length
    count, (first, *others) = length // 2, radix_stages(length // 2)
    places = np.array(digit_reversal(count))[::_RADIX]
    pairs = np.stack([places, np.zeros_like(places)], axis=-1)
    order = b.constant("order", pairs, UINT16)
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
        b.evaluate(_FIRST_STAGE.name, [*operands, first.blocks])
        for stage, by in zip(others, factors, strict=True):
            both = b.pointer(numbers, 0, length, "rw"), b.pointer(by, 0, by.elements)
            b.evaluate(_STAGE.name, [*both, stage.size, stage.blocks])
        bins = b.pointer(b.y, frame * (length + 2), length + 2, "w")
        inputs = b.pointer(numbers, 0, length), b.pointer(table, 0, count)
        b.evaluate(_BINS.name, [bins, *inputs, count])


SCHEDULES = (Schedule("helium.rfft.floats", "rfft", _FEATURES, _whole_frames, _build),)
