"""Judges what other devices do while the AOT main goes on.

In: an AOT main and the kernels it calls. Out: a line for everything that is wrong. A device does
its calls one after the other, in the order of their starts. The invariants:

* On every path each start has one wait behind it, equal but for the phase, and each wait a start
  before it: a wait for what has not begun never ends.
* Branches, and each round of a loop, leave the same calls under way.
* What a call under way touches is its own: nobody else writes it, and nobody reads what it writes.
  Calls of the same device may, since they run in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from firmwright.ir import tir
from firmwright.ir.module import AnyFunction
from firmwright.ir.tir.memory_effects import MemoryEffectAnalysis, MemoryEffects, find_conflict
from firmwright.ir.tir.traversal import children, prim_calls

CallsInFlight = tuple[tir.PrimFuncCall, ...]
"""Calls that have begun and are not over, in the order of their starts, as they would be alone."""


def diagnose_async_calls(main: tir.PrimFunc, functions: Mapping[str, AnyFunction]) -> list[str]:
    """A line for everything that is wrong with the starts and waits of `main`."""
    if all(call.phase == "call" for call in prim_calls(main.body)):
        return []
    judge = _AsyncCallVerifier(MemoryEffectAnalysis(main, functions))
    for call in judge.walk(main.body, ()):
        judge.problem(f"{_format_call(call)} is started and never waited for")
    return judge.problems


def without_phase(call: tir.PrimFuncCall) -> tir.PrimFuncCall:
    """`call` as it would be in one step: what a start and its wait have in common."""
    return replace(call, phase="call")


def _format_call(call: tir.PrimFuncCall) -> str:
    op = f" op {call.op}" if call.op >= 0 else ""
    return f"@{call.callee}{op} on {call.device or 'no device'}"


@dataclass
class _AsyncCallVerifier:
    touched: MemoryEffectAnalysis
    problems: list[str] = field(default_factory=list)

    def problem(self, what: str) -> None:
        if what not in self.problems:
            self.problems.append(what)

    def walk(self, stmt: tir.Stmt, flying: CallsInFlight) -> CallsInFlight:
        """What is under way behind `stmt`."""
        match stmt:
            case tir.Seq(stmts):
                for part in stmts:
                    flying = self.walk(part, flying)
                return flying
            case tir.PrimFuncCall():
                return self._call(stmt, flying)
            case tir.If(_, then, orelse):
                self._others(self.touched.own(stmt), flying, "a condition")
                after = self.walk(then, flying)
                other = self.walk(orelse, flying) if orelse is not None else flying
                self._same(after, other, "on one path of a branch only")
                return tuple(call for call in after if call in other)
            case tir.For() | tir.While():
                self._others(self.touched.own(stmt), flying, "a loop's head")
                self._same(self.walk(stmt.body, flying), flying, "by one round of a loop only")
                return flying
            case _:
                self._others(self.touched.own(stmt), flying, "a statement")
                for inner in children(stmt):
                    flying = self.walk(inner, flying) if isinstance(inner, tir.Stmt) else flying
                return flying

    def _call(self, call: tir.PrimFuncCall, flying: CallsInFlight) -> CallsInFlight:
        own = without_phase(call)
        if call.phase == "wait":
            if own not in flying:
                self.problem(
                    f"{_format_call(call)} is waited for but not under way: that never ends"
                )
            return tuple(other for other in flying if other != own)
        foreign = tuple(c for c in flying if not call.device or c.device != call.device)
        self._others(self.touched.of(call), foreign, _format_call(call))
        if call.phase == "call":
            return flying
        if not call.device:
            self.problem(f"@{call.callee} is started on no device")
        if own in flying:
            self.problem(f"{_format_call(call)} is started again while it is under way")
            return flying
        return (*flying, own)

    def _others(self, regions: MemoryEffects, flying: CallsInFlight, what: str) -> None:
        for other in flying:
            found = find_conflict(self.touched.of(other), regions)
            if found is not None:
                does = "writes" if found.written else "reads"
                self.problem(
                    f"{what} {does} {found.root} [{found.first}, {found.end}) "
                    f"while {_format_call(other)} is under way"
                )

    def _same(self, one: CallsInFlight, other: CallsInFlight, where: str) -> None:
        for call in (*one, *other):
            if (call in one) != (call in other):
                self.problem(f"{_format_call(call)} is started or waited for {where}")
