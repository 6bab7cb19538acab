"""Application of a function-level transformation to all functions of a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule


def map_graph_functions(module: IRModule, change: Callable[[Function], Function]) -> IRModule:
    """Apply `change` to every graph function; return the identical module if nothing changes."""
    functions = {
        name: change(func) if isinstance(func, Function) else func
        for name, func in module.functions.items()
    }
    if all(functions[name] is func for name, func in module.functions.items()):
        return module
    return replace(module, functions=functions)
