"""Moves kernels' scratch to the AOT main, where the planner sees it.

In: a module whose kernels hold Allocates of global scope, anywhere. Out: the same module in which
each such buffer is a parameter of role `scratch`, after the others, and each call of the kernel
lies in Allocates of its own for them. Two of a kernel's buffers are taken to be live together. The
start and the wait of a call on another device have one scratch, allocated around the whole main.
"""

from __future__ import annotations

from dataclasses import replace

from firmwright.base.names import NameSupply
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.nodes import (
    AccessPtr,
    Allocate,
    Buffer,
    CallPrim,
    IntImm,
    Param,
    PrimFunc,
    Stmt,
)
from firmwright.ir.tir.phases import alone
from firmwright.ir.tir.rewrite import rewrite_func
from firmwright.ir.tir.walk import Node, local_names, statements
from firmwright.usmp.liveness import span_bytes


def lift_scratch(module: IRModule, main: PrimFunc) -> tuple[IRModule, dict[str, str]]:
    """The module with scratch lifted, and what the plan calls each scratch buffer of main.

    That name is `kernel.buffer`, with `_2`, `_3`, ... for the kernel's further calls.
    """
    scratch: dict[str, tuple[Buffer, ...]] = {}
    for function in module.functions.values():
        if isinstance(function, PrimFunc) and function.name != main.name:
            buffers = _scratch_buffers(function)
            if buffers:
                scratch[function.name] = buffers
                module = module.with_function(_with_scratch_params(function, buffers))
    lifter = _Lifter(scratch, main)
    lifted = lifter.around(rewrite_func(main, lifter.rule))
    return module.with_function(lifted), lifter.plan_names


def is_scratch_name(plan_name: str) -> bool:
    """Whether that is what a plan calls a lifted buffer: other names are identifiers."""
    return "." in plan_name


def _scratch_buffers(kernel: PrimFunc) -> tuple[Buffer, ...]:
    return tuple(
        part.buffer
        for part in statements(kernel.body)
        if isinstance(part, Allocate) and part.buffer.scope == "global"
    )


def _with_scratch_params(kernel: PrimFunc, buffers: tuple[Buffer, ...]) -> PrimFunc:
    def without(part: Node) -> Node | None:
        if isinstance(part, Allocate) and part.buffer.scope == "global":
            return part.body
        return None

    added = tuple(Param(buffer, "scratch") for buffer in buffers)
    return replace(rewrite_func(kernel, without), params=kernel.params + added)


class _Lifter:
    """The rewriting of main: names given so far are remembered between its calls."""

    def __init__(self, scratch: dict[str, tuple[Buffer, ...]], main: PrimFunc) -> None:
        self.scratch = scratch
        self.supply = NameSupply(local_names(main))
        self.plan_names: dict[str, str] = {}
        self.phased: dict[CallPrim, tuple[Buffer, ...]] = {}

    def around(self, main: PrimFunc) -> PrimFunc:
        """`main` in the Allocates that belong to no single statement of it."""
        body = main.body
        for buffer in reversed([buffer for own in self.phased.values() for buffer in own]):
            body = Allocate(buffer, body, "scratch")
        return replace(main, body=body)

    def rule(self, part: Node) -> Node | None:
        if not isinstance(part, CallPrim) or part.callee not in self.scratch:
            return None
        own = self._windows(part)
        zero = IntImm(0, INDEX)
        pointers = tuple(
            AccessPtr(buffer, zero, span_bytes(buffer) // buffer.dtype.size_bytes, "rw")
            for buffer in own
        )
        body: Stmt = replace(part, args=part.args + pointers)
        for buffer in reversed(own if part.phase == "call" else ()):
            body = Allocate(buffer, body, "scratch")
        return body

    def _windows(self, call: CallPrim) -> tuple[Buffer, ...]:
        """The scratch of a call: of one in two steps, the same at both."""
        begun = alone(call)
        if call.phase != "call" and begun in self.phased:
            return self.phased[begun]
        own = tuple(self._window(call.callee, buffer) for buffer in self.scratch[call.callee])
        if call.phase != "call":
            self.phased[begun] = own
        return own

    def _window(self, kernel: str, buffer: Buffer) -> Buffer:
        name = self.supply.take(f"{kernel}_{buffer.name}")
        plan_name, count = f"{kernel}.{buffer.name}", 1
        while plan_name in self.plan_names.values():
            count += 1
            plan_name = f"{kernel}.{buffer.name}_{count}"
        self.plan_names[name] = plan_name
        return replace(buffer, name=name)
