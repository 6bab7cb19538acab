"""window, fft_auto_scale and spectrum_energy: the steps before and after an FFT.

    window: y = x * weights >> shift, saturated to int16; weights along the last axis.
    fft_auto_scale: y = x * 2^s with the greatest s for which all magnitudes fit int16,
        and s; silence is unchanged.
    spectrum_energy: y = re^2 + im^2 of the bins first .. last - 1, 0 elsewhere.

Semantics: TFLM's signal library. It computes magnitudes in 16 bits: that of -32768
wraps and any later value replaces it, so results may wrap. It leaves other bins
unwritten. The references also compute batches of frames, whose axis is the first one.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT16, INT32, UINT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.extensions.tflm_signal.attributes import (
    SpectrumEnergyAttrs,
    WindowFunctionAttrs,
)
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
    maximum,
    minimum,
    select,
)
from firmwright.ops.intrinsics import bit_length
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef


def _window_infer(call: OpCall) -> tuple[TensorType, ...]:
    x, weights = call.input(0), call.input(1)
    if (x.dtype, weights.dtype) != (INT16, INT16):
        raise NotSupportedError(f"a window of {weights.dtype.name} over {x.dtype.name}")
    if len(weights.shape) != 1 or x.shape[-1:] != weights.shape:
        shapes = f"{list(weights.shape)} over {list(x.shape)}"
        raise NotSupportedError(f"a window of shape {shapes}")
    return (TensorType(x.shape, INT16, call.output.quantization),)


def _window_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(WindowFunctionAttrs)
    product = arrays[0].astype(np.int32) * arrays[1].astype(np.int32) >> attrs.shift
    return (np.clip(product, INT16.min, INT16.max).astype(np.int16),)


def _window_lower(call: OpCall, b: Kernel) -> None:
    size = call.input(1).elements
    shape = (call.output.elements // size, size)
    x, y = b.views("frames out", shape, b.input(0), b.y)
    with b.for_("frame", shape[0]) as frame, b.for_("i", size) as i:
        product = b.load_i32(x, [frame, i]) * b.load_i32(b.input(1), [i])
        scaled = product >> call.attributes(WindowFunctionAttrs).shift
        saturated = maximum(minimum(scaled, INT16.max), INT16.min)
        b.store(y, [frame, i], saturated.cast(INT16))


def _scale_infer(call: OpCall) -> tuple[TensorType, ...]:
    x = call.input(0)
    if x.dtype != INT16:
        raise NotSupportedError(f"automatic scaling of {x.dtype.name}")
    scale = call.outputs[1]
    if scale.elements != 1:
        raise NotSupportedError(f"a scale of shape {list(scale.shape)}")
    return (TensorType(x.shape, INT16), TensorType(scale.shape, INT32))


def wrapping_peak(samples: Sequence[int]) -> int:
    """Return the greatest magnitude as TFLM computes it, in 16 bits that wrap."""
    peak = 0
    for value in samples:
        if value > peak:
            peak = value
        elif -value > peak:
            peak = -value if value > INT16.min else INT16.min
    return peak


def _scale_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    scale = call.outputs[1]
    frames = arrays[0].reshape(scale.elements, -1).astype(np.int32)
    peaks = np.abs(frames).max(axis=1, initial=0)
    for frame in np.flatnonzero((frames == INT16.min).any(axis=1)):
        peaks[frame] = wrapping_peak(frames[frame].tolist())
    bits = np.where(peaks > 0, 15 - bit_length(np.maximum(peaks, 0)), 0)
    bits = bits.astype(np.int32)
    scaled = (frames << bits[:, None]).astype(np.int16)
    return scaled.reshape(arrays[0].shape), bits.reshape(scale.shape)


def _scale_lower(call: OpCall, b: Kernel) -> None:
    count = call.input(0).elements
    x, y = b.views("samples out", (count,), b.input(0), b.y)
    peak = b.register("peak", INT16, 0)
    with b.for_("i", count) as i:
        value = b.load_i32(x, [i])
        negative, so_far = value * -1, peak.value.cast(INT32)
        with b.if_(value > so_far):
            peak.set(value.cast(INT16))
        with b.else_(), b.if_(negative > so_far):
            peak.set(negative.cast(INT16))
    left = store_scale(b, peak.value.cast(INT32))
    with b.for_("k", count) as k:
        sample = b.load_i32(x, [k]).cast(UINT32)
        b.store(y, [k], (sample << left.cast(UINT32)).cast(INT16))


def store_scale(b: Kernel, magnitude: ArithExpr) -> ArithExpr:
    """Store and return the bits that numbers of at most `magnitude` have left."""
    bits = b.view("bits", b.outputs[1], 0, (1,), access="w")
    length = call_intrinsic("bit_length", [maximum(magnitude, 0).cast(UINT32)], INT32)
    left = b.let("left", select(magnitude > 0, maximum(15 - length, 0), 0), INT32)
    b.store(bits, [0], left)
    return left


def _energy_infer(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(SpectrumEnergyAttrs)
    x, bins = call.input(0), call.output.elements
    has_bins = call.output.shape[-1:] == (bins,) and x.elements == 2 * bins
    if x.dtype != INT16 or not has_bins:
        what = f"the energy of {bins} bins of {x.dtype.name} {list(x.shape)}"
        raise NotSupportedError(what)
    first, last = attrs.start_index, attrs.end_index
    if not 0 <= first <= last <= bins:
        raise NotSupportedError(f"bins {first} to {last} of {bins}")
    return (TensorType(call.output.shape, UINT32),)


def _energy_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(SpectrumEnergyAttrs)
    pairs = arrays[0].reshape(-1, 2).astype(np.int64)
    energy = (pairs**2).sum(axis=1).astype(np.uint32)
    bins = np.arange(len(energy)) % call.output.shape[-1]
    inside = (bins >= attrs.start_index) & (bins < attrs.end_index)
    return (np.where(inside, energy, np.uint32(0)).reshape(call.output.shape),)


def _energy_lower(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(SpectrumEnergyAttrs)
    bins = call.output.elements
    first, last = attrs.start_index, attrs.end_index
    x = b.view("spectrum", b.input(0), 0, (bins, 2))
    y = b.view("out", b.y, 0, (bins,), access="w")
    for name, start, end in (("below", 0, first), ("above", last, bins)):
        if end > start:
            with b.for_(name, end - start) as k:
                b.store(y, [k + start], 0)
    with b.for_("i", last - first) as i:
        squares = [b.load_i32(x, [i + first, part]) for part in (0, 1)]
        real, imaginary = ((part * part).cast(UINT32) for part in squares)
        b.store(y, [i + first], real + imaginary)


OPDEFS = (
    OpDef(
        "window",
        _window_infer,
        _window_reference,
        _window_lower,
        dtypes=("int16",),
        inputs=("x", "window"),
        numerics="tflm",
        is_audio_front_end=True,
        macs=lambda call: call.output.elements,
    ),
    OpDef(
        "fft_auto_scale",
        _scale_infer,
        _scale_reference,
        _scale_lower,
        dtypes=("int16",),
        inputs=("x",),
        results=("y", "scale bits"),
        numerics="tflm",
    ),
    OpDef(
        "spectrum_energy",
        _energy_infer,
        _energy_reference,
        _energy_lower,
        dtypes=("int16",),
        inputs=("x",),
        numerics="tflm",
        macs=lambda call: 2 * call.output.elements,
    ),
)
