"""Hoist the scratch buffers of kernels to the AOT main, where the planner places them.

Each global Allocate of a kernel becomes a parameter with role `scratch`, after the
others, and each call of the kernel is wrapped in Allocates for them. All scratch
buffers of a kernel are live together; those of asynchronous calls are live in the whole
main.
"""

import itertools
from dataclasses import dataclass, replace
from typing import TypeGuard

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.kernel_code import code_of, with_code
from firmwright.ir.tir.traversal import (
    Node,
    local_names,
    rewrite_func,
    rewrite_stmt,
    statements,
)
from firmwright.ir.tir.verify_async_calls import without_phase


@dataclass(frozen=True, slots=True)
class HoistedCode:
    """The code of a kernel, the code without global Allocates, and their buffers."""

    original: tir.Stmt
    code: tir.Stmt
    scratch: tuple[tir.Buffer, ...]


def hoist_scratch(
    module: IRModule, main: tir.PrimFunc, hoisted: dict[int, HoistedCode]
) -> tuple[IRModule, dict[str, str]]:
    """Return the module with hoisted scratch, and the plan name of each buffer of it.

    Plan names are `kernel.buffer`, with the suffix `_2`, `_3`, ... for further calls of
    the kernel. `hoisted` stores the results by identity of the code for later calls.
    """
    scratch: dict[str, tuple[tir.Buffer, ...]] = {}
    functions = dict(module.functions)
    for function in module.functions.values():
        if not isinstance(function, tir.PrimFunc) or function.name == main.name:
            continue
        code = code_of(function.body)
        item = hoisted.get(id(code)) or _hoist(code)
        hoisted[id(code)] = item
        if item.scratch:
            scratch[function.name] = item.scratch
            added = tuple(tir.Param(buffer, "scratch") for buffer in item.scratch)
            params = function.params + added
            body = with_code(function.body, item.code)
            functions[function.name] = replace(function, params=params, body=body)
    hoister = _ScratchHoister(scratch, main)
    body = rewrite_func(main, hoister.rule).body
    asynchronous = itertools.chain.from_iterable(hoister.phased.values())
    body = _allocate_around(body, tuple(asynchronous))
    functions[main.name] = replace(main, body=body)
    return replace(module, functions=functions), hoister.plan_names


def _allocate_around(body: tir.Stmt, buffers: tuple[tir.Buffer, ...]) -> tir.Stmt:
    """Wrap `body` in Allocates of scratch, that of the first buffer outermost."""
    for buffer in reversed(buffers):
        body = tir.Allocate(buffer, body, "scratch")
    return body


def _hoist(code: tir.Stmt) -> HoistedCode:
    scratch: list[tir.Buffer] = []
    for node in statements(code):
        if _is_global_allocate(node):
            scratch.append(node.buffer)
    if not scratch:
        return HoistedCode(code, code, ())

    def rule(node: Node) -> Node | None:
        return node.body if _is_global_allocate(node) else None

    return HoistedCode(code, rewrite_stmt(code, rule), tuple(scratch))


def is_scratch_name(plan_name: str) -> bool:
    """Return whether a plan name denotes a hoisted buffer; others are identifiers."""
    return "." in plan_name


def _is_global_allocate(node: Node) -> TypeGuard[tir.Allocate]:
    return isinstance(node, tir.Allocate) and node.buffer.scope == "global"


class _ScratchHoister:
    """Gives the calls of a main their scratch, and names it.

    `scratch` are the buffers by kernel, `plan_names` the plan name of each new buffer,
    and `phased` the buffers that the start and the wait of an asynchronous call share.
    """

    def __init__(
        self, scratch: dict[str, tuple[tir.Buffer, ...]], main: tir.PrimFunc
    ) -> None:
        self.scratch = scratch
        self.names = UniqueNamer(local_names(main))
        self.taken: set[str] = set()
        self.plan_names: dict[str, str] = {}
        self.phased: dict[tir.PrimFuncCall, tuple[tir.Buffer, ...]] = {}

    def rule(self, part: Node) -> Node | None:
        """Rewrite a call with scratch; synchronous calls also allocate it."""
        if not isinstance(part, tir.PrimFuncCall) or part.callee not in self.scratch:
            return None
        own = self._scratch_of_call(part)
        args = list(part.args)
        start = tir.IntImm(0, INDEX)
        for buffer in own:
            args.append(tir.AccessPtr(buffer, start, buffer.span_elements, "rw"))
        call = replace(part, args=tuple(args))
        # The Allocate of a synchronous call encloses the call alone, so that other
        # calls can use its bytes. That of an asynchronous one encloses the main: start
        # and wait are apart.
        return _allocate_around(call, own) if part.phase == "call" else call

    def _scratch_of_call(self, call: tir.PrimFuncCall) -> tuple[tir.Buffer, ...]:
        begun = without_phase(call)
        if call.phase != "call" and begun in self.phased:
            return self.phased[begun]
        buffers: list[tir.Buffer] = []
        for buffer in self.scratch[call.callee]:
            buffers.append(self._new_buffer(call.callee, buffer))
        own = tuple(buffers)
        if call.phase != "call":
            self.phased[begun] = own
        return own

    def _new_buffer(self, kernel: str, buffer: tir.Buffer) -> tir.Buffer:
        name = self.names.unique(f"{kernel}_{buffer.name}")
        plan_name = f"{kernel}.{buffer.name}"
        count = 1
        while plan_name in self.taken:
            count += 1
            plan_name = f"{kernel}.{buffer.name}_{count}"
        self.taken.add(plan_name)
        self.plan_names[name] = plan_name
        return replace(buffer, name=name)
