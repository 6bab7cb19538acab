"""rfft of int16 on vectors, with the formulas and tables of fft_schedules.py.

On RISC-V, a vector has the real or the imaginary parts of some butterflies, of one
block or of several. VSMUL rounds as the definition does; products are added in 32 bits.

On Helium, a vector has four complex numbers. VQRDMULH rounds as the definition does,
and so do VQRDMLSDH and VQRDMLADHX, which add two products first. Factors are gathered.
The transform has stages of radix 4 only. The last products may exceed 16 bits: they
wrap.
"""

from collections.abc import Sequence
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT16, UINT16, Array
from firmwright.base.text_sections import read_sections
from firmwright.extensions.tflm_signal.attributes import FftAttrs
from firmwright.extensions.tflm_signal.complex_numbers import BITS
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
)
from firmwright.extensions.tflm_signal.fft_schedules import even_widths, stage_factors
from firmwright.ir.graph import OpCall
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules.schedule_factories import helium_schedule

_C = read_sections(__file__)
_RADIX = 4
_PARTS, _TURNED = range(_RADIX), range(1, _RADIX)
"""The parts of a butterfly, and those that are multiplied by a factor."""
_HALF = 1 << (BITS - 1)


def _scaled(x: Array, divisor: int) -> Array:
    scaled: Array = (x * (((1 << BITS) - 1) // divisor) + _HALF) >> BITS
    return scaled


def _numbers(x: Array, *shape: int) -> Array:
    """Return complex numbers [*shape, part, case] of int16 as int64."""
    return x.astype(np.int64).reshape(*shape, 2, -1)


def _multiplied(x: Array, by: Array) -> Array:
    """Return products; the axes of both end with (part, case)."""
    (re, im), (c, s) = (np.moveaxis(each, -2, 0) for each in (x, by))
    products = np.stack([re * c - im * s, re * s + im * c], axis=-2)
    rounded: Array = (products + _HALF) >> BITS
    return rounded


def _sums(parts: Array) -> Array:
    """Return the sums of the parts of butterflies, along axis 1."""
    if parts.shape[1] == 2:
        return np.stack([parts[:, 0] + parts[:, 1], parts[:, 0] - parts[:, 1]], 1)
    a, b, c, d = np.moveaxis(parts, 1, 0)
    across = np.stack([(b - d)[..., 1, :], -(b - d)[..., 0, :]], axis=-2)
    sums = (a + c + b + d, a - c + across, a + c - b - d, a - c - across)
    return np.stack(sums, axis=1)


def _first_stage(
    numbers: Array, samples: Array, order: Array, have: int, blocks: int, radix: int
) -> Array:
    padded = np.zeros((2 * radix * blocks, *samples.shape[1:]), np.int64)
    padded[: int(have)] = samples[: int(have)]
    places = order.reshape(len(order), -1)[:, :1] + blocks * np.arange(radix)
    parts = _scaled(_numbers(padded, radix * blocks)[places], radix)
    return _sums(parts).astype(np.int16).reshape(numbers.shape)


def _stage(numbers: Array, factors: Array, size: int, blocks: int) -> Array:
    parts = _scaled(_numbers(numbers, blocks, 4, size), 4)
    by = _numbers(factors, size * blocks, 3)[::blocks].swapaxes(0, 1)
    turned = _multiplied(parts[:, 1:], by)
    sums = _sums(np.concatenate([parts[:, :1], turned], axis=1))
    return sums.astype(np.int16).reshape(numbers.shape)


def _bins(bins: Array, numbers: Array, quarters: Array, count: int) -> Array:
    x = _scaled(_numbers(numbers, count), 2)
    signs = np.array([[1], [-1]])
    opposite = (_numbers(numbers, count) * signs).astype(np.int16).astype(np.int64)
    k = np.arange(1, count // 2 + 1)
    near, far = x[k], _scaled(opposite, 2)[count - k]
    total = near + far
    turned = _multiplied(near - far, _numbers(quarters, count // 2))
    turned = turned.astype(np.int16).astype(np.int64)
    result = np.zeros((count + 1, *x.shape[1:]), np.int64)
    result[0, 0] = x[0].sum(axis=0)
    result[count, 0] = x[0, 0] - x[0, 1]
    result[k] = (total + turned) >> 1
    result[count - k] = (total - turned) * signs >> 1
    return result.astype(np.int16).reshape(bins.shape)


def _first_text() -> str:
    """Return the text for both radices, of which the compiler removes one."""
    bodies = []
    for radix, sums in ((2, "sums_of_two"), (4, "sums_of_four")):
        parts = range(radix)
        lines = [
            *text_of_parts(_C["load_samples"], parts),
            _C[sums],
            *text_of_parts(_C["store_strided"], parts, stride="4 * radix"),
        ]
        head = f"if (radix == {radix}) {{"
        bodies += [head, indent("\n".join(lines), "    "), "}"]
    return insert_lines(_C["first_stage"], body=bodies)


def _stage_text() -> str:
    bodies = {}
    for kind in ("vector", "number"):
        turns = text_of_parts(_C[f"turn_by_{kind}"], _TURNED)
        loads = text_of_parts(_C["load_part"], _PARTS)
        stores = text_of_parts(_C["store_strided"], _PARTS, stride="stride")
        bodies[f"by_{kind}"] = [*loads, *turns, _C["sums_of_four"], *stores]
    return insert_lines(_C["stage"], **bodies)


def _helium_first_text() -> str:
    loads = text_of_parts(_C["mve_load_samples"], _PARTS)
    body = [*loads, _C["mve_sums_of_four"]]
    return insert_lines(_C["mve_first_stage"], body=body)


def _helium_stage_text() -> str:
    lines = text_of_parts(_C["mve_load_part"], _PARTS)
    lines += text_of_parts(_C["mve_turn"], _TURNED)
    return insert_lines(_C["mve_stage"], body=[*lines, _C["mve_sums_of_four"]])


_FRACTIONS = FftArithmetic(
    name="fft",
    dtype=INT16,
    lanes=8,
    order_elements=1,
    first_settings=("have", "blocks", "radix"),
    factors="quarters",
    meanings=(_first_stage, _stage, _bins),
    portable=(
        _C["first_stage_portable"],
        _C["stage_portable"],
        "\n".join([_C["ends"], _C["bins_portable"]]),
    ),
)
_RVV = make_fft_kernels(
    _FRACTIONS,
    "rvv",
    (
        KernelText(_first_text(), 80),
        KernelText(_stage_text(), 80),
        KernelText("\n".join([_C["ends"], _C["bins"]]), 55),
    ),
)
_MVE = make_fft_kernels(
    _FRACTIONS,
    "mve",
    (
        KernelText(_helium_first_text(), 60),
        KernelText(_helium_stage_text(), 70),
        KernelText("\n".join([_C["ends"], _C["mve_bins"]]), 50),
    ),
)
INTRINSICS = tuple(
    kernel for of in (_RVV, _MVE) for kernel in (of.first_stage, of.stage, of.bins)
)


def _helium_configs(call: OpCall) -> Sequence[ScheduleConfig]:
    count = call.attributes(FftAttrs).length // 2
    stages = radix_stages(count)
    fits = len(stages) > 1 and all(stage.radix == _RADIX for stage in stages)
    return even_widths(call) if fits else ()


def _build(
    kernels: FftKernels, call: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    x, length = call.input(0), call.attributes(FftAttrs).length
    frames, have, count = x.elements // x.shape[-1], x.shape[-1], length // 2
    first, *others = radix_stages(count)
    places = np.array(digit_reversal(count))[:: first.radix]
    order = b.constant("order", places, UINT16)
    factors = b.constant("factors", stage_factors(count), INT16, 4)
    turns = real_twiddle_factors(count, BITS, reverse=False)
    quarters = b.constant("quarters", turns, INT16, 4)
    numbers = b.allocate("numbers", INT16, (count, 2))
    with b.for_("frame", frames) as frame:
        operands = [
            b.pointer(numbers, 0, length, "w"),
            b.pointer(b.input(0), frame * have, have),
            b.pointer(order, 0, first.blocks),
        ]
        b.evaluate(
            kernels.first_stage.name, [*operands, have, first.blocks, first.radix]
        )
        table = b.pointer(factors, 0, factors.elements)
        for stage in others:
            both = b.pointer(numbers, 0, length, "rw"), table
            b.evaluate(kernels.stage.name, [*both, stage.size, stage.blocks])
        bins = b.pointer(b.y, frame * (length + 2), length + 2, "w")
        inputs = b.pointer(numbers, 0, length), b.pointer(quarters, 0, count)
        b.evaluate(kernels.bins.name, [bins, *inputs, count])


SCHEDULES = (
    Schedule(
        "rvv.rfft.vectors",
        "rfft",
        frozenset({"rvv"}),
        even_widths,
        partial(_build, _RVV),
    ),
    helium_schedule(
        "helium.rfft.vectors",
        "rfft",
        configs=_helium_configs,
        build=partial(_build, _MVE),
    ),
)
