"""Hoist the scratch buffers of kernels to the AOT main, where the planner places them.

Each global Allocate of a kernel becomes a parameter with role `scratch`, after the others, and each
call of the kernel is wrapped in Allocates for them. All scratch buffers of a kernel are considered
live together. The start and the wait of an asynchronous call share scratch that is allocated around
the whole main.
"""

from __future__ import annotations

from dataclasses import replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.async_calls import without_phase
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.traversal import Node, local_names, statements
from firmwright.usmp.planning_input import footprint_bytes


def hoist_scratch(module: IRModule, main: tir.PrimFunc) -> tuple[IRModule, dict[str, str]]:
    """Return the module with hoisted scratch, and the plan name of each scratch buffer of main.

    Plan names are `kernel.buffer`, with the suffix `_2`, `_3`, ... for further calls of the kernel.
    """
    scratch: dict[str, tuple[tir.Buffer, ...]] = {}
    for function in module.functions.values():
        if isinstance(function, tir.PrimFunc) and function.name != main.name:
            buffers = _scratch_buffers(function)
            if buffers:
                scratch[function.name] = buffers
                module = module.with_function(_with_scratch_params(function, buffers))
    lifter = _ScratchHoister(scratch, main)
    lifted = lifter.wrap(rewrite_func(main, lifter.rule))
    return module.with_function(lifted), lifter.plan_names


def is_scratch_name(plan_name: str) -> bool:
    """Return whether a plan name denotes a hoisted buffer; all other names are identifiers."""
    return "." in plan_name


def _scratch_buffers(kernel: tir.PrimFunc) -> tuple[tir.Buffer, ...]:
    return tuple(
        part.buffer
        for part in statements(kernel.body)
        if isinstance(part, tir.Allocate) and part.buffer.scope == "global"
    )


def _with_scratch_params(kernel: tir.PrimFunc, buffers: tuple[tir.Buffer, ...]) -> tir.PrimFunc:
    def without(part: Node) -> Node | None:
        if isinstance(part, tir.Allocate) and part.buffer.scope == "global":
            return part.body
        return None

    added = tuple(tir.Param(buffer, "scratch") for buffer in buffers)
    return replace(rewrite_func(kernel, without), params=kernel.params + added)


class _ScratchHoister:
    def __init__(self, scratch: dict[str, tuple[tir.Buffer, ...]], main: tir.PrimFunc) -> None:
        self.scratch = scratch
        self.supply = UniqueNamer(local_names(main))
        self.plan_names: dict[str, str] = {}
        self.phased: dict[tir.PrimFuncCall, tuple[tir.Buffer, ...]] = {}

    def wrap(self, main: tir.PrimFunc) -> tir.PrimFunc:
        body = main.body
        for buffer in reversed([buffer for own in self.phased.values() for buffer in own]):
            body = tir.Allocate(buffer, body, "scratch")
        return replace(main, body=body)

    def rule(self, part: Node) -> Node | None:
        if not isinstance(part, tir.PrimFuncCall) or part.callee not in self.scratch:
            return None
        own = self._scratch_of_call(part)
        zero = tir.IntImm(0, INDEX)
        pointers = tuple(
            tir.AccessPtr(buffer, zero, footprint_bytes(buffer) // buffer.dtype.size_bytes, "rw")
            for buffer in own
        )
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
