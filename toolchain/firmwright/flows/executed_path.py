"""The path of a run through the branches and loops of an AOT main, from its trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from firmwright.ir import tir
from firmwright.ir.tir.traversal import Node, children

_Event = TypeVar("_Event")
_Rest = tuple[Node, "_Rest"] | None
"""The nodes that follow, the next one first."""
_Path = tuple[tir.PrimFuncCall, ...]


def executed_calls(
    body: tir.Stmt, events: Iterable[_Event], is_event: Callable[[tir.PrimFuncCall, _Event], bool]
) -> _Path | None:
    """Return the calls of the first path that causes these events, or None if none does."""
    states: list[tuple[_Path, _Rest]] = [((), (body, None))]
    for event in events:
        following: dict[tuple[int, int], tuple[_Path, _Rest]] = {}
        for path, rest in states:
            for call, after in _next_calls(rest):
                if call is not None and is_event(call, event):
                    following.setdefault((id(call), id(after and after[0])), ((*path, call), after))
        states = list(following.values())
    complete = (path for path, rest in states if (None, None) in _next_calls(rest))
    return next(complete, None)


def _next_calls(rest: _Rest) -> Iterator[tuple[tir.PrimFuncCall | None, _Rest]]:
    """Yield each call that can be next, None for the end, and the nodes that follow it."""
    open_paths, loops = [rest], set[int]()
    while open_paths:
        match rest := open_paths.pop():
            case None:
                yield None, None
            case (tir.PrimFuncCall() as call, after):
                yield call, after
            case (tir.If(then=then, orelse=orelse), after):
                open_paths += [(orelse, after) if orelse else after, (then, after)]
            case (tir.For(body=body) | tir.While(body=body) as loop, after):
                open_paths += [after] if id(loop) in loops else [after, (body, rest)]
                loops.add(id(loop))
            case (node, after):
                for child in reversed(tuple(children(node))):
                    after = (child, after)
                open_paths.append(after)
