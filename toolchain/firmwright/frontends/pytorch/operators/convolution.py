"""Convolutions, pooling and resizing."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.pytorch.translation import NodeTranslation, Translators


def _with_batch(t: NodeTranslation, name: str, rank: int) -> tuple[str, bool]:
    """Return an input with a batch axis before its axes, and if it has been added.

    The input has `rank` spatial axes.
    """
    shape = t.shape(name)
    if len(shape) == rank + 2:
        return t.tensor(name), False
    return t.reshape(t.tensor(name), (1, *shape)), True


def _without_batch(t: NodeTranslation, y: str, added: bool) -> str:
    return t.reshape(y, t.output_shape()) if added else y


def _conv(transposed: bool, t: NodeTranslation) -> str:
    weights = t.shape("weight")
    rank = len(weights) - 2
    transposed = transposed or bool(t.arg("transposed", False))
    x, added = _with_batch(t, "input", rank)
    padding = t.node.args.get("padding")
    attrs: dict[str, object] = {
        "strides": tuple(t.ints("stride", rank, [1] * rank)),
        "dilations": tuple(t.ints("dilation", rank, [1] * rank)),
        "group": t.arg("groups", 1),
        "kernel_shape": weights[2:],
    }
    if isinstance(padding, str):
        # PyTorch's "same" adds the larger half after the data.
        attrs["auto_pad"] = "SAME_UPPER" if padding == "same" else "VALID"
    else:
        attrs["pads"] = tuple(t.ints("padding", rank, [0] * rank)) * 2
    if transposed:
        attrs["output_padding"] = tuple(t.ints("output_padding", rank, [0] * rank))
    op = "ConvTranspose" if transposed else "Conv"
    y = t.emit(op, x, t.tensor("weight"), t.optional("bias"), **attrs)
    return _without_batch(t, y, added)


def _emit_pool(op: str, x: str, rank: int, t: NodeTranslation, **attrs: object) -> str:
    size = t.ints("kernel_size", rank)
    return t.emit(
        op,
        x,
        kernel_shape=tuple(size),
        strides=tuple(t.ints("stride", rank, size)),
        pads=tuple(t.ints("padding", rank, [0] * rank)) * 2,
        ceil_mode=int(t.arg("ceil_mode", False)),
        **attrs,
    )


def _max_pool(rank: int, t: NodeTranslation) -> Sequence[str]:
    if len(t.node.outputs) > 1 and t.node.outputs[1] in t.writer.read:
        raise NotSupportedError("the indices of a pool")
    x, added = _with_batch(t, "self", rank)
    dilations = tuple(t.ints("dilation", rank, [1] * rank))
    y = _emit_pool("MaxPool", x, rank, t, dilations=dilations)
    return [_without_batch(t, y, added)]


def _average_pool(rank: int, t: NodeTranslation) -> str:
    x, added = _with_batch(t, "self", rank)
    size = t.ints("kernel_size", rank)
    if t.arg("divisor_override") is not None:
        raise NotSupportedError("a pool with a divisor")
    if tuple(size) == t.shape("self")[-rank:] and not any(t.ints("padding")):
        return _without_batch(t, t.emit("GlobalAveragePool", x), added)
    padded = int(t.arg("count_include_pad", True))
    y = _emit_pool("AveragePool", x, rank, t, count_include_pad=padded)
    return _without_batch(t, y, added)


def _adaptive_pool(op: str, rank: int, t: NodeTranslation) -> Sequence[str]:
    shape = t.shape("self")
    inputs, outputs = shape[-rank:], t.output_shape()[-rank:]
    x, added = _with_batch(t, "self", rank)
    if set(outputs) == {1}:
        return [_without_batch(t, t.emit(f"Global{op}", x), added)]
    if any(n % m for n, m in zip(inputs, outputs, strict=True)):
        what = (
            f"adaptive pooling of {list(inputs)} to {list(outputs)}, which does not "
            "divide it"
        )
        raise NotSupportedError(what)
    size = tuple(n // m for n, m in zip(inputs, outputs, strict=True))
    y = t.emit(op, x, kernel_shape=size, strides=size)
    return [_without_batch(t, y, added)]


def _resize(mode: str, t: NodeTranslation) -> str:
    """Resize images; a given scale determines the coordinates, else the sizes do."""
    name = "self" if "self" in t.node.args else "input"
    shape, outputs = t.shape(name), t.output_shape()
    x = t.tensor(name)
    attrs: dict[str, object] = {"mode": mode, "cubic_coeff_a": -0.75}
    if mode == "nearest":
        attrs["coordinate_transformation_mode"] = "asymmetric"
        attrs["nearest_mode"] = "floor"
    else:
        corners = t.arg("align_corners", False)
        named = "align_corners" if corners else "pytorch_half_pixel"
        attrs["coordinate_transformation_mode"] = named
    factors = t.arg("scale_factors")
    if not factors:
        names = ("scales", "scales_d", "scales_h", "scales_w")
        factors = [t.arg(name) for name in names if t.has(name)]
    rank = len(shape) - 2
    if len(factors) == rank and not t.arg("align_corners", False):
        scales = np.array([1, 1, *factors], np.float32)
        pairs = zip(shape[2:], factors, strict=True)
        if [int(size * factor) for size, factor in pairs] == list(outputs[2:]):
            return t.emit("Resize", x, None, scales, None, **attrs)
    return t.emit("Resize", x, None, None, np.array(outputs, np.int64), **attrs)


TRANSLATORS: Translators = {
    "avg_pool1d": partial(_average_pool, 1),
    "avg_pool2d": partial(_average_pool, 2),
    "avg_pool3d": partial(_average_pool, 3),
    "max_pool1d": partial(_max_pool, 1),
    "max_pool2d": partial(_max_pool, 2),
    "max_pool3d": partial(_max_pool, 3),
    "adaptive_avg_pool1d": partial(_adaptive_pool, "AveragePool", 1),
    "adaptive_avg_pool2d": partial(_adaptive_pool, "AveragePool", 2),
    "adaptive_max_pool1d": partial(_adaptive_pool, "MaxPool", 1),
    "adaptive_max_pool2d": partial(_adaptive_pool, "MaxPool", 2),
    "_adaptive_avg_pool2d": partial(_adaptive_pool, "AveragePool", 2),
    "max_pool2d_with_indices": partial(_max_pool, 2),
    "conv1d": partial(_conv, False),
    "conv2d": partial(_conv, False),
    "conv3d": partial(_conv, False),
    "conv_transpose1d": partial(_conv, True),
    "conv_transpose2d": partial(_conv, True),
    "conv_transpose3d": partial(_conv, True),
    "convolution": partial(_conv, False),
    "upsample_bicubic2d": partial(_resize, "cubic"),
    "upsample_bilinear2d": partial(_resize, "linear"),
    "upsample_linear1d": partial(_resize, "linear"),
    "upsample_nearest1d": partial(_resize, "nearest"),
    "upsample_nearest2d": partial(_resize, "nearest"),
}
