"""Mutants of split calls: starts and waits that are dropped, doubled or moved.

The model runs on two cores. The IR verifier judges the mutants, as it does every
compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import EMPTY_STMT, Node, prim_calls, rewrite_func
from tests.mutation.mutants import Mutant, Outcome, drawn
from tests.mutation.subjects import Subject, checked

CORES = ("cpu0", "cpu1")
Change = Callable[[tir.PrimFuncCall], tir.Stmt | None]
"""The replacement of a call, or None if the kind does not apply."""


def mutants(subject: Subject, per_kind: int) -> Iterator[Mutant]:
    """Return each kind at some of the calls."""
    main = subject.compiled.module.entry
    assert isinstance(main, tir.PrimFunc)
    calls = tuple(prim_calls(main.body))
    for kind, change in CHANGES.items():
        sites = [
            number for number, call in enumerate(calls) if change(call) is not None
        ]
        for number in drawn(sites, per_kind, f"devices {kind}"):
            site = f"{subject.name}: {calls[number].phase} of @{calls[number].callee}"
            yield Mutant(kind, site, partial(_judged, subject, number, change))


def _judged(subject: Subject, number: int, change: Change) -> Outcome:
    return checked(subject, _planted(subject.compiled.module, number, change))


def _planted(module: IRModule, number: int, change: Change) -> IRModule:
    main = module.entry
    assert isinstance(main, tir.PrimFunc)
    calls = tuple(prim_calls(main.body))

    def rule(node: Node) -> Node | None:
        if isinstance(node, tir.PrimFuncCall) and node == calls[number]:
            return change(node)
        return None

    return module.with_function(rewrite_func(main, rule))


def _dropped(phase: str) -> Change:
    return lambda call: EMPTY_STMT if call.phase == phase else None


def _doubled(phase: str) -> Change:
    return lambda call: tir.Seq((call, call)) if call.phase == phase else None


def _to(phase: str, after: str) -> Change:
    def change(call: tir.PrimFuncCall) -> tir.Stmt | None:
        return replace(call, phase=after) if call.phase == phase else None  # type: ignore[arg-type]

    return change


def _elsewhere(call: tir.PrimFuncCall) -> tir.Stmt | None:
    """Wait on another device than the call was started on."""
    return replace(call, device="npu0") if call.phase == "wait" else None


CHANGES: Mapping[str, Change] = {
    "start of a device dropped": _dropped("start"),
    "wait for a device dropped": _dropped("wait"),
    "start of a device doubled": _doubled("start"),
    "wait for a device doubled": _doubled("wait"),
    "wait turned into a start": _to("wait", "start"),
    "start turned into a wait": _to("start", "wait"),
    "wait for another device": _elsewhere,
}
