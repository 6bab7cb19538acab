"""Quantization of PT2E and torchao as ONNX's operators, which its importer fuses."""

import numpy as np

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.pytorch import translation
from firmwright.frontends.pytorch.program import Ref
from firmwright.frontends.pytorch.translation import (
    NodeTranslation,
    Translator,
    Translators,
)


def _array(t: NodeTranslation, name: str, kind: str) -> str:
    """Return a scale or zero point, number or constant tensor, in ONNX's type."""
    name = f"{name}s" if f"{name}s" in t.node.args else name
    value = t.node.args.get(name)
    if not isinstance(value, Ref):
        return t.constant(np.array(t.arg(name, 0), kind), name)
    constant = t.writer.constants.get(t.tensor(name))
    if constant is None:
        raise NotSupportedError("scales that are computed in the program")
    whole = constant.reshape(()) if constant.size == 1 else constant.reshape(-1)
    return t.constant(whole.astype(kind), name)


def _quantize(axis: int | None, t: NodeTranslation) -> str:
    kind = t.dtype()
    if kind not in ("int8", "uint8", "int16"):
        raise NotSupportedError(f"values quantized to {kind}")
    scale = _array(t, "scale", "float32")
    point = _array(t, "zero_point", kind)
    x = t.tensor("input")
    y = t.emit("QuantizeLinear", x, scale, point, axis=axis, by_reciprocal=1)
    limits = np.iinfo(kind)
    low = t.arg("quant_min", limits.min)
    high = t.arg("quant_max", limits.max)
    if (low, high) == (limits.min, limits.max):
        return y
    return t.emit("Clip", y, np.array(low, kind), np.array(high, kind))


def _dequantize(axis: int | None, t: NodeTranslation) -> str:
    kind = t.type_of("input").dtype
    if kind not in ("int8", "uint8", "int16", "int32") or t.dtype() != "float32":
        raise NotSupportedError(f"{kind} dequantized to {t.dtype()}")
    scale = _array(t, "scale", "float32")
    point = _array(t, "zero_point", kind)
    return t.emit("DequantizeLinear", t.tensor("input"), scale, point, axis=axis)


def _channel_axis(t: NodeTranslation) -> int:
    return t.axis("axis", len(t.shape("input")))


def _affine_axis(t: NodeTranslation) -> int | None:
    """Return the axis with a scale per index; None if a block is the whole tensor."""
    shape = t.shape("input")
    block = tuple(t.ints("block_size"))
    pairs = enumerate(zip(shape, block, strict=True))
    axes = [axis for axis, (n, size) in pairs if n != size]
    if not axes:
        return None
    if len(axes) > 1 or block[axes[0]] != 1:
        raise NotSupportedError(
            f"blocks {list(block)} of {list(shape)} with one scale each"
        )
    return axes[0]


def _dequantize_affine(t: NodeTranslation) -> str:
    if translation.scalar_type(t.arg("output_dtype"), "float32") != "float32":
        raise NotSupportedError("values dequantized to other than float32")
    return _dequantize(_affine_axis(t), t)


def _dynamic(t: NodeTranslation) -> str:
    raise NotSupportedError(
        "scales computed in each run; calibrate the activations instead"
    )


_DECOMPOSED: dict[str, Translator] = {
    "choose_qparams": _dynamic,
    "dequantize_per_channel": lambda t: _dequantize(_channel_axis(t), t),
    "dequantize_per_tensor": lambda t: _dequantize(None, t),
    "quantize_per_channel": lambda t: _quantize(_channel_axis(t), t),
    "quantize_per_tensor": lambda t: _quantize(None, t),
}
_AFFINE: dict[str, Translator] = {
    "choose_qparams_affine": _dynamic,
    "dequantize_affine": _dequantize_affine,
    "quantize_affine": lambda t: _quantize(_affine_axis(t), t),
}
TRANSLATORS: Translators = {
    **{f"quantized_decomposed.{name}": item for name, item in _DECOMPOSED.items()},
    **{f"torchao.{name}": item for name, item in _AFFINE.items()},
}
