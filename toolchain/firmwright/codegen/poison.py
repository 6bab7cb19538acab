"""A header for builds under AddressSanitizer: an operator may touch its arguments, nothing else.

In: a planned module. Out: the text of NAME_poison.h. Pools are single arrays to the sanitizer, so
it cannot tell buffers apart; as NAME_PROBE_HEADER, this one makes each probe poison the pools but
for what the operator is given, and free them again after it. The sanitizer's granule is eight
bytes: a buffer that begins inside of one lets the bytes before it pass (`build/watch/` does not).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from firmwright.base.errors import InternalError
from firmwright.base.names import sanitise
from firmwright.codegen.house_rules import DEFAULT_RULES
from firmwright.codegen.interface import Placed, placements
from firmwright.codegen.names import Names
from firmwright.codegen.render import render
from firmwright.ir.module import IRModule
from firmwright.ir.tir.nodes import AccessPtr, CallPrim, DeclBuffer, PrimFunc
from firmwright.ir.tir.walk import prim_calls, statements


@dataclass(frozen=True, slots=True)
class Row:
    """Bytes of a pool that an operator is given."""

    operator: int
    pool: int
    offset: int
    size_bytes: int


def poison_header(module: IRModule, prefix: str = "") -> str:
    """The text of the header; `prefix` as for `emit`."""
    main = module.entry
    if not isinstance(main, PrimFunc) or module.plan is None:
        raise InternalError(f"module {module.name} has no plan")
    name = sanitise(prefix or module.name)
    pools = [param.name for param in main.params if param.role == "pool"]
    return render(
        "poison.h.j2",
        name=name,
        NAME=name.upper(),
        spdx=DEFAULT_RULES.spdx,
        pools=[(pool, Names(name).macro(pool)) for pool in pools],
        rows=sorted(set(_rows(main, pools)), key=lambda row: (row.operator, row.pool, row.offset)),
    )


def _rows(main: PrimFunc, pools: list[str]) -> Iterator[Row]:
    places = _by_window(main)
    for call in prim_calls(main.body):
        for place in _given(call, places):
            yield Row(call.op, pools.index(place.pool), place.offset, place.buffer.size_bytes)


def _given(call: CallPrim, places: dict[str, Placed]) -> Iterator[Placed]:
    if call.op >= 0:
        for arg in call.args:
            if isinstance(arg, AccessPtr) and arg.buffer.name in places:
                yield places[arg.buffer.name]


def _by_window(main: PrimFunc) -> dict[str, Placed]:
    """Buffers at fixed places, and the windows of them that move: those count as the whole."""
    found = {place.buffer.name: place for place in placements(main)}
    for part in statements(main.body):
        if isinstance(part, DeclBuffer) and part.buffer.name not in found:
            source = found.get(part.source.buffer.name)
            if source is not None:
                found[part.buffer.name] = source
    return found
