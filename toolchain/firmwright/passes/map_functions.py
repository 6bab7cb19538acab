"""Application of a function-level transformation to all functions of a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from firmwright.ir import tir
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import AnyFunction, IRModule

F = TypeVar("F", Function, tir.PrimFunc)


def map_prim_funcs(module: IRModule, change: Callable[[tir.PrimFunc], tir.PrimFunc]) -> IRModule:
    """Apply `change` to every PrimFunc; return the identical module if nothing changes."""
    return _map_functions(module, tir.PrimFunc, change)


def map_graph_functions(module: IRModule, change: Callable[[Function], Function]) -> IRModule:
    return _map_functions(module, Function, change)


def _map_functions(module: IRModule, kind: type[F], change: Callable[[F], F]) -> IRModule:
    functions: dict[str, AnyFunction] = {
        name: change(func) if isinstance(func, kind) else func
        for name, func in module.functions.items()
    }
    if all(functions[name] is func for name, func in module.functions.items()):
        return module
    return replace(module, functions=functions)
