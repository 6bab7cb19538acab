"""Descriptions of attributes for the page of operators, from their classes' source."""

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache

from firmwright.ir.graph.attributes.base import OpAttrs


def attribute_descriptions(attributes: type[OpAttrs]) -> dict[str, str]:
    """Return the strings below the fields of a class, inherited ones too, by field."""
    found: dict[str, str] = {}
    for owner in reversed(attributes.__mro__):
        if issubclass(owner, OpAttrs):
            found |= _described_fields(owner)
    return found


def _described_fields(owner: type[OpAttrs]) -> dict[str, str]:
    tree = _classes_in(owner.__module__)[owner.__name__]
    found: dict[str, str] = {}
    for field, following in zip(tree.body, tree.body[1:], strict=False):
        match field, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


@cache  # a module has the classes of many operators
def _classes_in(module: str) -> Mapping[str, ast.ClassDef]:
    body = ast.parse(inspect.getsource(sys.modules[module])).body
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}
