"""Applying a change of one PrimFunc to all of a module: what most TIR passes are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from firmwright.ir.module import IRModule
from firmwright.ir.tir.nodes import PrimFunc


def each_prim_func(module: IRModule, change: Callable[[PrimFunc], PrimFunc]) -> IRModule:
    """`module` with `change` applied to its PrimFuncs; `module` itself if nothing changed."""
    functions = {
        name: change(func) if isinstance(func, PrimFunc) else func
        for name, func in module.functions.items()
    }
    if all(functions[name] is func for name, func in module.functions.items()):
        return module
    return replace(module, functions=functions)
