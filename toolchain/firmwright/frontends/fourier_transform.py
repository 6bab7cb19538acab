"""Fourier transforms as products with a constant matrix, for all file formats.

The operator `rfft` of an extension computes some of them with fewer operations.
"""

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.ops.registry import op_table

TRANSFORM_POINTS_MAX = 2048
"""The matrix of 2,048 numbers has 16 MiB, more than firmware stores."""
RFFT = "rfft"
_RFFT_POINTS = tuple(1 << n for n in range(5, 15))
"""The lengths of `rfft` for which it takes fewer operations than a product."""


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
    def is_fast(self) -> bool:
        """Whether `rfft` computes the transform, if its extension is installed."""
        is_forward = self.is_one_sided and not self.is_inverse and self.components == 1
        fits = self.points in _RFFT_POINTS and self.length <= self.points
        return is_forward and fits and RFFT in op_table()

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
