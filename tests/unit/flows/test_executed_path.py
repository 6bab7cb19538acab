"""The path of a run through branches and loops, from its events."""

from __future__ import annotations

import pytest

from firmwright.base.dtypes import INT32
from firmwright.flows.measure.core_timeline import executed_calls
from firmwright.ir import tir

YES = tir.IntImm(1, INT32)


def seq(*parts: tir.Stmt | str) -> tir.Stmt:
    """Return a sequence in which a text is a call, its operator the letter's code."""
    calls = (
        p if not isinstance(p, str) else tir.PrimFuncCall(p, (), op=ord(p))
        for p in parts
    )
    return tir.Seq(tuple(calls))


MAIN = seq(
    "a",
    tir.If(YES, seq("b"), seq("c", tir.If(YES, seq("d")))),
    tir.While(YES, seq("e", tir.If(YES, seq("f"), seq(tir.While(YES, seq("b")))))),
    "a",
)


@pytest.mark.parametrize("events", ["aba", "aca", "acdefefa", "abebbbefebba", "abea"])
def test_path_has_the_events_of_a_run(events: str) -> None:
    path = executed_calls(MAIN, events, lambda call, event: call.callee == event)
    assert path is not None
    assert [call.callee for call in path] == [*events]


@pytest.mark.parametrize("events", ["", "ab", "abfa", "abba", "abaa"])
def test_events_of_no_path_are_reported(events: str) -> None:
    assert (
        executed_calls(MAIN, events, lambda call, event: call.callee == event) is None
    )
