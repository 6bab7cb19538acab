"""stft: spectra of overlapping frames of real numbers, along the last axis.

Frame k has the numbers from k * step on, times the window if there is one, and its
spectrum is that of `rfft`. The frames are loaded from the signal one after the other,
so that memory has one of them. Semantics: ONNX Runtime's STFT; measured.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.extensions.tflm_signal.attributes import StftAttrs
from firmwright.extensions.tflm_signal.fft import check_length
from firmwright.extensions.tflm_signal.fft_lowering import FftBuilder
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef


def _infer(call: OpCall) -> tuple[TensorType, ...]:
    x, attrs = call.input(0), call.attributes(StftAttrs)
    check_length(call, attrs.length)
    if x.dtype != FLOAT32:
        raise NotSupportedError(f"a transform of frames of {x.dtype.name}")
    if not x.shape or x.shape[-1] < attrs.length or attrs.step < 1:
        what = f"frames of {attrs.length} numbers by {attrs.step}"
        raise NotSupportedError(f"{what} over {list(x.shape)}")
    if len(call.inputs) > 1 and call.input(1) != TensorType((attrs.length,), FLOAT32):
        window = f"a window {list(call.input(1).shape)} of {call.input(1).dtype.name}"
        raise NotSupportedError(f"{window} for frames of {attrs.length} floats")
    count = (x.shape[-1] - attrs.length) // attrs.step + 1
    return (TensorType((*x.shape[:-1], count, attrs.length + 2), FLOAT32),)


def _reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs, (x, *windows) = call.attributes(StftAttrs), arrays
    view = np.lib.stride_tricks.sliding_window_view(x, attrs.length, axis=-1)
    frames = view[..., :: attrs.step, :]
    if windows:
        frames = frames * windows[0]
    spectra = np.fft.rfft(frames.astype(np.float64))
    bins = np.stack([spectra.real, spectra.imag], axis=-1).astype(np.float32)
    return (bins.reshape(call.output.shape),)


def _lower(call: OpCall, b: Kernel) -> None:
    x, attrs = call.input(0), call.attributes(StftAttrs)
    length, numbers = attrs.length, x.shape[-1]
    signals, count = x.elements // numbers, call.output.shape[-2]
    transform = FftBuilder(b, x.dtype, length // 2, reverse=False)
    bins = b.view("bins", b.y, 0, (signals * count, length // 2 + 1, 2), access="w")
    window = (
        b.view("window", b.input(1), 0, (length,)) if len(call.inputs) > 1 else None
    )
    frame = b.allocate("numbers", x.dtype, (length // 2, 2))
    with b.for_("signal", signals) as signal, b.for_("frame", count) as k:
        first = signal * numbers + k * attrs.step
        samples = b.view("samples", b.input(0), first, (1, length))
        transform.load_samples(samples, 0, frame, window)
        transform.transform(frame)
        transform.unpack_real_bins(frame, bins, signal * count + k)


OPDEFS = (
    OpDef(
        "stft",
        _infer,
        _reference,
        _lower,
        dtypes=("float32",),
        inputs=("x", "window?"),
        numerics="neither",
        is_audio_front_end=True,
    ),
)
