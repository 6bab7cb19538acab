"""Functions of subgraphs that branches and loops run; their variables are operands."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from firmwright.base.errors import NotSupportedError
from firmwright.frontends.tflite.import_context import ImportSession
from firmwright.frontends.tflite.variables import (
    Variable,
    VariableTable,
    shared_variable_key,
)
from firmwright.ir.graph.nodes import Function

Shape: TypeAlias = tuple[int, ...]
ImportBranch: TypeAlias = Callable[
    [str, int, Mapping[int, Shape]], tuple[VariableTable, Function]
]
"""Imports a subgraph as (variables, function) from name, index and shapes of inputs."""


def shared_variables(
    session: ImportSession,
    indices: Mapping[str, int],
    shapes: Sequence[Shape],
    import_branch: ImportBranch,
) -> tuple[dict[Hashable, Variable], list[Hashable]]:
    """Return the subgraphs' variables by key in this graph, and the assigned keys.

    Subgraphs that no other call has run are imported.
    """
    shared: dict[Hashable, Variable] = {}
    changed: dict[Hashable, None] = {}
    for attr, index in indices.items():
        if index not in session.branches:
            params = session.raw.subgraphs[index].inputs
            known = dict(zip(params, shapes, strict=False))
            session.branches[index] = import_branch(f"{attr}_{index}", index, known)
        variables, _ = session.branches[index]
        if variables.initial_values:
            raise NotSupportedError(
                "variables that are initialized inside a branch or loop"
            )
        for own, variable in variables.known.items():
            key = shared_variable_key(index, own)
            shared.setdefault(key, variable)
            if variable.current != variable.value:
                changed[key] = None
        if attr == "cond" and changed:
            raise NotSupportedError("a variable that a loop's condition assigns")
    return shared, list(changed)


def branch_function(
    session: ImportSession,
    attr: str,
    index: int,
    variables: Mapping[Hashable, Variable],
    assigned: Sequence[Hashable],
) -> str:
    """Return the name of a subgraph's function with `variables` as operands."""
    table, function = session.branches[index]
    name = f"{attr}_{index}"
    if variables:
        name += f"_{len(session.functions)}"
    if name not in session.functions:
        function = table.with_operands(function, index, variables, assigned)
        session.functions[name] = replace(function, name=name)
    return name
