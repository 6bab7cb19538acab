"""The formula language of `expression` calls, evaluated in numpy and lowered to TIR.

A formula has Python syntax, such as `t = exp(a); t / (1.0 + t)`: assignments, then one
value. Inputs are named a, b, c and so on. Both operands of an operator have the same
element type; a literal takes that of the other operand. Integers wrap, their division
truncates toward zero, and both have a result for all operands
(integer_arithmetic.py). Functions:
`where(condition, a, b)`, min, max, abs, pow, fmod, the short names of
libm_intrinsics.py (`log1p`), element types as conversions (`int32(a)`), and the number
with the same bits (`int32_of_bits(a)`). `inf` and `nan` are literals.
min and max are the last operand if one is NaN: `max(0.0, a)` keeps NaN, `max(a, 0.0)`
makes it 0.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from firmwright.base.dtypes import (
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    Array,
    DType,
    find_dtype,
)
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.tir.affine import Bounds
from firmwright.ir.tir.builder import (
    ArithExpr,
    Builder,
    as_expr,
    binary_expr,
    immediate,
    logical_not,
    select,
)
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ir.tir.expr_evaluation import FLOAT_EXTREMES
from firmwright.ir.tir.intervals import fits_dtype
from firmwright.ops.integer_arithmetic import (
    divide_expr,
    quotient,
    remainder,
    wrapped_expr,
)
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.ops.storage_types import convert, convert_expr

V = TypeVar("V")
Number: TypeAlias = bool | int | float
"""A literal of a formula."""
INPUT_NAMES = "abcdefghijklmnopqrstuvwxyz"

_BIT_WORDS = {kind.bits: kind for kind in (INT8, INT16, INT32, INT64)}
_FLOAT_OF_BITS = {FLOAT32: "float_of_bits", FLOAT64: "double_of_bits"}

_OPERATORS: Mapping[type[ast.AST], tir.BinaryOp] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Mod: "mod",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.And: "and",
    ast.Or: "or",
}


class ExpressionAlgebra(Protocol[V]):
    """The operations of a formula on values `V`; of literals alone, it is a literal."""

    def binary(self, op: tir.BinaryOp, a: V | Number, b: V | Number) -> V:
        """Return `a op b`, also for min and max."""

    def logical_not(self, a: V | Number) -> V:
        """Return true where `a` is false."""

    def where(self, condition: V | Number, a: V | Number, b: V | Number) -> V:
        """Return `a` where the condition is true, else `b`."""

    def function(self, name: str, args: Sequence[V | Number]) -> V:
        """Return the float function `name` of `args`, in the type of the first value.

        That type is float32 or float64.
        """

    def cast(self, value: V | Number, dtype: DType) -> V:
        """Return `value` converted to `dtype`."""

    def bitwise_not(self, a: V | Number) -> V:
        """Return an integer with all bits inverted."""

    def of_bits(self, value: V, dtype: DType) -> V:
        """Return the number of `dtype` with the bits of `value`, which has its size."""

    def bind(self, name: str, value: V | Number) -> V | Number:
        """Name `value`; return the value or a reference to it."""


@cache
def parse(text: str) -> tuple[tuple[tuple[str, ast.expr], ...], ast.expr]:
    """Return (assignments, result); InternalError if `text` is not a valid formula."""
    try:
        body = ast.parse(text).body
    except SyntaxError as error:
        raise InternalError(f"invalid expression: {text!r}") from error
    assigned: list[tuple[str, ast.expr]] = []
    for statement in body[:-1]:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name), *_], value=value):
                assigned.append((name, value))
            case _:
                raise InternalError(f"expected an assignment in {text!r}")
    if not body or not isinstance(body[-1], ast.Expr):
        raise InternalError(f"expected a value at the end of {text!r}")
    return tuple(assigned), body[-1].value


def evaluate(
    text: str, inputs: Sequence[V], algebra: ExpressionAlgebra[V]
) -> V | Number:
    """Return the value of the formula for `inputs`, computed by `algebra`."""
    assigned, result = parse(text)
    scope: dict[str, V | Number] = dict(zip(INPUT_NAMES, inputs, strict=False))
    for name, value in assigned:
        assigned_value: V | Number = _value(value, scope, algebra)
        scope[name] = algebra.bind(name, assigned_value)
    return _value(result, scope, algebra)


def _value(
    node: ast.expr, scope: Mapping[str, V | Number], algebra: ExpressionAlgebra[V]
) -> V | Number:
    def value_of(child: ast.expr) -> V | Number:
        return _value(child, scope, algebra)

    match node:
        case ast.Name(id="inf" | "nan" as name):
            return float(name)
        case ast.Name(id=name) if name in scope:
            return scope[name]
        case ast.Constant(value=bool() | int() | float() as number):
            return number
        case ast.UnaryOp(
            op=ast.USub(), operand=ast.Constant(value=int() | float() as number)
        ):
            return -number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return float("-inf")
        case ast.UnaryOp(op=op, operand=operand):
            return _unary(op, value_of(operand), algebra)
        case ast.BinOp(left=left, op=op, right=right):
            return algebra.binary(_OPERATORS[type(op)], value_of(left), value_of(right))
        case ast.BoolOp(op=op, values=values):
            result = value_of(values[0])
            for item in values[1:]:
                result = algebra.binary(_OPERATORS[type(op)], result, value_of(item))
            return result
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return algebra.binary(_OPERATORS[type(op)], value_of(left), value_of(right))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _function(name, [value_of(arg) for arg in args], algebra)
    raise InternalError(f"unsupported syntax in an expression: {ast.unparse(node)!r}")


def _unary(op: ast.unaryop, value: V | Number, algebra: ExpressionAlgebra[V]) -> V:
    match op:
        case ast.Not():
            return algebra.logical_not(value)
        case ast.Invert():
            return algebra.bitwise_not(value)
        case ast.USub():
            return algebra.binary("sub", 0, value)
    raise InternalError("unsupported unary operator")


def _function(
    name: str, args: Sequence[V | Number], algebra: ExpressionAlgebra[V]
) -> V | Number:
    match name:
        case "where":
            return algebra.where(*args)
        case "min" | "max":
            result = args[0]
            for item in args[1:]:
                result = algebra.binary(name, result, item)
            return result
        case "abs":
            smaller = algebra.binary("lt", args[0], 0)
            return algebra.where(smaller, algebra.binary("sub", 0, args[0]), args[0])
    dtype = find_dtype(name)
    if dtype is not None:
        return algebra.cast(args[0], dtype)
    of_bits = find_dtype(name.removesuffix("_of_bits"))
    if of_bits is not None and not isinstance(args[0], bool | int | float):
        return algebra.of_bits(args[0], of_bits)
    if f"{name}_f32" not in BASE_INTRINSICS:
        raise InternalError(f"unknown function in an expression: {name!r}")
    return algebra.function(name, args)


# ---- in TIR --------------------------------------------------------------------------


class TirAlgebra:
    """Builds TIR expressions, and binds names with `let`.

    The bounds of the integers so bound show which results may not fit.
    """

    def __init__(
        self, bind: Callable[[str, ArithExpr], ArithExpr] = lambda name, x: x
    ) -> None:
        self._bind = bind
        self._bounds = Bounds()

    def binary(
        self, op: tir.BinaryOp, a: ArithExpr | Number, b: ArithExpr | Number
    ) -> ArithExpr:
        if op not in ("div", "mod"):
            return wrapped_expr(op, a, b, self._bounds)
        if isinstance(a, ArithExpr) and a.expr.dtype.is_int and b in (0, -1):
            b = ArithExpr(as_expr(b, a.expr.dtype))
        if isinstance(b, ArithExpr) and b.expr.dtype.is_int:
            return divide_expr(op, a, self._bind("divisor", b))
        return binary_expr(op, a, b)

    def logical_not(self, a: ArithExpr | Number) -> ArithExpr:
        return logical_not(a)

    def where(
        self,
        condition: ArithExpr | Number,
        a: ArithExpr | Number,
        b: ArithExpr | Number,
    ) -> ArithExpr:
        return select(condition, a, b)

    def function(self, name: str, args: Sequence[ArithExpr | Number]) -> ArithExpr:
        typed = [arg.expr.dtype for arg in args if isinstance(arg, ArithExpr)]
        dtype = FLOAT64 if FLOAT64 in typed else FLOAT32
        return intrinsic(f"{name}_{dtype.short}", args, dtype, like=dtype)

    def cast(self, value: ArithExpr | Number, dtype: DType) -> ArithExpr:
        if not isinstance(value, ArithExpr):
            value = ArithExpr(immediate(value, dtype.computed))
        return convert_expr(value, dtype)

    def bitwise_not(self, a: ArithExpr | Number) -> ArithExpr:
        term = a if isinstance(a, ArithExpr) else ArithExpr(as_expr(a))
        dtype = term.expr.dtype
        return binary_expr("xor", term, -1 if dtype.signed else dtype.max)

    def of_bits(self, value: ArithExpr, dtype: DType) -> ArithExpr:
        source = value.expr.dtype
        word = _BIT_WORDS[dtype.bits]
        if source.is_float:
            value = intrinsic(f"bits_of_{source.short}", [value], word)
        if not dtype.is_float:
            return value.cast(dtype)
        return intrinsic(_FLOAT_OF_BITS[dtype], [value.cast(word)], dtype)

    def bind(self, name: str, value: ArithExpr | Number) -> ArithExpr | Number:
        if not isinstance(value, ArithExpr):
            return value
        bound = self._bind(name, value)
        if isinstance(bound.expr, tir.Var):
            self._bounds = self._bounds.with_let(bound.expr, value.expr)
        return bound

    def sums_fit(self, value: ArithExpr | Number, dtype: DType, terms: int) -> bool:
        """Return whether no sum of up to `terms` such integers is beyond `dtype`."""
        limits = self._bounds.interval_of(as_expr(value, dtype))
        return limits is not None and all(
            fits_dtype((end * terms, end * terms), dtype) for end in limits
        )


def lower_expression(b: Builder, text: str, inputs: Sequence[ArithExpr]) -> ArithExpr:
    """Emit variables for the assignments of the formula and yield its value."""

    def let(name: str, value: ArithExpr) -> ArithExpr:
        return b.let(name, value)

    bound = [let(name, value) for name, value in zip(INPUT_NAMES, inputs, strict=False)]
    result = evaluate(text, bound, TirAlgebra(let))
    if isinstance(result, ArithExpr):
        return result
    return ArithExpr(as_expr(result, FLOAT32))


def result_dtype(text: str, inputs: Sequence[ArithExpr]) -> DType:
    result = evaluate(text, inputs, TirAlgebra())
    return result.expr.dtype if isinstance(result, ArithExpr) else FLOAT32


# ---- in numpy ------------------------------------------------------------------------


class NumpyAlgebra:
    """Evaluates on arrays; operations round to their element type, as in the C code."""

    def binary(self, op: tir.BinaryOp, a: Array | Number, b: Array | Number) -> Array:
        a, b = _to_common_dtype(a, b)
        kind = np.asarray(a).dtype.kind
        match op:
            case "div" if kind in "iu":
                return quotient(a, b)
            case "mod" if kind in "iu":
                return remainder(a, b)
            case "and" | "or" | "xor" if kind == "b":
                return _NUMPY[f"logical_{op}"](a, b)
            case "min" | "max" if kind == "f":
                return np.asarray(FLOAT_EXTREMES[op](a, b))
        return _NUMPY[op](a, b)

    def logical_not(self, a: Array | Number) -> Array:
        return np.logical_not(a)

    def where(
        self, condition: Array | Number, a: Array | Number, b: Array | Number
    ) -> Array:
        a, b = _to_common_dtype(a, b)
        return np.where(condition, a, b)

    def function(self, name: str, args: Sequence[Array | Number]) -> Array:
        typed = [arg.dtype for arg in args if isinstance(arg, np.ndarray | np.generic)]
        dtype = FLOAT64 if FLOAT64.np in typed else FLOAT32
        values = (np.asarray(arg, dtype.np) for arg in args)
        return np.asarray(BASE_INTRINSICS[f"{name}_{dtype.short}"].meaning(*values))

    def cast(self, value: Array | Number, dtype: DType) -> Array:
        return convert(np.asarray(value), dtype)

    def bitwise_not(self, a: Array | Number) -> Array:
        return np.invert(a)

    def of_bits(self, value: Array, dtype: DType) -> Array:
        return np.ascontiguousarray(value).view(dtype.np).reshape(np.shape(value))

    def bind(self, name: str, value: Array | Number) -> Array | Number:
        return value


_NUMPY: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "mod": np.fmod,
    "min": np.minimum,
    "max": np.maximum,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def _to_common_dtype(a: Array | Number, b: Array | Number) -> tuple[Array, Array]:
    """Convert literals to arrays, of the other operand's type if that is an array."""
    if isinstance(a, bool | int | float):
        if isinstance(b, bool | int | float):
            has_float = isinstance(a, float) or isinstance(b, float)
            kind = FLOAT32.np if has_float else INT64.np
            return np.asarray(a, kind), np.asarray(b, kind)
        return np.asarray(a, np.asarray(b).dtype), b
    if isinstance(b, bool | int | float):
        return a, np.asarray(b, np.asarray(a).dtype)
    return a, b


def evaluate_in_numpy(text: str, inputs: Sequence[Array]) -> Array:
    """Return the value of the formula for whole arrays, which broadcast."""
    with np.errstate(all="ignore"):
        return np.asarray(evaluate(text, inputs, NumpyAlgebra()))
