"""Elementwise operators that no formula expresses."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.pytorch.operators.formulas import as_bool, scaled
from firmwright.frontends.pytorch.program import Ref
from firmwright.frontends.pytorch.translation import NodeTranslation, Translators


def _div(t: NodeTranslation) -> str:
    mode, kind = t.arg("rounding_mode"), t.dtype()
    if mode not in (None, "floor", "trunc"):
        raise NotSupportedError(f"division rounded by {mode!r}")
    a, b = t.as_dtype("self", kind), t.as_dtype("other", kind)
    if not kind.startswith("float") and mode == "floor":
        # Mod has the sign of the divisor.
        return t.emit("Div", t.emit("Sub", a, t.emit("Mod", a, b)), b)
    y = t.emit("Div", a, b)
    if not kind.startswith("float"):
        return y
    if mode == "trunc":
        return t.emit("Mul", t.emit("Sign", y), t.emit("Floor", t.emit("Abs", y)))
    return t.emit("Floor", y) if mode == "floor" else y


def _elu(t: NodeTranslation) -> str:
    if t.arg("input_scale", 1) != 1:
        raise NotSupportedError("an elu with a scaled input")
    y = t.emit("Elu", t.tensor("self"), alpha=float(t.arg("alpha", 1.0)))
    return scaled(t, y, float(t.arg("scale", 1)), t.dtype())


def _softplus(t: NodeTranslation) -> str:
    beta = float(t.arg("beta", 1.0))
    threshold = float(t.arg("threshold", 20.0))
    x = t.tensor("self")
    steep = scaled(t, x, beta, t.dtype())
    y = scaled(t, t.emit("Softplus", steep), 1 / beta, t.dtype())
    return t.emit("Where", t.emit("Greater", steep, t.real(threshold)), x, y)


def _prelu(t: NodeTranslation) -> str:
    slopes, rank = t.shape("weight"), len(t.shape("self"))
    is_spread = rank < 3 or slopes in ((), (1,))
    row = slopes if is_spread else (slopes[0], *(1,) * (rank - 2))
    return t.emit("PRelu", t.tensor("self"), t.reshape(t.tensor("weight"), row))


def _glu(t: NodeTranslation) -> str:
    axis = t.axis("dim", len(t.shape("self")), -1)
    shape = t.shape("self")
    sizes = np.array([shape[axis] // 2] * 2, np.int64)
    a, b = t.emit_all("Split", 2, t.tensor("self"), sizes, axis=axis)
    return t.emit("Mul", a, t.emit("Sigmoid", b))


def _to(t: NodeTranslation) -> str:
    """Convert the element type; other changes (device, memory format) do nothing."""
    source = "self" if "self" in t.node.args else "input"
    kind, x = t.dtype(), t.tensor(source)
    if t.type_of(source).dtype == kind:
        return x
    if kind == "bool":
        return as_bool(t, source)
    return t.cast(x, kind)


def _copy(t: NodeTranslation) -> str:
    """Write the source over a tensor of another shape or element type."""
    x = t.as_dtype("src", t.dtype())
    shape = t.output_shape()
    if t.shape("src") == shape:
        return x
    return t.emit("Expand", x, np.array(shape, np.int64))


def _same(t: NodeTranslation) -> str:
    return t.tensor(next(name for name, v in t.node.args.items() if isinstance(v, Ref)))


def _dropout(t: NodeTranslation) -> str:
    if t.arg("train", False) and t.arg("p", 0.5):
        raise NotSupportedError(
            "dropout of a model in training mode; call model.eval() first"
        )
    return _same(t)


def _nothing(t: NodeTranslation) -> Sequence[str]:
    """Check or measure at run time, with no effect on the results."""
    return []


TRANSLATORS: Translators = {
    "_assert_scalar": _nothing,
    "_assert_tensor_metadata": _nothing,
    "_to_copy": _to,
    "alias": _same,
    "alpha_dropout": _dropout,
    "clone": _same,
    "contiguous": _same,
    "copy": _copy,
    "detach": _same,
    "div": _div,
    "dropout": _dropout,
    "elu": _elu,
    "feature_dropout": _dropout,
    "glu": _glu,
    "lift_fresh_copy": _same,
    "prelu": _prelu,
    "softplus": _softplus,
    "sym_size": _nothing,
    "to": _to,
    "type_as": _to,
}
