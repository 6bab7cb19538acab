"""Substitution in formulas of expression_language.py, and their composition."""

import ast
from collections.abc import Mapping

from firmwright.ops.expression_language import parse


class _NameReplacer(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        text = self._names.get(node.id)
        return node if text is None else ast.parse(text, mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(arg) for arg in node.args]
        return node


def substitute_names(text: str, names: Mapping[str, str]) -> str:
    tree = _NameReplacer(names).visit(ast.parse(text))
    return "; ".join(ast.unparse(statement) for statement in tree.body)


def compose_expressions(
    first: str,
    first_names: Mapping[str, str],
    second: str,
    second_names: Mapping[str, str],
    place: str,
) -> str:
    assigned = {name for name, _ in (*parse(first)[0], *parse(second)[0])}

    def fresh(text: str, reserved: set[str]) -> dict[str, str]:
        """Map the variables of a formula to unused names, and reserve those."""
        names: dict[str, str] = {}
        for name, _ in parse(text)[0]:
            candidate, count = name, 0
            while candidate in reserved:
                count += 1
                candidate = f"{name}_{count}"
            reserved.add(candidate)
            names[name] = candidate
        return names

    reserved: set[str] = set()
    inner = substitute_names(first, {**first_names, **fresh(first, reserved)})
    *before, value = inner.split("; ")
    uses = 0
    for node in ast.walk(ast.parse(second)):
        if isinstance(node, ast.Name) and node.id == place:
            uses += 1
    needs_name = uses > 1 or bool(parse(second)[0])
    result = f"({value})"
    if needs_name:
        result = "part"
        count = 0
        while result in reserved | assigned:
            count += 1
            result = f"part_{count}"
        reserved.add(result)
        before.append(f"{result} = {value}")
    outer_names = {**second_names, **fresh(second, reserved), place: result}
    outer = substitute_names(second, outer_names)
    return "; ".join([*before, outer])
