"""Hoist the scratch buffers of kernels to the AOT main, where the planner places them.

Each global Allocate of a kernel becomes a parameter with role `scratch`, after the others, and each
call of the kernel is wrapped in Allocates for them. All scratch buffers of a kernel are considered
live together. The start and the wait of an asynchronous call share scratch that is allocated around
the whole main.
"""

from dataclasses import replace
from typing import TypeGuard

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.traversal import Node, local_names, statements
from firmwright.ir.tir.verify_async_calls import without_phase


def hoist_scratch(module: IRModule, main: tir.PrimFunc) -> tuple[IRModule, dict[str, str]]:
    """Return the module with hoisted scratch, and the plan name of each scratch buffer of main.

    Plan names are `kernel.buffer`, with the suffix `_2`, `_3`, ... for further calls of the kernel.
    """
    scratch: dict[str, tuple[tir.Buffer, ...]] = {}
    for function in module.functions.values():
        if isinstance(function, tir.PrimFunc) and function.name != main.name:
            nodes = [node for node in statements(function.body) if _is_global_allocate(node)]
            buffers = tuple(node.buffer for node in nodes)
            if buffers:
                scratch[function.name] = buffers
                params = function.params + tuple(tir.Param(buffer, "scratch") for buffer in buffers)
                kernel = rewrite_func(function, _without_global_allocate)
                module = module.with_function(replace(kernel, params=params))
    hoister = _ScratchHoister(scratch, main)
    body = rewrite_func(main, hoister.rule).body
    for buffer in reversed([buffer for own in hoister.phased.values() for buffer in own]):
        body = tir.Allocate(buffer, body, "scratch")
    return module.with_function(replace(main, body=body)), hoister.plan_names


def is_scratch_name(plan_name: str) -> bool:
    """Return whether a plan name denotes a hoisted buffer; all other names are identifiers."""
    return "." in plan_name


def _is_global_allocate(node: Node) -> TypeGuard[tir.Allocate]:
    return isinstance(node, tir.Allocate) and node.buffer.scope == "global"


def _without_global_allocate(node: Node) -> Node | None:
    return node.body if _is_global_allocate(node) else None


class _ScratchHoister:
    def __init__(self, scratch: dict[str, tuple[tir.Buffer, ...]], main: tir.PrimFunc) -> None:
        self.scratch = scratch
        self.supply = UniqueNamer(local_names(main))
        self.plan_names: dict[str, str] = {}
        self.phased: dict[tir.PrimFuncCall, tuple[tir.Buffer, ...]] = {}

    def rule(self, part: Node) -> Node | None:
        if not isinstance(part, tir.PrimFuncCall) or part.callee not in self.scratch:
            return None
        own = self._scratch_of_call(part)
        zero = tir.IntImm(0, INDEX)
        pointers = tuple(tir.AccessPtr(buffer, zero, buffer.span_elements, "rw") for buffer in own)
        body: tir.Stmt = replace(part, args=part.args + pointers)
        for buffer in reversed(own if part.phase == "call" else ()):
            body = tir.Allocate(buffer, body, "scratch")
        return body

    def _scratch_of_call(self, call: tir.PrimFuncCall) -> tuple[tir.Buffer, ...]:
        begun = without_phase(call)
        if call.phase != "call" and begun in self.phased:
            return self.phased[begun]
        own = tuple(self._new_buffer(call.callee, buffer) for buffer in self.scratch[call.callee])
        if call.phase != "call":
            self.phased[begun] = own
        return own

    def _new_buffer(self, kernel: str, buffer: tir.Buffer) -> tir.Buffer:
        name = self.supply.unique(f"{kernel}_{buffer.name}")
        plan_name, count = f"{kernel}.{buffer.name}", 1
        while plan_name in self.plan_names.values():
            count += 1
            plan_name = f"{kernel}.{buffer.name}_{count}"
        self.plan_names[name] = plan_name
        return replace(buffer, name=name)
