"""Fourier transforms as ONNX's DFT and STFT, and the windows of their frames.

A norm divides the sum of a transform of n numbers by 1, n or the root of n. ONNX
divides an inverse transform by n. Semantics: PyTorch's ATen/native/SpectralOps.cpp.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.pytorch.operators.complex_numbers import (
    is_complex,
    real_type,
)
from firmwright.frontends.pytorch.operators.shapes import slice_axis, transpose
from firmwright.frontends.pytorch.translation import (
    NodeTranslation,
    Translators,
    scalar_type,
)


class _Norm(enum.IntEnum):
    """What divides a sum; the values are PyTorch's in basic operators."""

    NONE = 0
    ROOT = 1
    COUNT = 2


_FORWARD = {None: _Norm.NONE, "backward": _Norm.NONE, "forward": _Norm.COUNT}
_INVERSE = {None: _Norm.COUNT, "backward": _Norm.COUNT, "forward": _Norm.NONE}


@dataclass(frozen=True, slots=True)
class _Transform:
    """A transform of one axis to `points` numbers, or from them if it is inverse."""

    axis: int
    points: int
    is_inverse: bool = False
    is_one_sided: bool = False

    @property
    def values_read(self) -> int:
        """The length of the axis that it reads: frequencies or samples."""
        is_half = self.is_inverse and self.is_one_sided
        return self.points // 2 + 1 if is_half else self.points

    def emit(self, t: NodeTranslation, x: str, shape: Sequence[int]) -> str:
        """Emit the pairs of x [*shape, components], or the numbers [...] if real."""
        length = shape[self.axis]
        if length > self.values_read:
            x = slice_axis(t, x, self.axis, 0, self.values_read)
        elif length < self.values_read:
            ends = [0] * (len(shape) + 1)
            ends[self.axis] = self.values_read - length
            margins = np.array([0] * len(ends) + ends, np.int64)
            x = t.emit("Pad", x, margins, mode="constant")
        return t.emit(
            "DFT",
            x,
            np.array(self.points, np.int64),
            np.array(self.axis, np.int64),
            inverse=int(self.is_inverse),
            onesided=int(self.is_one_sided),
        )


def _factor(norm: _Norm, transforms: list[_Transform]) -> float:
    """Return what ONNX's results are multiplied by."""
    count = math.prod(item.points for item in transforms)
    divisor = {_Norm.NONE: 1.0, _Norm.ROOT: math.sqrt(count), _Norm.COUNT: count}[norm]
    return (count if transforms[0].is_inverse else 1.0) / divisor


def _emit_transforms(
    t: NodeTranslation, transforms: list[_Transform], norm: _Norm
) -> str:
    """Emit the transforms of `self`, one axis after the other."""
    components = 2 if is_complex(t.type_of("self").dtype) else 1
    # ONNX wants an axis besides those of the numbers and their parts.
    sizes = [1, *t.shape("self")]
    x = t.reshape(t.tensor("self"), (*sizes, components))
    for item in transforms:
        x = item.emit(t, x, sizes)
        is_half = item.is_one_sided and not item.is_inverse
        sizes[item.axis] = item.points // 2 + 1 if is_half else item.points
    factor = _factor(norm, transforms)
    if factor != 1:
        x = t.emit("Mul", x, np.array(factor, real_type(t.dtype())))
    shape = t.output_shape()
    return t.reshape(x, (*shape, 2) if is_complex(t.dtype()) else shape)


def _norm(t: NodeTranslation, is_inverse: bool) -> _Norm:
    name = t.arg("norm")
    if name == "ortho":
        return _Norm.ROOT
    table = _INVERSE if is_inverse else _FORWARD
    if name not in table:
        raise NotSupportedError(f"the norm {name!r}")
    return table[name]


def _of_one_axis(
    t: NodeTranslation, *, is_inverse: bool = False, is_one_sided: bool = False
) -> str:
    """Translate `torch.fft.fft`, `ifft`, `rfft` and `irfft`."""
    shape = t.shape("self")
    axis = t.axis("dim", len(shape), -1)
    length = shape[axis]
    is_to_real = is_inverse and is_one_sided
    points = int(t.arg("n", 2 * (length - 1) if is_to_real else length))
    transform = _Transform(axis + 1, points, is_inverse, is_one_sided)
    return _emit_transforms(t, [transform], _norm(t, is_inverse))


def _basic(t: NodeTranslation, *, last_is_half: bool, is_inverse: bool) -> str:
    """Translate an operator of run_decompositions.

    With `last_is_half`, the last of its axes is one-sided.
    """
    shape = t.shape("self")
    axes = [axis % len(shape) for axis in t.ints("dim")]
    if not axes:
        raise NotSupportedError("a transform of no axes")
    half = axes[-1]
    transforms: list[_Transform] = []
    # Real numbers are transformed first, and are made last.
    for axis in axes if is_inverse else reversed(axes):
        is_half = last_is_half and axis == half
        points = int(t.arg("last_dim_size")) if is_half and is_inverse else shape[axis]
        transforms.append(_Transform(axis + 1, points, is_inverse, is_half))
    norm = _Norm(t.arg("normalization", _Norm.NONE))
    return _emit_transforms(t, transforms, norm)


def _real_to_complex(t: NodeTranslation) -> str:
    return _basic(t, last_is_half=bool(t.arg("onesided")), is_inverse=False)


def _complex_to_complex(t: NodeTranslation) -> str:
    return _basic(t, last_is_half=False, is_inverse=not t.arg("forward"))


def _complex_to_real(t: NodeTranslation) -> str:
    return _basic(t, last_is_half=True, is_inverse=True)


# ---- frames --------------------------------------------------------------------------


def _stft(t: NodeTranslation) -> str:
    """Translate `torch.stft`; its window is constant and in the middle of a frame."""
    shape, size = t.shape("self"), int(t.arg("n_fft"))
    if is_complex(t.type_of("self").dtype):
        raise NotSupportedError("frames of complex numbers")
    count, length = math.prod(shape[:-1]), shape[-1]
    x = t.reshape(t.tensor("self"), (count, 1, length))
    if t.arg("center", False):
        ends = np.array([0, 0, size // 2] * 2, np.int64)
        mode = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}.get(
            t.arg("pad_mode", "reflect")
        )
        if mode is None:
            raise NotSupportedError(f"padding by {t.arg('pad_mode')!r}")
        x = t.emit("Pad", x, ends, mode=mode)
        length += size // 2 * 2
    if size > length:
        raise NotSupportedError(f"frames of {size} of {length} numbers")
    step = int(t.arg("hop_length", size // 4))
    weights = _frame_weights(t, size)
    if t.arg("normalized", False):
        weights = weights / math.sqrt(size)
    signal = t.reshape(x, (count, length, 1))
    is_one_sided = t.arg("onesided", True)
    operands = (np.array(step, np.int64), t.real(weights), np.array(size, np.int64))
    spectra = t.emit("STFT", signal, *operands, onesided=int(is_one_sided))
    bins_first = transpose(t, spectra, [0, 2, 1, 3])
    result = t.output_shape()
    return t.reshape(bins_first, (*result, 2) if is_complex(t.dtype()) else result)


def _frame_weights(t: NodeTranslation, size: int) -> Array:
    """Return the window, float64 [size], with zeros around a shorter one."""
    own_size = int(t.arg("win_length", size))
    if not t.has("window"):
        window = np.ones(own_size)
    else:
        name = t.tensor("window")
        if name not in t.writer.constants:
            raise NotSupportedError("a window that is computed in the program")
        window = t.writer.constants[name].astype(np.float64).reshape(-1)
    if len(window) != own_size or own_size > size:
        raise NotSupportedError(f"a window of {len(window)} for frames of {size}")
    left = (size - own_size) // 2
    return np.pad(window, (left, size - own_size - left))


def _cosine_window(terms: tuple[float, ...], t: NodeTranslation) -> str:
    """Return sum of (-1)^k terms[k] cos(2 pi k n / period), as a constant."""
    (count,) = t.output_shape()
    t.reserve(8 * count)
    names = ("alpha", "beta")
    given = [t.arg(name) for name in names if t.has(name)]
    terms = (*(float(value) for value in given), *terms[len(given) :])
    period = count if t.arg("periodic", True) else count - 1
    angle = 2 * np.pi * np.arange(count) / max(period, 1)
    window = np.zeros(count)
    for k, term in enumerate(terms):
        window += (-1) ** k * term * np.cos(k * angle)
    kind = scalar_type(t.arg("dtype"), t.dtype())
    return t.constant(np.where(count == 1, 1.0, window).astype(kind))


TRANSLATORS: Translators = {
    "blackman_window": partial(_cosine_window, (0.42, 0.5, 0.08)),
    "hamming_window": partial(_cosine_window, (0.54, 0.46)),
    "hann_window": partial(_cosine_window, (0.5, 0.5)),
    "stft": _stft,
}
COMPLEX_TRANSLATORS: Translators = {
    "_fft_c2c": _complex_to_complex,
    "_fft_c2r": _complex_to_real,
    "_fft_r2c": _real_to_complex,
    "fft_fft": _of_one_axis,
    "fft_ifft": partial(_of_one_axis, is_inverse=True),
    "fft_irfft": partial(_of_one_axis, is_inverse=True, is_one_sided=True),
    "fft_rfft": partial(_of_one_axis, is_one_sided=True),
    "stft": _stft,
}
"""Operators with a complex operand or result, by their names."""
