"""Sizes of a program that depend on those of its inputs, as torch.export stores them.

A size is the text of an expression of symbols, such as `Mul(Integer(2), Symbol('s27'))`
or `2*s27`. It is evaluated here for sizes of the inputs, and never executed as Python.
"""

import ast
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from firmwright.base.errors import ModelError

_FUNCTIONS: Final[Mapping[str, Callable[..., int]]] = {
    "Add": lambda *values: sum(values),
    "Mul": lambda *values: math.prod(values),
    "Pow": lambda a, b: a ** min(b, _POWER_MAX),
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "IntTrueDiv": lambda a, b: a // b,
    "floor": lambda a: a,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "Max": max,
    "Min": min,
    "Integer": int,
}
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_SIZE_MAX: Final = 1 << 31
_POWER_MAX: Final = 31
_TEXT_MAX: Final = 1_000
"""The longest text of a size; those of real programs have some tens of characters."""


def size_at(text: str, sizes: Mapping[str, int], file: str) -> int:
    """Return the value of a size; ModelError for an expression of another kind."""
    try:
        value = _value(_parsed(text, file), sizes)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise _no_size(text, file) from error
    if not 0 <= value < _SIZE_MAX:
        raise ModelError(f"the size {text[:80]} is {value}.", where=file)
    return value


def symbol_of(text: str, file: str) -> str:
    """Return the symbol that a size is, or "" for an expression of it."""
    match _parsed(text, file):
        case (
            ast.Name(id=name)
            | ast.Call(
                func=ast.Name(id="Symbol"), args=[ast.Constant(value=str() as name)]
            )
        ):
            return name
    return ""


@lru_cache(1024)
def _parsed(text: str, file: str) -> ast.expr:
    try:
        if len(text) > _TEXT_MAX:
            raise ValueError(len(text))
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _no_size(text, file) from error


def _no_size(text: str, file: str) -> ModelError:
    what = f"the size {text[:80]} is no expression of sizes of inputs."
    hint = "--input-shape with a fixed size; or export without dynamic_shapes."
    return ModelError(what, where=file, hint=hint)


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return sizes[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, sizes)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, sizes), _value(right, sizes))
        case ast.Call(
            func=ast.Name(id="Symbol"), args=[ast.Constant(value=str() as name)]
        ):
            return sizes[name]
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*(_value(arg, sizes) for arg in args))
    raise TypeError(ast.unparse(node))
