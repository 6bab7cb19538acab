"""Elementwise operators, with PyTorch's promotion of element types."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.pytorch.program import Ref
from firmwright.frontends.pytorch.translation import NodeTranslation, Translator, Translators

_UNARY = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh",
    "atan": "Atan", "bitwise_not": "BitwiseNot", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh",
    "erf": "Erf", "exp": "Exp", "floor": "Floor", "hardswish": "HardSwish", "isinf": "IsInf",
    "isnan": "IsNaN", "log": "Log", "mish": "Mish", "neg": "Neg", "reciprocal": "Reciprocal",
    "relu": "Relu", "round": "Round", "selu": "Selu", "sgn": "Sign", "sigmoid": "Sigmoid",
    "sign": "Sign", "silu": "Swish", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan",
    "tanh": "Tanh",
}  # fmt: skip
_ARITHMETIC = {
    "__and__": "BitwiseAnd", "__or__": "BitwiseOr", "__xor__": "BitwiseXor",
    "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor",
    "maximum": "Max", "minimum": "Min", "mul": "Mul",
}  # fmt: skip
_COMPARISONS = {"eq": "Equal", "ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual",
                "lt": "Less"}  # fmt: skip
_LOGICAL = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}


def _float(t: NodeTranslation, name: str = "self") -> str:
    """Return an argument as the float that functions of integers compute with."""
    return t.as_dtype(name, t.dtype())


def _unary(op: str, t: NodeTranslation) -> str:
    if op in ("Relu", "Abs", "Neg", "BitwiseNot", "Sign") or t.dtype() == "bool":
        return t.emit(op, t.tensor("self"))
    if op == "Round" and t.arg("decimals", 0):
        raise NotSupportedError("rounding to decimals")
    return t.emit(op, _float(t))


def _composed(ops: Sequence[str], t: NodeTranslation) -> str:
    x = _float(t)
    for op in ops:
        x = t.emit(op, x)
    return x


def _binary(op: str, t: NodeTranslation) -> str:
    kind = t.dtype()
    if kind == "bool" and op in ("Mul", "BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        op = {"Mul": "And"}.get(op, op.removeprefix("Bitwise"))
    return t.emit(op, t.as_dtype("self", kind), t.as_dtype("other", kind))


def _scaled(t: NodeTranslation, x: str, factor: float, kind: str) -> str:
    return x if factor == 1 else t.emit("Mul", x, np.array(factor, kind))


def _add(op: str, t: NodeTranslation) -> str:
    kind = t.dtype()
    if kind == "bool":
        return t.emit("Or", t.tensor("self"), t.as_dtype("other", kind))
    a, b = (t.as_dtype(name, kind) for name in ("self", "other"))
    return t.emit(op, a, _scaled(t, b, t.arg("alpha", 1), kind))


def _rsub(t: NodeTranslation) -> str:
    kind = t.dtype()
    a, b = (t.as_dtype(name, kind) for name in ("self", "other"))
    return t.emit("Sub", b, _scaled(t, a, t.arg("alpha", 1), kind))


def _div(t: NodeTranslation) -> str:
    mode, kind = t.arg("rounding_mode"), t.dtype()
    if mode not in (None, "floor", "trunc"):
        raise NotSupportedError(f"division rounded by {mode!r}")
    a, b = t.as_dtype("self", kind), t.as_dtype("other", kind)
    if not kind.startswith("float") and mode == "floor":
        return _floor_quotient(t, a, b)
    y = t.emit("Div", a, b)
    if not kind.startswith("float"):
        return y
    if mode == "trunc":
        return t.emit("Mul", t.emit("Sign", y), t.emit("Floor", t.emit("Abs", y)))
    return t.emit("Floor", y) if mode == "floor" else y


def _floor_quotient(t: NodeTranslation, a: str, b: str) -> str:
    """Return the quotient of integers, rounded down; Mod has the sign of the divisor."""
    return t.emit("Div", t.emit("Sub", a, t.emit("Mod", a, b)), b)


def _floor_divide(t: NodeTranslation) -> str:
    kind = t.dtype()
    a, b = t.as_dtype("self", kind), t.as_dtype("other", kind)
    if kind.startswith("float"):
        return t.emit("Floor", t.emit("Div", a, b))
    return _floor_quotient(t, a, b)


def _remainder(t: NodeTranslation) -> str:
    kind = t.dtype()
    a, b = t.as_dtype("self", kind), t.as_dtype("other", kind)
    if not kind.startswith("float"):
        return t.emit("Mod", a, b)
    return t.emit("Sub", a, t.emit("Mul", t.emit("Floor", t.emit("Div", a, b)), b))


def _fmod(t: NodeTranslation) -> str:
    kind = t.dtype()
    return t.emit("Mod", t.as_dtype("self", kind), t.as_dtype("other", kind), fmod=1)


def _compare(op: str, t: NodeTranslation) -> str:
    kind = t.promoted("self", "other")
    return t.emit(op, t.as_dtype("self", kind), t.as_dtype("other", kind))


def _logical(op: str, t: NodeTranslation) -> str:
    return t.emit(op, *(_as_bool(t, name) for name in ("self", "other")))


def _as_bool(t: NodeTranslation, name: str = "self") -> str:
    x, kind = t.tensor(name), t.type_of(name).dtype
    if kind == "bool":
        return x
    return t.emit("Not", t.emit("Equal", x, np.zeros((), kind)))


def _pow(t: NodeTranslation) -> str:
    kind = t.dtype()
    return t.emit("Pow", t.as_dtype("self", kind), t.as_dtype("exponent", kind))


def _clamp(t: NodeTranslation) -> str:
    kind = t.dtype()
    names = ("min", "max")
    limits = [t.as_dtype(name, kind) if t.has(name) else "" for name in names]
    return t.emit("Clip", t.as_dtype("self", kind), *limits)


def _hardtanh(t: NodeTranslation) -> str:
    limits = (
        np.array(t.arg("min_val", -1.0), t.dtype()),
        np.array(t.arg("max_val", 1.0), t.dtype()),
    )
    return t.emit("Clip", t.tensor("self"), *limits)


def _leaky_relu(t: NodeTranslation) -> str:
    return t.emit("LeakyRelu", t.tensor("self"), alpha=float(t.arg("negative_slope", 0.01)))


def _elu(t: NodeTranslation) -> str:
    if t.arg("input_scale", 1) != 1:
        raise NotSupportedError("an elu with a scaled input")
    y = t.emit("Elu", t.tensor("self"), alpha=float(t.arg("alpha", 1.0)))
    return _scaled(t, y, float(t.arg("scale", 1)), "float32")


def _softplus(t: NodeTranslation) -> str:
    beta, threshold = float(t.arg("beta", 1.0)), float(t.arg("threshold", 20.0))
    x = t.tensor("self")
    scaled = _scaled(t, x, beta, "float32")
    y = _scaled(t, t.emit("Softplus", scaled), 1 / beta, "float32")
    return t.emit("Where", t.emit("Greater", scaled, np.float32(threshold)), x, y)


def _prelu(t: NodeTranslation) -> str:
    slopes, rank = t.shape("weight"), len(t.shape("self"))
    row = slopes if rank < 3 or slopes in ((), (1,)) else (slopes[0], *(1,) * (rank - 2))
    return t.emit("PRelu", t.tensor("self"), t.reshape(t.tensor("weight"), row))


def _glu(t: NodeTranslation) -> str:
    axis, shape = t.axis("dim", len(t.shape("self")), -1), t.shape("self")
    sizes = np.array([shape[axis] // 2] * 2, np.int64)
    a, b = t.emit_all("Split", 2, t.tensor("self"), sizes, axis=axis)
    return t.emit("Mul", a, t.emit("Sigmoid", b))


def _addc(op: str, t: NodeTranslation) -> str:
    pair = t.emit(op, t.tensor("tensor1"), t.tensor("tensor2"))
    return t.emit("Add", t.tensor("self"), _scaled(t, pair, t.arg("value", 1), t.dtype()))


def _lerp(t: NodeTranslation) -> str:
    step = t.emit("Sub", t.tensor("end"), t.tensor("self"))
    return t.emit("Add", t.tensor("self"), t.emit("Mul", t.tensor("weight"), step))


def _log_base(base: float, t: NodeTranslation) -> str:
    return t.emit("Mul", t.emit("Log", _float(t)), np.float32(1 / math.log(base)))


def _where(t: NodeTranslation) -> str:
    kind = t.dtype()
    pick = [t.as_dtype(name, kind) for name in ("self", "other")]
    return t.emit("Where", _as_bool(t, "condition"), *pick)


def _to(t: NodeTranslation) -> str:
    """Convert the element type; other changes (device, memory format) have no effect."""
    source = "self" if "self" in t.node.args else "input"
    kind, x = t.dtype(), t.tensor(source)
    if t.type_of(source).dtype == kind:
        return x
    if kind == "bool":
        return _as_bool(t, source)
    return t.cast(x, kind)


def _copy(t: NodeTranslation) -> str:
    """Write the source over a tensor of another shape or element type."""
    x = t.as_dtype("src", t.dtype())
    shape = t.output_shape()
    return x if t.shape("src") == shape else t.emit("Expand", x, np.array(shape, np.int64))


def _same(t: NodeTranslation) -> str:
    return t.tensor(next(name for name, v in t.node.args.items() if isinstance(v, Ref)))


def _dropout(t: NodeTranslation) -> str:
    if t.arg("train", False) and t.arg("p", 0.5):
        raise NotSupportedError("dropout of a model in training mode; call model.eval() first")
    return _same(t)


def _nothing(t: NodeTranslation) -> Sequence[str]:
    """Check or measure at run time, with no effect on the results."""
    return []


_EXPRESSIONS: dict[str, Translator] = {
    "celu": lambda t: t.emit("Celu", t.tensor("self"), alpha=float(t.arg("alpha", 1.0))),
    "expm1": lambda t: t.emit("Sub", t.emit("Exp", _float(t)), np.float32(1)),
    "gelu": lambda t: t.emit("Gelu", t.tensor("self"), approximate=t.arg("approximate", "none")),
    "hardsigmoid": lambda t: t.emit("HardSigmoid", t.tensor("self"), alpha=1 / 6, beta=0.5),
    "log1p": lambda t: t.emit("Log", t.emit("Add", _float(t), np.float32(1))),
    "log_sigmoid": lambda t: t.emit("Neg", t.emit("Softplus", t.emit("Neg", t.tensor("self")))),
    "logical_not": lambda t: t.emit("Not", _as_bool(t)),
    "masked_fill": lambda t: t.emit(
        "Where", t.tensor("mask"), t.as_dtype("value", t.dtype()), t.tensor("self")
    ),
    "ne": lambda t: t.emit("Not", _compare("Equal", t)),
    "relu6": lambda t: t.emit("Clip", t.tensor("self"), np.float32(0), np.float32(6)),
    "square": lambda t: t.emit("Mul", t.tensor("self"), t.tensor("self")),
}
_SPECIAL: dict[str, Translator] = {
    "_assert_scalar": _nothing, "_assert_tensor_metadata": _nothing, "_to_copy": _to,
    "add": partial(_add, "Add"), "addcdiv": partial(_addc, "Div"),
    "addcmul": partial(_addc, "Mul"), "alias": _same, "alpha_dropout": _dropout,
    "clamp": _clamp, "clamp_max": _clamp, "clamp_min": _clamp, "clone": _same,
    "contiguous": _same, "copy": _copy, "detach": _same, "div": _div, "dropout": _dropout,
    "elu": _elu, "feature_dropout": _dropout, "floor_divide": _floor_divide,
    "fmod": _fmod, "glu": _glu, "hardtanh": _hardtanh, "leaky_relu": _leaky_relu,
    "lerp": _lerp, "lift_fresh_copy": _same, "log10": partial(_log_base, 10),
    "log2": partial(_log_base, 2), "pow": _pow, "prelu": _prelu, "remainder": _remainder,
    "rsqrt": partial(_composed, ("Sqrt", "Reciprocal")), "rsub": _rsub, "softplus": _softplus,
    "sub": partial(_add, "Sub"), "sym_size": _nothing, "to": _to, "type_as": _to, "where": _where,
}  # fmt: skip
_TABLES: dict[str, Translator] = {
    **{name: partial(_unary, op) for name, op in _UNARY.items()},
    **{name: partial(_binary, op) for name, op in _ARITHMETIC.items()},
    **{name: partial(_compare, op) for name, op in _COMPARISONS.items()},
    **{name: partial(_logical, op) for name, op in _LOGICAL.items()},
    **_EXPRESSIONS,
    **_SPECIAL,
}
TRANSLATORS: Translators = {f"aten.{name}": translator for name, translator in _TABLES.items()}
