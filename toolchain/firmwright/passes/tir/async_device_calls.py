"""Splits calls on other devices into an early start and a late wait (decision 0058).

Runs before planning. A call starts as soon as its inputs are available, even while an
earlier one is in flight on the device, and is awaited just before its memory is needed
elsewhere, within its branch or loop iteration.

A copy starts at most one call in advance, so that two buffers suffice. With the module
attribute `fallback`, a call starts only after its dependencies are complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from firmwright.ir import tir
from firmwright.ir.graph.devices import is_copy_device, is_core
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.memory_effects import (
    MemoryEffectAnalysis,
    MemoryEffects,
    find_conflict,
)
from firmwright.ir.tir.traversal import Node, map_children, prim_calls
from firmwright.ir.tir.verify_async_calls import without_phase


def run(module: IRModule) -> IRModule:
    main = module.find_entry()
    if not isinstance(main, tir.PrimFunc) or not main.attrs.get("aot_main"):
        return module
    calls = tuple(prim_calls(main.body))
    if not any(call.device for call in calls):
        return module
    if any(call.phase != "call" for call in calls):
        return module
    analysis = MemoryEffectAnalysis(main, module.functions)
    scheduler = _CallScheduler(analysis, module.settings.devices.has_fallback)
    return module.with_function(replace(main, body=scheduler.in_scopes(main.body)))


_Scope = tir.Allocate | tir.AllocateConst | tir.DeclBuffer | tir.Let


@dataclass
class _CallScheduler:
    """Scheduler of a sequence, and of those inside its statements."""

    analysis: MemoryEffectAnalysis
    fallback: bool
    done: list[tir.Stmt] = field(default_factory=list)
    in_flight: list[tir.PrimFuncCall] = field(default_factory=list)

    def in_scopes(self, stmt: tir.Stmt) -> tir.Stmt:
        scopes: list[_Scope] = []
        while isinstance(stmt, _Scope):
            scopes.append(stmt)
            stmt = stmt.body
        inner = _CallScheduler(self.analysis, self.fallback)
        body: tir.Stmt = tir.Seq(inner.schedule(_parts(stmt)))
        for scope in reversed(scopes):
            body = replace(scope, body=body)
        return body

    def schedule(self, stmts: Iterable[tir.Stmt]) -> tuple[tir.Stmt, ...]:
        for stmt in map(self._with_inner_calls, stmts):
            device = stmt.device if isinstance(stmt, tir.PrimFuncCall) else ""
            regions = self.analysis.effects_of(stmt)
            self._await(regions, device)
            if isinstance(stmt, tir.PrimFuncCall) and device:
                # The start moves up as far as nothing before it conflicts: the earlier
                # it is, the longer the device and the core work at the same time.
                #
                #     core     a | b | c | wait d          start d has passed b and c
                #     device       d --------->
                position = len(self.done)
                while position and self._may_pass(
                    self.done[position - 1], device, regions
                ):
                    position -= 1
                self.done.insert(position, replace(stmt, phase="start"))
                self.in_flight.append(stmt)
            else:
                self.done.append(stmt)
        self.done += [replace(call, phase="wait") for call in self.in_flight]
        return tuple(_waits_first(self.done))

    def _with_inner_calls(self, stmt: tir.Stmt) -> tir.Stmt:
        if not isinstance(stmt, tir.If | tir.For | tir.While):
            return stmt

        def changed(node: Node) -> Node:
            return self.in_scopes(node) if isinstance(node, tir.Stmt) else node

        return map_children(stmt, changed)

    def _await(self, regions: MemoryEffects, device: str) -> None:
        """Wait for calls in flight that conflict with the next statement's effects.

        Earlier calls on the same device, and earlier copies on all channels, are
        awaited too.
        """
        due: dict[str, int] = {}
        for position, call in enumerate(self.in_flight):
            in_order = bool(device) and call.device == device and not self.fallback
            if not in_order and find_conflict(self.analysis.effects_of(call), regions):
                due[_queue(call)] = position
        for position, call in enumerate(tuple(self.in_flight)):
            # A queue works in order: what started before an awaited call has ended.
            if position <= due.get(_queue(call), -1):
                self.done.append(replace(call, phase="wait"))
                self.in_flight.remove(call)

    def _may_pass(self, before: tir.Stmt, device: str, regions: MemoryEffects) -> bool:
        same_device = isinstance(before, tir.PrimFuncCall) and before.device == device
        is_start = isinstance(before, tir.PrimFuncCall) and before.phase == "start"
        if is_start and (same_device or is_copy_device(device)):
            return False
        is_ordered = same_device and not self.fallback
        if isinstance(before, tir.PrimFuncCall):
            before = without_phase(before)
        effects = self.analysis.effects_of(before)
        return is_ordered or find_conflict(effects, regions) is None


def _queue(call: tir.PrimFuncCall) -> str:
    return "dma" if is_copy_device(call.device) else call.device


def _parts(stmt: tir.Stmt) -> Iterator[tir.Stmt]:
    if not isinstance(stmt, tir.Seq):
        yield stmt
        return
    for part in stmt.stmts:
        yield from _parts(part)


def _waits_first(stmts: list[tir.Stmt]) -> list[tir.Stmt]:
    """Move waits before directly preceding starts: fewer calls are in flight."""
    # The starts of copies and of other engines come first: they are short, but the
    # awaited call may be long.
    reordered: list[tir.Stmt] = []
    for stmt in stmts:
        position = len(reordered)
        if isinstance(stmt, tir.PrimFuncCall) and stmt.phase == "wait":
            while position and _is_start_of_another(reordered[position - 1], stmt):
                position -= 1
        reordered.insert(position, stmt)
    return reordered


def _is_start_of_another(before: tir.Stmt, wait: tir.PrimFuncCall) -> bool:
    if not isinstance(before, tir.PrimFuncCall) or is_copy_device(before.device):
        return False
    devices = {before.device, wait.device}
    if len(devices) > 1 and not any(is_core(d) or is_copy_device(d) for d in devices):
        return False
    return before.phase == "start" and before != replace(wait, phase="start")


PASS = Pass("async-device-calls", run)
