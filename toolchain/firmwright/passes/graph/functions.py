"""A pass over graph functions as one over modules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule


def map_graph_functions(module: IRModule, change: Callable[[Function], Function]) -> IRModule:
    """`change` on every graph function; the same module where none changes."""
    functions = {
        name: change(func) if isinstance(func, Function) else func
        for name, func in module.functions.items()
    }
    if all(functions[name] is func for name, func in module.functions.items()):
        return module
    return replace(module, functions=functions)
