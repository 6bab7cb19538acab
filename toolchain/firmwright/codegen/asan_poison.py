"""A probe header for AddressSanitizer builds that confines each operator to its arguments.

The header is included as NAME_PROBE_HEADER. Probes poison the pools except for the operator's
arguments, and unpoison them after the call. Since AddressSanitizer works on groups of eight bytes,
accesses up to seven bytes before a buffer may go unnoticed (access tracing detects them).
"""

from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.errors import InternalError
from firmwright.base.templates import render_template
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.emit_options import DEFAULT_EMIT_OPTIONS
from firmwright.codegen.model_interface import PlacedBuffer, find_placed_buffers
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import prim_calls, statements


def format_poison_header(module: IRModule, prefix: str = "") -> str:
    main = module.entry
    if not isinstance(main, tir.PrimFunc) or module.plan is None:
        raise InternalError(f"module {module.name} has no plan")
    name = to_c_identifier(prefix or module.name)
    pools = [param.name for param in main.params if param.role == "pool"]
    placed = _map_views(main)
    accessible = [
        (call.op, placed[arg.buffer.name])
        for call in prim_calls(main.body)
        for arg in call.args
        if call.op >= 0 and isinstance(arg, tir.AccessPtr) and arg.buffer.name in placed
    ]
    rows = {(op, pools.index(p.pool), p.offset, p.buffer.size_bytes) for op, p in accessible}
    return render_template(
        "firmwright.codegen",
        "poison.h.j2",
        name=name,
        NAME=name.upper(),
        spdx=DEFAULT_EMIT_OPTIONS.spdx,
        pools=[(pool, ModelNames(name).macro(pool)) for pool in pools],
        rows=sorted(rows),
    )


def _map_views(main: tir.PrimFunc) -> dict[str, PlacedBuffer]:
    """Map each buffer and view to its placed buffer, even a view with a variable offset."""
    placed = {place.buffer.name: place for place in find_placed_buffers(main)}
    for part in statements(main.body):
        if isinstance(part, tir.DeclBuffer) and part.source.buffer.name in placed:
            placed.setdefault(part.buffer.name, placed[part.source.buffer.name])
    return placed
