"""Operators of complex numbers, which are pairs of floats.

A tensor complex64 [...] is the ONNX value float32 [..., 2] of real and imaginary parts,
and complex128 is float64. Types of the program keep PyTorch's shapes, so that an axis
has the same number in both. Magnitudes are roots of sums of squares, as in the other
frontends: below 1e-19 they are less precise than PyTorch's, whose hypot scales.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.pytorch.operators import elementwise, shapes
from firmwright.frontends.pytorch.operators.shapes import slice_axis, transpose
from firmwright.frontends.pytorch.program import Ref
from firmwright.frontends.pytorch.translation import NodeTranslation, Translators

_PARTS = {"complex64": "float32", "complex128": "float64"}
"""The type of the parts of numbers."""


def is_complex(dtype: str) -> bool:
    return dtype in _PARTS


def as_pairs(array: Array) -> Array:
    """Return complex numbers [...] as floats [..., 2], others unchanged."""
    if not is_complex(array.dtype.name):
        return array
    return np.stack([array.real, array.imag], axis=-1)


def real_type(dtype: str) -> str:
    """Return the type of the parts, or that of numbers that are not complex."""
    return _PARTS.get(dtype, dtype)


def pair_of(t: NodeTranslation, real: str, imaginary: str) -> str:
    """Return the pairs of two values [...]."""
    shape = (*t.output_shape(), 1)
    parts = [t.reshape(part, shape) for part in (real, imaginary)]
    return t.emit("Concat", *parts, axis=len(shape) - 1)


def _part(t: NodeTranslation, x: str, rank: int, part: int) -> str:
    """Return one part of pairs, [..., 1]."""
    return slice_axis(t, x, rank, part, part + 1)


def _rank(t: NodeTranslation, name: str) -> int:
    return len(t.shape(name))


def _result(t: NodeTranslation) -> tuple[int, ...]:
    """Return the shape of the pairs of the result."""
    return (*t.output_shape(), 2)


# ---- pairs and parts -----------------------------------------------------------------


def _real_part(part: int, t: NodeTranslation) -> str:
    x = _part(t, t.tensor("self"), _rank(t, "self"), part)
    return t.reshape(x, t.output_shape())


def _from_parts(t: NodeTranslation) -> str:
    return pair_of(t, t.tensor("real"), t.tensor("imag"))


def _from_polar(t: NodeTranslation) -> str:
    size, angle = t.tensor("abs"), t.tensor("angle")
    real = t.emit("Mul", size, t.emit("Cos", angle))
    return pair_of(t, real, t.emit("Mul", size, t.emit("Sin", angle)))


def _magnitude(t: NodeTranslation) -> str:
    axes = np.array([_rank(t, "self")], np.int64)
    return t.emit("ReduceL2", t.tensor("self"), axes, keepdims=0)


def _angle(t: NodeTranslation) -> str:
    """Return the angle of the pairs, from -pi to pi; that of (0, 0) is 0."""
    x, rank, kind = t.tensor("self"), _rank(t, "self"), t.dtype()
    real, imaginary = (_part(t, x, rank, part) for part in (0, 1))
    zero, pi = np.zeros((), kind), np.array(np.pi, kind)
    half = t.emit("Atan", t.emit("Div", imaginary, real))
    above = t.emit("Where", t.emit("Less", imaginary, zero), -pi, pi)
    turned = t.emit("Add", half, above)
    whole = t.emit("Where", t.emit("Less", real, zero), turned, half)
    is_real = t.emit("Equal", imaginary, zero)
    flat = t.emit("Where", t.emit("Less", real, zero), pi, zero)
    return t.reshape(t.emit("Where", is_real, flat, whole), t.output_shape())


# ---- arithmetic ----------------------------------------------------------------------


def _operand(t: NodeTranslation, name: str) -> tuple[str, bool]:
    """Return an operand whose last axis has its parts, and whether it has both."""
    value, kind = t.node.args.get(name), real_type(t.dtype())
    if isinstance(value, Ref) and is_complex(t.type_of(name).dtype):
        return t.tensor(name), True
    if isinstance(value, bool | int | float):
        return t.constant(np.array([value], kind)), False
    return t.reshape(t.as_dtype(name, kind), (*t.shape(name), 1)), False


def _sum(op: str, t: NodeTranslation) -> str:
    if t.arg("alpha", 1) != 1:
        raise NotSupportedError("a sum of complex numbers with a factor")
    operands: list[str] = []
    for name in ("self", "other"):
        x, is_pair = _operand(t, name)
        if not is_pair:
            # The imaginary part of a real number is zero.
            x = t.emit("Mul", x, np.array([1, 0], real_type(t.dtype())))
        operands.append(x)
    return t.emit(op, *operands)


def _product(t: NodeTranslation) -> str:
    (x, x_is_pair), (y, y_is_pair) = _operand(t, "self"), _operand(t, "other")
    if not (x_is_pair and y_is_pair):
        return t.emit("Mul", x, y)
    return _multiplied(t, x, y)


def _multiplied(t: NodeTranslation, x: str, y: str) -> str:
    rank = len(t.output_shape())
    a, b = (_part(t, x, _rank(t, "self"), part) for part in (0, 1))
    c, d = (_part(t, y, _rank(t, "other"), part) for part in (0, 1))
    real = t.emit("Sub", t.emit("Mul", a, c), t.emit("Mul", b, d))
    imaginary = t.emit("Add", t.emit("Mul", a, d), t.emit("Mul", b, c))
    return t.emit("Concat", real, imaginary, axis=rank)


def _quotient(t: NodeTranslation) -> str:
    """Divide; a complex divisor by its conjugate and the square of its magnitude."""
    (x, x_is_pair), (y, y_is_pair) = _operand(t, "self"), _operand(t, "other")
    if not y_is_pair:
        return t.emit("Div", x, y)
    axes = np.array([_rank(t, "other")], np.int64)
    square = t.emit("ReduceSumSquare", y, axes, keepdims=1)
    conjugate = _mirrored(t, y)
    product = _multiplied(t, x, conjugate) if x_is_pair else t.emit("Mul", x, conjugate)
    return t.emit("Div", product, square)


def _mirrored(t: NodeTranslation, x: str) -> str:
    return t.emit("Mul", x, np.array([1, -1], real_type(t.dtype())))


def _conjugate(t: NodeTranslation) -> str:
    return _mirrored(t, t.tensor("self"))


def _reduced(op: str, t: NodeTranslation) -> str:
    rank = _rank(t, "self")
    axes = sorted(axis % max(rank, 1) for axis in t.ints("dim", 0, range(rank)))
    keep = int(t.arg("keepdim", False))
    return t.emit(op, t.tensor("self"), np.array(axes, np.int64), keepdims=keep)


# ---- movement ------------------------------------------------------------------------


def _reshape(t: NodeTranslation) -> str:
    return t.reshape(t.tensor("self"), _result(t))


def _permuted(t: NodeTranslation, order: Sequence[int]) -> str:
    return transpose(t, t.tensor("self"), [*order, len(order)])


def _permute(t: NodeTranslation) -> str:
    rank = _rank(t, "self")
    return _permuted(t, [axis % rank for axis in t.ints("dims")])


def _swap(t: NodeTranslation) -> str:
    order = list(range(_rank(t, "self")))
    if order:
        first, second = t.axis("dim0", len(order), 0), t.axis("dim1", len(order), 1)
        order[first], order[second] = order[second], order[first]
    return _permuted(t, order)


def _select(t: NodeTranslation) -> str:
    shape = t.shape("self")
    axis, index = t.axis("dim", len(shape), 0), t.arg("index", 0)
    index = index + shape[axis] if index < 0 else index
    part = slice_axis(t, t.tensor("self"), axis, index, index + 1)
    return t.reshape(part, _result(t))


def _stack(t: NodeTranslation) -> str:
    shape = list(_result(t))
    axis = t.axis("dim", len(shape) - 1, 0)
    shape[axis] = 1
    parts = [t.reshape(x, shape) for x in t.tensors("tensors")]
    return t.emit("Concat", *parts, axis=axis)


def _expand(t: NodeTranslation) -> str:
    return t.emit("Expand", t.tensor("self"), np.array(_result(t), np.int64))


def _pad(t: NodeTranslation) -> str:
    """Pad by zeros."""
    if t.arg("value", 0):
        raise NotSupportedError("padding of complex numbers by other values than 0")
    before, after = shapes.margins_of(t.ints("pad"), _rank(t, "self"))
    margins = np.array([*before, 0, *after, 0], np.int64)
    return t.emit("Pad", t.tensor("self"), margins, mode="constant")


_UNCHANGED = ("alias", "clone", "contiguous", "detach", "resolve_conj", "resolve_neg")
_RESHAPES = ("flatten", "reshape", "squeeze", "unflatten", "unsqueeze", "view")
_FROM_SHAPES = ("cat", "flip", "narrow", "slice")
"""Operators that move pairs as they move numbers."""
COMPLEX_TRANSLATORS: Translators = {
    **dict.fromkeys(_UNCHANGED, elementwise.TRANSLATORS["alias"]),
    **dict.fromkeys((*_RESHAPES, "_unsafe_view"), _reshape),
    **{name: shapes.TRANSLATORS[name] for name in _FROM_SHAPES},
    **dict.fromkeys(("_conj", "_conj_physical", "conj", "conj_physical"), _conjugate),
    "abs": _magnitude,
    "add": partial(_sum, "Add"),
    "angle": _angle,
    "complex": _from_parts,
    "constant_pad_nd": _pad,
    "div": _quotient,
    "expand": _expand,
    "imag": partial(_real_part, 1),
    "mean": partial(_reduced, "ReduceMean"),
    "mul": _product,
    "neg": lambda t: t.emit("Neg", t.tensor("self")),
    "permute": _permute,
    "polar": _from_polar,
    "real": partial(_real_part, 0),
    "select": _select,
    "stack": _stack,
    "sub": partial(_sum, "Sub"),
    "sum": partial(_reduced, "ReduceSum"),
    "swapaxes": _swap,
    "transpose": _swap,
    "view_as_complex": elementwise.TRANSLATORS["alias"],
    "view_as_real": elementwise.TRANSLATORS["alias"],
}
"""Operators with a complex operand or result, by their names."""
