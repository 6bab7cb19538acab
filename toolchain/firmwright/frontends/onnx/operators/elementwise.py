"""Elementwise operators: `expression`, or `relu` and `relu6`, which layers can fuse."""

import math
import re
from collections.abc import Mapping
from functools import partial, reduce

import numpy as np

from firmwright.base.dtypes import BOOL, FLOAT8_E8M0FNU, FLOAT32, DType
from firmwright.base.errors import NotSupportedError
from firmwright.base.text_sections import read_sections
from firmwright.frontends.onnx import node_context
from firmwright.frontends.onnx.float8_saturation import FLOAT8_ENDS, saturated_float8
from firmwright.frontends.onnx.node_context import (
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
)
from firmwright.frontends.onnx.protobuf import dtype_name
from firmwright.ops.formula_texts import substitute_names


def _read_table(text: str) -> dict[str, str]:
    """Return the formulas by operator."""
    return dict(row.split(": ") for row in text.splitlines())


_FLOAT_FORMULAS, _FORMULAS, _FORMULAS_WITH_ATTRS = map(
    _read_table, read_sections(__file__, ".txt").values()
)


def float32_literal(value: float) -> str:
    return repr(float(np.float32(value)))


def float_literal(value: float, dtype: DType) -> str:
    """Return a number of `dtype`, float32 or float64, as a formula's literal."""
    return repr(float(dtype.np.type(value)))


def require_float32(c: NodeContext, count: int = 1) -> None:
    for index in range(count):
        if c.dtype(index) != FLOAT32:
            raise NotSupportedError(f"{c.dtype(index).name} elements")


def require_floats(c: NodeContext, count: int = 1) -> None:
    """Refuse a node unless its first `count` inputs are float32 or float64."""
    for index in range(count):
        if not c.dtype(index).is_float:
            raise NotSupportedError(f"{c.dtype(index).name} elements")


def _float_formula(formula: str, c: NodeContext) -> OnnxValue:
    require_floats(c)
    return c.emit.expression(formula, c.input(0))


def _formula(formula: str, c: NodeContext) -> OnnxValue:
    letters = set(re.findall(r"\b[a-z]\b", formula))
    count = max(len(c.inputs), len(letters))
    return c.emit.expression(formula, *map(c.input, range(count)))


def _formula_with_attrs(formula: str, attributes: str, c: NodeContext) -> OnnxValue:
    require_floats(c)
    values: dict[str, str] = {}
    for item in attributes.split(", "):
        name, default = item.split("=")
        # Attributes are float32, except those of PyTorch's doubles.
        value = c.attr(name, float(np.float32(default)))
        values[name] = float_literal(value, c.dtype(0))
    return c.emit.expression(substitute_names(formula, values), c.input(0))


def _sign(c: NodeContext) -> OnnxValue:
    # What is neither above nor below zero, also NaN, is its own sign.
    formula = "where(a > 0, K(1), where(a < 0, K(-1), a))".replace("K", c.dtype(0).name)
    return c.emit.expression(formula, c.input(0))


def _relu(c: NodeContext) -> OnnxValue:
    if c.dtype(0) == FLOAT32:
        return c.emit.call("relu", c.input(0))
    return c.emit.expression("max(0, a)", c.input(0))


def _gelu(c: NodeContext) -> OnnxValue:
    require_floats(c)
    if c.attr("approximate", "none") == "tanh":
        root = float_literal(math.sqrt(2 / math.pi), c.dtype(0))
        formula = f"0.5 * a * (1.0 + tanh({root} * (a + 0.044715 * a * a * a)))"
    else:
        root = float_literal(-math.sqrt(0.5), c.dtype(0))
        formula = f"0.5 * a * erfc(a * {root})"
    return c.emit.expression(formula, c.input(0))


def _prelu(c: NodeContext) -> OnnxValue:
    slope, shape = c.input(1), c.shape(0)
    if len(shape) > 2 and slope.shape == (shape[1],) and shape[-1] != shape[1]:
        # Older files have one slope per channel.
        slope = c.emit.reshape(slope, (shape[1], *(1,) * (len(shape) - 2)))
    return c.emit.expression("where(a < 0, b * a, a)", c.input(0), slope)


def _clip_limit(c: NodeContext, index: int) -> OnnxValue | None:
    limit = c.optional(index)
    if isinstance(limit, ConstantValue) and limit.array.size == 0:
        return None
    return limit


def _clip(c: NodeContext) -> OnnxValue:
    x = c.input(0)
    low = _clip_limit(c, 1)
    high = _clip_limit(c, 2)
    starts_at_zero = isinstance(low, ConstantValue) and c.scalar(1, "limits") == 0
    if c.dtype(0) == FLOAT32 and starts_at_zero:
        if high is None:
            return c.emit.call("relu", x)
        if isinstance(high, ConstantValue) and c.scalar(2, "limits") == 6:
            return c.emit.call("relu6", x)
    # The standard does not define crossed limits; the upper one wins. NaN stays.
    if low is not None and high is not None:
        return c.emit.expression("min(c, max(b, a))", x, low, high)
    if low is not None:
        return c.emit.expression("max(b, a)", x, low)
    return x if high is None else c.emit.expression("min(b, a)", x, high)


def _pow(c: NodeContext) -> OnnxValue:
    x, y, kind = c.input(0), c.input(1), c.dtype(0)
    has_more_axes = len(y.shape) > len(x.shape)
    if isinstance(y, ConstantValue) and y.array.size == 1 and not has_more_axes:
        power = float(y.array.item())
        if power in (1.0, 2.0, 3.0, 4.0):
            return c.emit.expression(" * ".join("a" * int(power)), x)
        if power == 0.5 and kind.is_float:
            return c.emit.expression("sqrt(a)", x)
    if kind.is_float:
        return c.emit.expression(f"pow(a, {kind.name}(b))", x, y)
    if y.type.dtype.is_float:
        power_kind = y.type.dtype.name
        return c.emit.cast(c.emit.expression(f"pow({power_kind}(a), b)", x, y), kind)
    raise NotSupportedError("an integer power that is not constant")


_FLOORED = "where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)"
"""Converts `rest`, the remainder with a's sign, to the one with b's sign."""


def _mod(c: NodeContext) -> OnnxValue:
    rest = "fmod(a, b)" if c.dtype(0).is_float else "a % b"
    if c.attr("fmod", 0) or not c.dtype(0).signed:
        return c.emit.expression(rest, c.input(0), c.input(1))
    return c.emit.expression(f"rest = {rest}; {_FLOORED}", c.input(0), c.input(1))


def _shift(c: NodeContext) -> OnnxValue:
    direction, kind = c.attr("direction"), c.dtype(0)
    if direction not in ("LEFT", "RIGHT"):
        raise NotSupportedError(f"direction {direction!r}")
    # A shift by the width or more leaves only the sign; in C it is undefined.
    inside = f"b < {kind.bits}" if not kind.signed else f"(b >= 0) & (b < {kind.bits})"
    amount = f"where({inside}, b, {kind.name}({kind.bits - 1}))"
    if direction == "RIGHT" and kind.signed:
        return _formula(f"a >> {amount}", c)
    sign = "<<" if direction == "LEFT" else ">>"
    return _formula(f"where({inside}, a {sign} {amount}, {kind.name}(0))", c)


def _variadic(join: str, c: NodeContext) -> OnnxValue:
    return reduce(lambda a, b: c.emit.expression(join, a, b), c.all_inputs())


def _extreme(function: str, c: NodeContext) -> OnnxValue:
    """Return `max` or `min` of all inputs; of floats, NaN if any is NaN."""

    def join(x: OnnxValue, y: OnnxValue) -> OnnxValue:
        if isinstance(y, ConstantValue) and not _has_nan(y):
            return c.emit.expression(f"{function}(b, a)", x, y)
        is_number = isinstance(x, ConstantValue) and not _has_nan(x)
        if is_number or not c.dtype(0).is_float:
            return c.emit.expression(f"{function}(a, b)", x, y)
        # The function is its last operand if one is NaN.
        return c.emit.expression(f"where(a != a, a, {function}(a, b))", x, y)

    return reduce(join, c.all_inputs())


def _has_nan(x: ConstantValue) -> bool:
    return bool(np.any(x.array != x.array))


def _mean(c: NodeContext) -> OnnxValue:
    require_floats(c, len(c.inputs))
    return c.emit.expression(f"a / {float(len(c.inputs))}", _variadic("a + b", c))


def _is_inf(c: NodeContext) -> OnnxValue:
    require_floats(c)
    terms = []
    if c.attr("detect_positive", 1):
        terms.append("(a == inf)")
    if c.attr("detect_negative", 1):
        terms.append("(a == -inf)")
    formula = " | ".join(terms) or "(a == inf) & (a != a)"  # the latter is never true
    return c.emit.expression(formula, c.input(0))


def _dropout(c: NodeContext) -> list[OnnxValue]:
    is_training = c.has(2) and c.scalar(2, "training modes")
    if is_training and (not c.has(1) or c.scalar(1, "ratios") != 0):
        raise NotSupportedError(
            "random numbers of a dropout in training mode; export the model for "
            "inference"
        )
    mask = c.emit.const(np.ones(c.shape(0), BOOL.np), "mask")
    return [c.input(0), mask][: max(1, len(c.outputs))]


def _cast(c: NodeContext) -> OnnxValue:
    name = dtype_name(int(c.attr("to", 0)))
    return _cast_to(node_context.supported_dtype(name), c)


def _cast_to(dtype: DType, c: NodeContext) -> OnnxValue:
    x = c.input(0)
    if dtype is FLOAT8_E8M0FNU and c.attr("round_mode", "up") != "up":
        raise NotSupportedError(f"rounding {c.attr('round_mode')}")
    if dtype in FLOAT8_ENDS and x.type.dtype != dtype and c.attr("saturate", 1):
        return saturated_float8(c.emit, c.emit.cast(x, FLOAT32), dtype)
    return c.emit.cast(x, dtype)


def _importers_of_formulas() -> dict[str, Importer]:
    importers: dict[str, Importer] = {}
    for name, formula in _FLOAT_FORMULAS.items():
        importers[name] = partial(_float_formula, formula)
    for name, formula in _FORMULAS.items():
        importers[name] = partial(_formula, formula)
    for head, formula in _FORMULAS_WITH_ATTRS.items():
        # OPERATOR(ATTRIBUTE=DEFAULT, ...)
        name, _, attributes = head.partition("(")
        importers[name] = partial(_formula_with_attrs, formula, attributes[:-1])
    return importers


IMPORTERS: Mapping[str, Importer] = {
    **_importers_of_formulas(),
    "BitShift": _shift,
    "Cast": _cast,
    "CastLike": lambda c: _cast_to(c.dtype(1), c),
    "Clip": _clip,
    "Dropout": _dropout,
    "Gelu": _gelu,
    "Identity": lambda c: c.input(0),
    "IsInf": _is_inf,
    "Max": partial(_extreme, "max"),
    "Mean": _mean,
    "Min": partial(_extreme, "min"),
    "Mod": _mod,
    "PRelu": _prelu,
    "Pow": _pow,
    "Relu": _relu,
    "Sign": _sign,
    "Sum": partial(_variadic, "a + b"),
}
