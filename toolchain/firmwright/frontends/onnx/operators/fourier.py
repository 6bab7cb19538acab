"""DFT and STFT: products with the constant matrix of the transform.

The matrix has a row for each real and imaginary part of a result. A transform over time
is a convolution, whose filters are these rows, times the window.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.image_window import ImageWindow
from firmwright.frontends.onnx.node_context import Importer, NodeContext, OnnxValue
from firmwright.frontends.onnx.operators.elementwise import require_float32
from firmwright.frontends.onnx.operators.matmul import emit_fully_connected


@dataclass(frozen=True, slots=True)
class _Transform:
    """A Fourier transform of `length` numbers, cut or filled with zeros to `points`.

    The numbers have one component, or two if they are complex. A one-sided transform
    has the frequencies that determine the others, and is inverted to real numbers.
    """

    length: int
    components: int
    points: int
    is_inverse: bool = False
    is_one_sided: bool = False

    def rows(self) -> Array:
        """Return the matrix, [results * their components, length * components]."""
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


def _dft(c: NodeContext) -> OnnxValue:
    """Transform one axis; the last one has the components of the numbers."""
    require_float32(c)
    x, rank = c.input(0), c.rank
    if c.opset < 20:
        axis = c.axis(1)
    else:
        axis = int(c.scalar(2, "axes")) if c.has(2) else -2
        axis = normalize_axis(axis, rank)
    is_inverse = bool(c.attr("inverse", 0))
    is_one_sided = bool(c.attr("onesided", 0))
    length, components = x.shape[axis], x.shape[-1]
    points = 2 * (length - 1) if is_inverse and is_one_sided else length
    if c.has(1):
        points = int(c.scalar(1, "lengths of a transform"))
    if points < 1 or components not in (1, 2):
        raise NotSupportedError(f"{points} points of {components} components")
    if is_inverse and is_one_sided and points // 2 + 1 != length:
        # ONNX Runtime neither cuts these frequencies nor fills them with zeros.
        raise NotSupportedError(f"{points} points of {length} frequencies")
    transform = _Transform(length, components, points, is_inverse, is_one_sided)
    others = [k for k in range(rank - 1) if k != axis]
    moved = c.emit.transpose(x, (*others, axis, rank - 1))
    shape = tuple(x.shape[k] for k in others)
    flat = c.emit.reshape(moved, (*shape, length * components))
    rows = transform.rows()
    product = emit_fully_connected(c.emit, flat, rows, f"{c.emit.stem}/rows", None)
    own = transform.result_components
    spectra = c.emit.reshape(product, (*shape, len(rows) // own, own))
    order = (*others, axis, rank - 1)
    return c.emit.transpose(spectra, [order.index(k) for k in range(rank)])


def _stft(c: NodeContext) -> OnnxValue:
    require_float32(c)
    (samples, length, components), step = c.shape(0), int(c.scalar(1, "steps"))
    window = c.array(2, "windows").reshape(-1) if c.has(2) else None
    size = length if window is None else len(window)
    if c.has(3):
        size = int(c.scalar(3, "lengths of frames"))
    if step < 1 or not 1 <= size <= length:
        raise NotSupportedError(f"frames of {size} of {length} numbers by {step}")
    is_one_sided = bool(c.attr("onesided", 1))
    rows = _Transform(size, components, size, is_one_sided=is_one_sided).rows()
    filters = rows.reshape(len(rows), 1, size, components)
    if window is not None:
        filters = filters * window.astype(np.float32)[:, None]
    attrs = ImageWindow((1, step), (1, 1), (0, 0, 0, 0)).conv2d_attrs("none")
    line = c.emit.reshape(c.input(0), (samples, 1, length, components))
    constant = c.emit.const(np.ascontiguousarray(filters), "rows")
    spectra = c.emit.call("conv2d", line, constant, attrs=attrs)
    return c.emit.reshape(spectra, (samples, spectra.shape[2], len(rows) // 2, 2))


IMPORTERS: Mapping[str, Importer] = {"DFT": _dft, "STFT": _stft}
