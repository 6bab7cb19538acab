"""Operators of formulas.txt, which describes its notation."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from firmwright.base.errors import InternalError, NotSupportedError
from firmwright.base.text_sections import read_sections
from firmwright.frontends.pytorch.translation import (
    NodeTranslation,
    Translator,
    Translators,
)


def as_bool(t: NodeTranslation, name: str = "self") -> str:
    x, kind = t.tensor(name), t.type_of(name).dtype
    if kind == "bool":
        return x
    return t.emit("Not", t.emit("Equal", x, np.zeros((), kind)))


def scaled(t: NodeTranslation, x: str, factor: float, kind: str) -> str:
    return x if factor == 1 else t.emit("Mul", x, np.array(factor, kind))


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "as_is": NodeTranslation.tensor,
    "axis": lambda t, name, default=None: t.axis(name, len(t.shape("self")), default),
    "common": lambda t, name, other: t.as_dtype(name, t.promoted(name, other)),
    "maybe": lambda t, name: t.as_dtype(name, t.dtype()) if t.has(name) else "",
    "number": lambda t, name, default: np.array(t.arg(name, default), t.dtype()),
    "setting": NodeTranslation.arg,
    "truth": as_bool,
}
"""Functions of the names of arguments, as written in a formula."""


@dataclass(frozen=True, slots=True)
class _Evaluation:
    t: NodeTranslation
    arguments: dict[str, str] = field(default_factory=dict)

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.IfExp(test=ast.Name(id=kind), body=body, orelse=other):
                return self.value(body if self.t.dtype().startswith(kind) else other)
            case ast.Name(id=name):
                if name not in self.arguments:
                    self.arguments[name] = self.t.as_dtype(name, self.t.dtype())
                return self.arguments[name]
            case ast.Constant(value=int() | float() as value):
                return self.t.real(value)
            case ast.Call(func=ast.Name(id="scaled"), args=[x, ast.Name(id=name)]):
                y = self.value(x)
                return scaled(self.t, y, self.t.arg(name, 1), self.t.dtype())
            case ast.Call(func=ast.Name(id=name), args=args) if name in _FUNCTIONS:
                return _FUNCTIONS[name](self.t, *map(_literal, args))
            case ast.Call(func=ast.Name(id=op), args=args, keywords=keywords):
                inputs = [self.value(arg) for arg in args]
                attrs = {str(item.arg): self.attribute(item.value) for item in keywords}
                return self.t.emit(op, *inputs, **attrs)
        raise InternalError(f"this is no formula: {ast.unparse(node)}")

    def attribute(self, node: ast.expr) -> Any:
        return node.value if isinstance(node, ast.Constant) else self.value(node)


def _literal(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def _translate(formula: ast.expr, unless: str, message: str, t: NodeTranslation) -> str:
    if unless and t.arg(unless):
        raise NotSupportedError(message)
    return str(_Evaluation(t).value(formula))


def _read_formulas() -> Translators:
    table: dict[str, Translator] = {}
    for line in read_sections(__file__, ".txt")["aten"].splitlines():
        names, _, text = line.partition(": ")
        text, _, exception = text.partition(" unless ")
        unless, _, message = exception.partition(": ")
        formula = ast.parse(text, mode="eval").body
        translator = partial(_translate, formula, unless, message)
        table |= dict.fromkeys(names.split(), translator)
    return table


TRANSLATORS: Translators = _read_formulas()
