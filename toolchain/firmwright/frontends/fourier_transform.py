"""Fourier transforms as products with a constant matrix, for all file formats.

The operators `rfft` and `irfft` of an extension compute some of them with fewer
operations.
"""

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.ops.registry import op_table

TRANSFORM_POINTS_MAX = 2048
"""The matrix of 2,048 numbers has 16 MiB, more than firmware stores."""
_FAST_POINTS = tuple(1 << n for n in range(5, 15))
"""The lengths for which `rfft` and `irfft` take fewer operations than a product."""


@dataclass(frozen=True, slots=True)
class FourierTransform:
    """A Fourier transform of `length` numbers, cut or filled with zeros to `points`.

    The numbers have one component, or two if they are complex. A one-sided transform
    has the frequencies that determine the others, and is inverted to real numbers.
    """

    length: int
    components: int
    points: int
    is_inverse: bool = False
    is_one_sided: bool = False

    @property
    def operator(self) -> str:
        """The operator that computes the transform, or "" if a product does."""
        if not self.is_one_sided or self.points not in _FAST_POINTS:
            return ""
        if self.is_inverse:
            is_whole = self.length == self.points // 2 + 1 and self.components == 2
            name = "irfft" if is_whole else ""
        else:
            fits = self.length <= self.points and self.components == 1
            name = "rfft" if fits else ""
        return name if name in op_table() else ""

    def rows(self) -> Array:
        """Return the matrix, float32 [results * their components, length * components].

        It is computed in double.
        """
        parts = np.array([1, 1j][: self.components])
        units = np.eye(self.length)[:, None] * parts[:, None]
        inputs = units.reshape(-1, self.length)
        if self.is_one_sided and self.is_inverse:
            results = np.fft.irfft(inputs, self.points)[..., None]
        else:
            both_sides = np.fft.ifft if self.is_inverse else np.fft.fft
            values = both_sides(inputs, self.points)
            if self.is_one_sided:
                values = values[:, : self.points // 2 + 1]
            results = np.stack([values.real, values.imag], axis=-1)
        return results.reshape(len(inputs), -1).T.astype(np.float32)

    @property
    def result_components(self) -> int:
        return 1 if self.is_one_sided and self.is_inverse else 2
