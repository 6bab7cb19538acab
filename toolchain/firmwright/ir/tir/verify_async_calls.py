"""Verification of calls that run on other devices while the AOT main continues.

A device executes its calls in the order of their starts. Invariants:

* Each start has on every path exactly one later wait, which differs only in the phase.
  Each wait has an earlier start.
* Both branches of an `If`, and each iteration of a loop, leave the same calls in
  flight.
* While a call is in flight, other devices neither write memory that it accesses nor
  read memory that it writes. Calls on the same device may, since they run in order.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from firmwright.ir import tir
from firmwright.ir.module import AnyFunction
from firmwright.ir.tir.memory_effects import (
    MemoryEffectAnalysis,
    MemoryEffects,
    find_conflict,
)
from firmwright.ir.tir.traversal import children, prim_calls

CallsInFlight = tuple[tir.PrimFuncCall, ...]
"""Started calls that are not yet complete, in start order, without their phase."""


def diagnose_async_calls(
    main: tir.PrimFunc, functions: Mapping[str, AnyFunction]
) -> list[str]:
    if all(call.phase == "call" for call in prim_calls(main.body)):
        return []
    verifier = _AsyncCallVerifier(MemoryEffectAnalysis(main, functions))
    for call in verifier.walk(main.body, ()):
        verifier.report(f"{_format_call(call)} is started but never awaited")
    return verifier.diagnostics


def without_phase(call: tir.PrimFuncCall) -> tir.PrimFuncCall:
    """Return `call` without its phase, so that a start and its wait compare equal."""
    return replace(call, phase="call")


def _format_call(call: tir.PrimFuncCall) -> str:
    op = f" op {call.op}" if call.op >= 0 else ""
    return f"@{call.callee}{op} on {call.device or 'no device'}"


@dataclass
class _AsyncCallVerifier:
    analysis: MemoryEffectAnalysis
    diagnostics: list[str] = field(default_factory=list)

    def report(self, message: str) -> None:
        if message not in self.diagnostics:
            self.diagnostics.append(message)

    def walk(self, stmt: tir.Stmt, in_flight: CallsInFlight) -> CallsInFlight:
        match stmt:
            case tir.Seq(stmts):
                for part in stmts:
                    in_flight = self.walk(part, in_flight)
                return in_flight
            case tir.PrimFuncCall():
                return self._call(stmt, in_flight)
            case tir.If(_, then, orelse):
                self._check_conflicts(
                    self.analysis.own_effects_of(stmt), in_flight, "a condition"
                )
                after = self.walk(then, in_flight)
                other = in_flight if orelse is None else self.walk(orelse, in_flight)
                self._check_same(after, other, "in only one branch")
                return tuple(call for call in after if call in other)
            case tir.For() | tir.While():
                self._check_conflicts(
                    self.analysis.own_effects_of(stmt), in_flight, "a loop's head"
                )
                after = self.walk(stmt.body, in_flight)
                self._check_same(after, in_flight, "by only one loop iteration")
                return in_flight
            case _:
                self._check_conflicts(
                    self.analysis.own_effects_of(stmt), in_flight, "a statement"
                )
                for inner in children(stmt):
                    if isinstance(inner, tir.Stmt):
                        in_flight = self.walk(inner, in_flight)
                return in_flight

    def _call(self, call: tir.PrimFuncCall, in_flight: CallsInFlight) -> CallsInFlight:
        own = without_phase(call)
        if call.phase == "wait":
            if own not in in_flight:
                self.report(f"{_format_call(call)} is awaited but not in flight")
            return tuple(other for other in in_flight if other != own)
        others = in_flight
        if call.device:
            others = tuple(c for c in in_flight if c.device != call.device)
        effects = self.analysis.effects_of(call)
        self._check_conflicts(effects, others, _format_call(call))
        if call.phase == "call":
            return in_flight
        if not call.device:
            self.report(f"@{call.callee} is started on no device")
        if own in in_flight:
            self.report(f"{_format_call(call)} is started again while it is in flight")
            return in_flight
        return (*in_flight, own)

    def _check_conflicts(
        self, effects: MemoryEffects, in_flight: CallsInFlight, subject: str
    ) -> None:
        for other in in_flight:
            effect = find_conflict(self.analysis.effects_of(other), effects)
            if effect is not None:
                does = "writes" if effect.written else "reads"
                place = f"{effect.root} [{effect.first}, {effect.end})"
                during = f"while {_format_call(other)} is in flight"
                self.report(f"{subject} {does} {place} {during}")

    def _check_same(self, one: CallsInFlight, other: CallsInFlight, where: str) -> None:
        for call in (*one, *other):
            if (call in one) != (call in other):
                self.report(f"{_format_call(call)} is started or awaited {where}")
