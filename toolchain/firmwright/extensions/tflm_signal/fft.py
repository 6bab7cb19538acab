"""rfft and irfft: real FFT and its inverse along the last axis.

rfft zero-pads to `length` samples and writes length / 2 + 1 bins of (real, imaginary).
Integer types scale by 1 / length over all steps, which round to nearest in 15 or 31
fraction bits; large sums wrap. Floats are not scaled: each operation is rounded, and
the reference of rfft has the order of the loops. irfft divides floats once, at the end.
The steps of rfft:

1. Pairs of samples are n = length / 2 complex numbers, transformed by decimation in
   time: one radix-2 stage if n is not a power of 4, then radix-4 stages. A radix-p
   stage multiplies its p inputs by (2^bits - 1) // p, all but the first by twiddle
   factors, and adds.
2. Bin k and the conjugate of bin n - k are halved. Their sum s, and their difference
   times a twiddle factor, t, give (s + t) / 2 and conj(s - t) / 2, rounded down.

irfft performs step 2 without halving, then step 1 with conjugated twiddle factors.
Semantics: kissfft's fixed-point transform in TFLM's signal library; measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT16, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.extensions.tflm_signal import fft_lowering
from firmwright.extensions.tflm_signal.attributes import FftAttrs
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef

_LENGTHS = tuple(1 << n for n in range(3, 15))


def check_length(call: OpCall, length: int) -> None:
    """Raise NotSupportedError for types and lengths that have no transform."""
    x, y = call.input(0), call.output
    if x.dtype not in (INT16, INT32, FLOAT32) or y.dtype != x.dtype:
        raise NotSupportedError(f"a transform of {x.dtype.name} to {y.dtype.name}")
    if length not in _LENGTHS:
        allowed = "a power of two from 8 to 16384"
        raise NotSupportedError(f"a transform length of {length}, not {allowed}")


def _rfft_infer(call: OpCall) -> tuple[TensorType, ...]:
    x, length = call.input(0), call.attributes(FftAttrs).length
    check_length(call, length)
    if not x.shape or x.shape[-1] > length:
        raise NotSupportedError(f"a transform of length {length} over {list(x.shape)}")
    return (TensorType((*x.shape[:-1], length + 2), x.dtype),)


def _irfft_infer(call: OpCall) -> tuple[TensorType, ...]:
    x, length = call.input(0), call.attributes(FftAttrs).length
    check_length(call, length)
    if not x.shape or x.shape[-1] != length + 2:
        spectrum = f"a spectrum of shape {list(x.shape)}"
        raise NotSupportedError(f"{length} samples from {spectrum}")
    return (TensorType((*x.shape[:-1], length), x.dtype),)


@dataclass(frozen=True, slots=True)
class _Fractions:
    """Arithmetic on fractions of `bits` bits; the last axis is (real, imaginary)."""

    bits: int

    @property
    def half(self) -> int:
        return 1 << (self.bits - 1)

    def wrapped(self, x: Array) -> Array:
        stored = x.astype(np.int16 if self.bits == 15 else np.int32)
        return np.asarray(stored, np.int64)

    def scaled(self, x: Array, parts: int) -> Array:
        factor = ((1 << self.bits) - 1) // parts
        return self.wrapped((x * factor + self.half) >> self.bits)

    def halved(self, x: Array) -> Array:
        return np.asarray(x.astype(np.int32) >> 1, np.int64)

    def turned(self, x: Array, by: Array) -> Array:
        real = x[..., 0] * by[..., 0] - x[..., 1] * by[..., 1]
        imaginary = x[..., 0] * by[..., 1] + x[..., 1] * by[..., 0]
        products = np.stack([real, imaginary], axis=-1)
        return self.wrapped((products + self.half) >> self.bits)

    def transformed(self, x: Array, *, reverse: bool) -> Array:
        count = x.shape[-2]
        circle = fft_lowering.twiddle_factors(count, self.bits, reverse=reverse)
        x = x[..., list(fft_lowering.digit_reversal(count)), :]
        for stage in fft_lowering.radix_stages(count):
            parts = x.reshape(*x.shape[:-2], stage.blocks, stage.radix, stage.size, 2)
            a, *rest = np.moveaxis(self.scaled(parts, stage.radix), -3, 0)
            steps = np.arange(stage.size) * stage.blocks
            rotated = []
            for q, part in enumerate(rest, 1):
                rotated.append(self.turned(part, circle[q * steps]))
            sums = self._added(a, rotated, reverse=reverse)
            x = np.stack(sums, axis=-3).reshape(x.shape)
        return x

    def _added(
        self, a: Array, turned: Sequence[Array], *, reverse: bool
    ) -> list[Array]:
        if len(turned) == 1:
            return [self.wrapped(a + turned[0]), self.wrapped(a - turned[0])]
        b, c, d = turned
        even, odd = self.wrapped(a + c), self.wrapped(a - c)
        outer, across = self.wrapped(b + d), self.wrapped(b - d)
        # A quarter turn of `across`, in the direction of the transform.
        quarter = np.stack([across[..., 1], -across[..., 0]], axis=-1)
        if reverse:
            quarter = -quarter
        sums = (even + outer, odd + quarter, even - outer, odd - quarter)
        return [self.wrapped(value) for value in sums]

    def _pairs(
        self, x: Array, k: Array, count: int, *, reverse: bool
    ) -> tuple[Array, Array]:
        """Return the sum s and the turned difference t of step 2 for the bins `k`."""
        near = self.scaled(x[..., k, :], 2)
        far = self.scaled(self.wrapped(x[..., count - k, :] * (1, -1)), 2)
        twiddles = fft_lowering.real_twiddle_factors(count, self.bits, reverse=reverse)
        return self.wrapped(near + far), self.turned(self.wrapped(near - far), twiddles)

    def spectrum(self, x: Array) -> Array:
        count = x.shape[-1] // 2
        transform = self.transformed(x.reshape(*x.shape[:-1], count, 2), reverse=False)
        first = self.scaled(transform[..., 0, :], 2)
        k = np.arange(1, count // 2 + 1)
        total, difference = self._pairs(transform, k, count, reverse=False)
        bins = np.zeros((*x.shape[:-1], count + 1, 2), transform.dtype)
        bins[..., 0, 0] = first[..., 0] + first[..., 1]
        bins[..., count, 0] = first[..., 0] - first[..., 1]
        bins[..., k, :] = self.halved(total + difference)
        bins[..., count - k, :] = self.halved((total - difference) * (1, -1))
        return self.wrapped(bins).reshape(*x.shape[:-1], -1)

    def samples(self, x: Array) -> Array:
        count = x.shape[-1] // 2 - 1
        bins = x.reshape(*x.shape[:-1], count + 1, 2)
        k = np.arange(1, count // 2 + 1)
        total, difference = self._pairs(bins, k, count, reverse=True)
        packed = np.zeros((*x.shape[:-1], count, 2), np.int64)
        ends = bins[..., 0, 0], bins[..., count, 0]
        sums = np.stack([ends[0] + ends[1], ends[0] - ends[1]], axis=-1)
        packed[..., 0, :] = self.scaled(self.wrapped(sums), 2)
        packed[..., k, :] = self.wrapped(total + difference)
        conjugates = self.wrapped(total - difference) * (1, -1)
        packed[..., count - k, :] = self.wrapped(conjugates)
        return self.transformed(packed, reverse=True).reshape(*x.shape[:-1], -1)


class _Floats(_Fractions):
    """Arithmetic on float32, rounded as in the loops."""

    def wrapped(self, x: Array) -> Array:
        return np.asarray(x, np.float32)

    def scaled(self, x: Array, parts: int) -> Array:
        return x

    def halved(self, x: Array) -> Array:
        return np.asarray(x * 0.5)

    def turned(self, x: Array, by: Array) -> Array:
        by = by.astype(np.float32)
        real = x[..., 0] * by[..., 0] - x[..., 1] * by[..., 1]
        imaginary = x[..., 0] * by[..., 1] + x[..., 1] * by[..., 0]
        return np.stack([real, imaginary], axis=-1)


def _rfft_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, length = arrays[0], call.attributes(FftAttrs).length
    is_float = x.dtype.kind == "f"
    padded = np.zeros((*x.shape[:-1], length), np.float32 if is_float else np.int64)
    padded[..., : x.shape[-1]] = x
    bits = fft_lowering.fraction_bits(call.output.dtype)
    numbers = _Floats(bits) if is_float else _Fractions(bits)
    with np.errstate(all="ignore"):
        return (numbers.spectrum(padded).astype(x.dtype),)


def _irfft_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x = arrays[0]
    if x.dtype.kind == "f":
        parts = x.astype(np.float64).reshape(*x.shape[:-1], -1, 2)
        bins = parts[..., 0] + 1j * parts[..., 1]
        samples = np.fft.irfft(bins, call.attributes(FftAttrs).length)
        return (samples.astype(np.float32),)
    fractions = _Fractions(fft_lowering.fraction_bits(call.output.dtype))
    return (fractions.samples(x.astype(np.int64)).astype(x.dtype),)


def _rfft_lower(call: OpCall, b: Kernel) -> None:
    x, length = call.input(0), call.attributes(FftAttrs).length
    frames = x.elements // x.shape[-1]
    transform = fft_lowering.FftBuilder(b, x.dtype, length // 2, reverse=False)
    samples = b.view("samples", b.input(0), 0, (frames, x.shape[-1]))
    bins = b.view("bins", b.y, 0, (frames, length // 2 + 1, 2), access="w")
    numbers = b.allocate("numbers", x.dtype, (length // 2, 2))
    with b.for_("frame", frames) as frame:
        transform.load_samples(samples, frame, numbers)
        transform.transform(numbers)
        transform.unpack_real_bins(numbers, bins, frame)


def _irfft_lower(call: OpCall, b: Kernel) -> None:
    x, length = call.input(0), call.attributes(FftAttrs).length
    frames = x.elements // x.shape[-1]
    transform = fft_lowering.FftBuilder(b, x.dtype, length // 2, reverse=True)
    bins = b.view("bins", b.input(0), 0, (frames, length // 2 + 1, 2))
    packed = b.allocate("joined", x.dtype, (length // 2, 2))
    with b.for_("frame", frames) as frame:
        numbers = b.view("numbers", b.y, frame * length, (length // 2, 2), access="rw")
        transform.pack_real_bins(bins, frame, packed)
        transform.load_permuted(packed, numbers)
        transform.transform(numbers)
        transform.normalize_floats(numbers)


OPDEFS = (
    OpDef(
        "rfft",
        _rfft_infer,
        _rfft_reference,
        _rfft_lower,
        dtypes=("int16", "int32", "float32"),
        inputs=("x",),
        numerics="tflm",
        is_audio_front_end=True,
    ),
    OpDef(
        "irfft",
        _irfft_infer,
        _irfft_reference,
        _irfft_lower,
        dtypes=("int16", "int32", "float32"),
        inputs=("x",),
        numerics="tflm",
    ),
)
