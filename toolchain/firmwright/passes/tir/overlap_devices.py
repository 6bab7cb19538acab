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

from firmwright.ir.graph.devices import is_copier
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.nodes import (
    Allocate,
    AllocateConst,
    CallPrim,
    DeclBuffer,
    Let,
    PrimFunc,
    Seq,
    Stmt,
)
from firmwright.ir.tir.phases import alone
from firmwright.ir.tir.touched import Regions, Touched, clash
from firmwright.ir.tir.walk import prim_calls

FALLBACK = "fallback"
"""The attribute of a module whose calls may fall back on the main core."""


def run(module: IRModule) -> IRModule:
    """The module with the calls of other devices in two steps."""
    main = module.functions.get(str(module.attrs.get("entry", "main")))
    if not isinstance(main, PrimFunc) or not main.attrs.get("aot_main"):
        return module
    calls = tuple(prim_calls(main.body))
    if not any(call.device for call in calls) or any(call.phase != "call" for call in calls):
        return module
    line = _Line(Touched(main, module.functions), bool(module.attrs.get(FALLBACK)))
    return module.with_function(replace(main, body=_in_scopes(main.body, line)))


def _in_scopes(stmt: Stmt, line: _Line) -> Stmt:
    """`stmt` with its straight line rewritten, which all of its scopes enclose."""
    scopes: list[Allocate | AllocateConst | DeclBuffer | Let] = []
    while isinstance(stmt, Allocate | AllocateConst | DeclBuffer | Let):
        scopes.append(stmt)
        stmt = stmt.body
    body: Stmt = Seq(line.rewritten(stmt.stmts if isinstance(stmt, Seq) else (stmt,)))
    for scope in reversed(scopes):
        body = replace(scope, body=body)
    return body


class _Line:
    """The statements so far, and the calls that are under way behind them."""

    def __init__(self, touched: Touched, fallback: bool) -> None:
        self.touched = touched
        self.fallback = fallback
        self.done: list[Stmt] = []
        self.flying: list[CallPrim] = []

    def rewritten(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        for stmt in stmts:
            device = stmt.device if isinstance(stmt, CallPrim) else ""
            regions = self.touched.of(stmt)
            self._await(regions, device)
            if isinstance(stmt, CallPrim) and device:
                self.done.insert(self._earliest(device, regions), replace(stmt, phase="start"))
                self.flying.append(stmt)
            else:
                self.done.append(stmt)
        for call in self.flying:
            self.done.append(replace(call, phase="wait"))
        self.flying = []
        return tuple(_waits_first(self.done))

    def _await(self, regions: Regions, device: str) -> None:
        """Waits for what is under way and may not be while these regions are touched.

        What the same device began before is over by then: its memory is free too.
        """
        due: dict[str, int] = {}
        for place, call in enumerate(self.flying):
            in_order = bool(device) and call.device == device and not self.fallback
            if not in_order and clash(self.touched.of(call), regions):
                due[call.device] = place
        for place, call in enumerate(tuple(self.flying)):
            if place <= due.get(call.device, -1):
                self.done.append(replace(call, phase="wait"))
                self.flying.remove(call)

    def _earliest(self, device: str, regions: Regions) -> int:
        """Where a call of `device` that touches these regions may begin."""
        place = len(self.done)
        while place and self._may_pass(self.done[place - 1], device, regions):
            place -= 1
        return place

    def _may_pass(self, before: Stmt, device: str, regions: Regions) -> bool:
        own = isinstance(before, CallPrim) and before.device == device
        is_start = isinstance(before, CallPrim) and before.phase == "start"
        if is_start and (own or is_copier(device)):
            return False
        is_ordered = own and not self.fallback
        touched = self.touched.of(alone(before) if isinstance(before, CallPrim) else before)
        return is_ordered or clash(touched, regions) is None


def _waits_first(stmts: list[Stmt]) -> list[Stmt]:
    """Waits before the starts that stand right in front of them: less is under way at once.

    A copy stays in front: it is short, and what is waited for may take long.
    """
    found: list[Stmt] = []
    for stmt in stmts:
        place = len(found)
        if isinstance(stmt, CallPrim) and stmt.phase == "wait":
            while place and _is_start_of_another(found[place - 1], stmt):
                place -= 1
        found.insert(place, stmt)
    return found


def _is_start_of_another(before: Stmt, wait: CallPrim) -> bool:
    if not isinstance(before, CallPrim) or before.phase != "start" or is_copier(before.device):
        return False
    return before != replace(wait, phase="start")


PASS = Pass("overlap-devices", run)
