"""A probe header for AddressSanitizer builds, with which operators may access only their arguments.

The header is included as NAME_PROBE_HEADER. Each probe poisons the pools except for the operator's
arguments, and unpoisons them afterwards. Since AddressSanitizer works on groups of eight bytes,
accesses up to seven bytes before a buffer may go unnoticed (access tracing detects them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.errors import InternalError
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.code_style import DEFAULT_STYLE
from firmwright.codegen.model_interface import PlacedBuffer, find_placed_buffers
from firmwright.codegen.template_rendering import render_template
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import prim_calls, statements


@dataclass(frozen=True, slots=True)
class AllowedBytes:
    """The bytes of a pool that an operator may access."""

    operator: int
    pool: int
    offset: int
    size_bytes: int


def format_poison_header(module: IRModule, prefix: str = "") -> str:
    main = module.entry
    if not isinstance(main, tir.PrimFunc) or module.plan is None:
        raise InternalError(f"module {module.name} has no plan")
    name = to_c_identifier(prefix or module.name)
    pools = [param.name for param in main.params if param.role == "pool"]
    return render_template(
        "poison.h.j2",
        name=name,
        NAME=name.upper(),
        spdx=DEFAULT_STYLE.spdx,
        pools=[(pool, ModelNames(name).macro(pool)) for pool in pools],
        rows=sorted(set(_rows(main, pools)), key=lambda row: (row.operator, row.pool, row.offset)),
    )


def _rows(main: tir.PrimFunc, pools: list[str]) -> Iterator[AllowedBytes]:
    places = _by_window(main)
    for call in prim_calls(main.body):
        for place in _given(call, places):
            yield AllowedBytes(
                call.op, pools.index(place.pool), place.offset, place.buffer.size_bytes
            )


def _given(call: tir.PrimFuncCall, places: dict[str, PlacedBuffer]) -> Iterator[PlacedBuffer]:
    if call.op >= 0:
        for arg in call.args:
            if isinstance(arg, tir.AccessPtr) and arg.buffer.name in places:
                yield places[arg.buffer.name]


def _by_window(main: tir.PrimFunc) -> dict[str, PlacedBuffer]:
    """Map each buffer and view to its placed buffer, even a view with a variable offset."""
    regions = {place.buffer.name: place for place in find_placed_buffers(main)}
    for part in statements(main.body):
        if isinstance(part, tir.DeclBuffer) and part.buffer.name not in regions:
            source = regions.get(part.source.buffer.name)
            if source is not None:
                regions[part.buffer.name] = source
    return regions
