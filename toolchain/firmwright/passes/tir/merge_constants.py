"""Merges constants with equal bytes and dtype into one entry of the table: the first of them.

In: a module at any stage. Out: every use of a later twin names the first; the twins are gone. At
the graph level a constant's shape is part of a value's type, so there shapes must be equal too.
What state is reset to stays apart: kernels' constants may go where only kernels find them.
"""

from __future__ import annotations

from dataclasses import replace

from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.traversal import Node
from firmwright.passes.map_functions import map_prim_funcs


def find_duplicates(module: IRModule) -> dict[str, str]:
    """For each constant with an equal one before it in the table, the first such."""
    apart = {state.initial for state in module.io.state}
    by_shape = any(isinstance(func, Function) for func in module.functions.values())
    for func in module.functions.values():
        if isinstance(func, Function):
            apart |= {state.initial for state in func.state}
    first: dict[tuple[str, str, tuple[int, ...]], str] = {}
    found: dict[str, str] = {}
    for name, constant in module.constants.items():
        if name in apart:
            continue
        kept = first.setdefault(_key(constant, by_shape), name)
        if kept != name:
            found[name] = kept
    return found


def _key(constant: Constant, by_shape: bool) -> tuple[str, str, tuple[int, ...]]:
    return (constant.dtype.name, constant.digest, constant.shape if by_shape else ())


def run(module: IRModule) -> IRModule:
    """Merges equal constants of the whole module."""
    moved = find_duplicates(module)
    if not moved:
        return module

    def rule(node: Node) -> Node | None:
        if isinstance(node, tir.AllocateConst) and node.constant in moved:
            return replace(node, constant=moved[node.constant])
        return None

    def change(func: tir.PrimFunc) -> tir.PrimFunc:
        return rewrite_func(func, rule)

    module = map_prim_funcs(module, change)
    kept = {name: value for name, value in module.constants.items() if name not in moved}
    functions = {
        name: _graph_function(func, moved) if isinstance(func, Function) else func
        for name, func in module.functions.items()
    }
    return replace(module, functions=functions, constants=kept)


def _graph_function(func: Function, moved: dict[str, str]) -> Function:
    calls = tuple(
        replace(
            call,
            inputs=tuple(
                replace(value, constant=moved[value.constant])
                if value is not None and value.constant in moved
                else value
                for value in call.inputs
            ),
        )
        for call in func.body
    )
    return func if calls == func.body else replace(func, body=calls)


PASS = Pass("merge-constants", run)
