"""Application of a function-level transformation to all functions of a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from firmwright.ir import tir
from firmwright.ir.module import IRModule


def map_prim_funcs(module: IRModule, change: Callable[[tir.PrimFunc], tir.PrimFunc]) -> IRModule:
    """Apply `change` to every PrimFunc; return the identical module if nothing changes."""
    functions = {
        name: change(func) if isinstance(func, tir.PrimFunc) else func
        for name, func in module.functions.items()
    }
    if all(functions[name] is func for name, func in module.functions.items()):
        return module
    return replace(module, functions=functions)
