"""Lets other devices work while the main core goes on: their calls become a start and a wait.

In: the AOT main, before planning, whose calls say which device does them. Out: the same calls; each
of another device is begun as soon as what it reads is there, and waited for just before somebody
needs what it works on. Only the main's straight line is changed: calls in branches and loops stay
in one step. Invariants: a device does its calls in the order they had, so a call may begin behind
one of its own device that it depends on; between a start and its wait nobody else touches what the
call touches, except to read what it reads. A copy begins behind the start that stands before it,
one call ahead and no more: so two buffers do for what comes in by parts. With the module's
attribute `fallback`, where the main core may have to do a call instead, it does not begin before
those that it depends on are over.
"""

from __future__ import annotations

from dataclasses import replace

from firmwright.ir import tir
from firmwright.ir.graph.devices import is_copy_device
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.async_calls import without_phase
from firmwright.ir.tir.memory_effects import MemoryEffectAnalysis, MemoryEffects, find_conflict
from firmwright.ir.tir.traversal import prim_calls

FALLBACK_ATTR = "fallback"
"""The attribute of a module whose calls may fall back on the main core."""


def run(module: IRModule) -> IRModule:
    """The module with the calls of other devices in two steps."""
    main = module.functions.get(str(module.attrs.get("entry", "main")))
    if not isinstance(main, tir.PrimFunc) or not main.attrs.get("aot_main"):
        return module
    calls = tuple(prim_calls(main.body))
    if not any(call.device for call in calls) or any(call.phase != "call" for call in calls):
        return module
    line = _CallScheduler(
        MemoryEffectAnalysis(main, module.functions), bool(module.attrs.get(FALLBACK_ATTR))
    )
    return module.with_function(replace(main, body=_in_scopes(main.body, line)))


def _in_scopes(stmt: tir.Stmt, line: _CallScheduler) -> tir.Stmt:
    """`stmt` with its straight line rewritten, which all of its scopes enclose."""
    scopes: list[tir.Allocate | tir.AllocateConst | tir.DeclBuffer | tir.Let] = []
    while isinstance(stmt, tir.Allocate | tir.AllocateConst | tir.DeclBuffer | tir.Let):
        scopes.append(stmt)
        stmt = stmt.body
    body: tir.Stmt = tir.Seq(line.rewritten(stmt.stmts if isinstance(stmt, tir.Seq) else (stmt,)))
    for scope in reversed(scopes):
        body = replace(scope, body=body)
    return body


class _CallScheduler:
    """The statements so far, and the calls that are under way behind them."""

    def __init__(self, touched: MemoryEffectAnalysis, fallback: bool) -> None:
        self.touched = touched
        self.fallback = fallback
        self.done: list[tir.Stmt] = []
        self.flying: list[tir.PrimFuncCall] = []

    def rewritten(self, stmts: tuple[tir.Stmt, ...]) -> tuple[tir.Stmt, ...]:
        for stmt in stmts:
            device = stmt.device if isinstance(stmt, tir.PrimFuncCall) else ""
            regions = self.touched.of(stmt)
            self._await(regions, device)
            if isinstance(stmt, tir.PrimFuncCall) and device:
                self.done.insert(self._earliest(device, regions), replace(stmt, phase="start"))
                self.flying.append(stmt)
            else:
                self.done.append(stmt)
        for call in self.flying:
            self.done.append(replace(call, phase="wait"))
        self.flying = []
        return tuple(_waits_first(self.done))

    def _await(self, regions: MemoryEffects, device: str) -> None:
        """Waits for what is under way and may not be while these regions are touched.

        What the same device began before is over by then: its memory is free too.
        """
        due: dict[str, int] = {}
        for place, call in enumerate(self.flying):
            in_order = bool(device) and call.device == device and not self.fallback
            if not in_order and find_conflict(self.touched.of(call), regions):
                due[call.device] = place
        for place, call in enumerate(tuple(self.flying)):
            if place <= due.get(call.device, -1):
                self.done.append(replace(call, phase="wait"))
                self.flying.remove(call)

    def _earliest(self, device: str, regions: MemoryEffects) -> int:
        """Where a call of `device` that touches these regions may begin."""
        place = len(self.done)
        while place and self._may_pass(self.done[place - 1], device, regions):
            place -= 1
        return place

    def _may_pass(self, before: tir.Stmt, device: str, regions: MemoryEffects) -> bool:
        own = isinstance(before, tir.PrimFuncCall) and before.device == device
        is_start = isinstance(before, tir.PrimFuncCall) and before.phase == "start"
        if is_start and (own or is_copy_device(device)):
            return False
        is_ordered = own and not self.fallback
        touched = self.touched.of(
            without_phase(before) if isinstance(before, tir.PrimFuncCall) else before
        )
        return is_ordered or find_conflict(touched, regions) is None


def _waits_first(stmts: list[tir.Stmt]) -> list[tir.Stmt]:
    """Waits before the starts that stand right in front of them: less is under way at once.

    A copy stays in front: it is short, and what is waited for may take long.
    """
    found: list[tir.Stmt] = []
    for stmt in stmts:
        place = len(found)
        if isinstance(stmt, tir.PrimFuncCall) and stmt.phase == "wait":
            while place and _is_start_of_another(found[place - 1], stmt):
                place -= 1
        found.insert(place, stmt)
    return found


def _is_start_of_another(before: tir.Stmt, wait: tir.PrimFuncCall) -> bool:
    if (
        not isinstance(before, tir.PrimFuncCall)
        or before.phase != "start"
        or is_copy_device(before.device)
    ):
        return False
    return before != replace(wait, phase="start")


PASS = Pass("async-device-calls", run)
