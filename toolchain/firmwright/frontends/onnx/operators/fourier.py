"""DFT and STFT: the operators rfft and irfft, or products with the transform's matrix.

The matrix has a row for each real and imaginary part of a result. A transform over time
is a convolution, whose filters are these rows, times the window, or the operator stft.
"""

from collections.abc import Mapping

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.axes import normalize_axis
from firmwright.frontends.fourier_transform import (
    TRANSFORM_POINTS_MAX,
    FourierTransform,
)
from firmwright.frontends.image_window import ImageWindow
from firmwright.frontends.onnx.node_context import Importer, NodeContext, OnnxValue
from firmwright.frontends.onnx.operators.elementwise import require_float32
from firmwright.frontends.onnx.operators.matmul import emit_fully_connected
from firmwright.ir.graph.attributes import attributes_class
from firmwright.ir.graph.attributes.base import make_attrs
from firmwright.ops.registry import op_table


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
    transform = FourierTransform(length, components, points, is_inverse, is_one_sided)
    if not transform.operator:
        _check_size(length, components)
        _check_size(points, components)
    if is_inverse and is_one_sided and points // 2 + 1 != length:
        # ONNX Runtime neither cuts these frequencies nor fills them with zeros.
        raise NotSupportedError(f"{points} points of {length} frequencies")
    others = [k for k in range(rank - 1) if k != axis]
    moved = c.emit.transpose(x, (*others, axis, rank - 1))
    shape = tuple(x.shape[k] for k in others)
    flat = c.emit.reshape(moved, (*shape, length * components))
    spectra = _emit_transform(c, flat, transform)
    order = (*others, axis, rank - 1)
    return c.emit.transpose(spectra, [order.index(k) for k in range(rank)])


def _emit_transform(
    c: NodeContext, x: OnnxValue, transform: FourierTransform
) -> OnnxValue:
    """Emit the results [..., results, components] of x [..., length * components]."""
    own = transform.result_components
    if operator := transform.operator:
        settings = {"length": transform.points}
        attrs = make_attrs(operator, attributes_class(operator), settings)
        product = c.emit.call(operator, x, attrs=attrs)
    else:
        rows = transform.rows()
        product = emit_fully_connected(c.emit, x, rows, f"{c.emit.stem}/rows", None)
    shape = product.shape
    return c.emit.reshape(product, (*shape[:-1], shape[-1] // own, own))


def _check_size(numbers: int, components: int) -> None:
    if not 1 <= numbers <= TRANSFORM_POINTS_MAX or components not in (1, 2):
        most = f"{TRANSFORM_POINTS_MAX:,} numbers of 1 or 2 components"
        what = f"a transform of {numbers:,} numbers of {components} components"
        raise NotSupportedError(f"{what}; the most are {most}")


def _stft(c: NodeContext) -> OnnxValue:
    require_float32(c)
    if c.rank not in (2, 3):
        raise NotSupportedError(f"signals {list(c.shape(0))}")
    # Real signals may have no axis of components.
    samples, length, components = (*c.shape(0), 1)[:3]
    signals = c.emit.reshape(c.input(0), (samples, length, components))
    step = int(c.scalar(1, "steps"))
    window = c.array(2, "windows").reshape(-1) if c.has(2) else None
    size = length if window is None else len(window)
    if c.has(3):
        size = int(c.scalar(3, "lengths of frames"))
    is_one_sided = bool(c.attr("onesided", 1))
    transform = FourierTransform(size, components, size, is_one_sided=is_one_sided)
    if not transform.operator:
        _check_size(size, components)
    if step < 1 or size > length:
        raise NotSupportedError(f"frames of {size} of {length} numbers by {step}")
    if window is not None and len(window) != size:
        raise NotSupportedError(f"a window of {len(window)} for frames of {size}")
    if transform.operator and "stft" in op_table():
        signal = c.emit.reshape(signals, (samples, length))
        return _emit_spectra(c, signal, (size, step), window)
    _check_size(size, components)
    rows = transform.rows()
    filters = rows.reshape(len(rows), 1, size, components)
    if window is not None:
        filters = filters * window.astype(np.float32)[:, None]
    attrs = ImageWindow((1, step), (1, 1), (0, 0, 0, 0)).conv2d_attrs("none")
    line = c.emit.reshape(signals, (samples, 1, length, components))
    constant = c.emit.const(np.ascontiguousarray(filters), "rows")
    spectra = c.emit.call("conv2d", line, constant, attrs=attrs)
    return c.emit.reshape(spectra, (samples, spectra.shape[2], len(rows) // 2, 2))


def _emit_spectra(
    c: NodeContext, x: OnnxValue, frames: tuple[int, int], window: Array | None
) -> OnnxValue:
    """Emit the spectra [signals, frames, bins, 2] of real signals [signals, numbers].

    `frames` are the size and the step.
    """
    size, step = frames
    inputs = [x]
    if window is not None:
        inputs.append(c.emit.const(window.astype(np.float32), "window"))
    settings = {"length": size, "step": step}
    attrs = make_attrs("stft", attributes_class("stft"), settings)
    spectra = c.emit.call("stft", *inputs, attrs=attrs)
    return c.emit.reshape(spectra, (*spectra.shape[:-1], size // 2 + 1, 2))


def _mel_weights(c: NodeContext) -> OnnxValue:
    """Refuse operands known only at run time; a matrix of constants is folded."""
    raise NotSupportedError("bins, lengths, rates and edges that are not constant")


IMPORTERS: Mapping[str, Importer] = {
    "DFT": _dft,
    "MelWeightMatrix": _mel_weights,
    "STFT": _stft,
}
