"""AOT mains over one pool, as the planner leaves them."""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.base.dtypes import INT32, UINT8
from firmwright.ir import tir


def whole(buffer: tir.Buffer, access: str = "rw") -> tir.AccessPtr:
    """A pointer to all of `buffer`."""
    return tir.AccessPtr(buffer, tir.IntImm(0, INT32), buffer.elements, access)  # type: ignore[arg-type]


def planned_main(
    calls: Sequence[tir.Stmt], placed: Sequence[tuple[tir.Buffer, int]], pool_bytes: int
) -> tir.PrimFunc:
    """An AOT main over one pool `sram` with buffers at the given offsets."""
    pool = tir.Buffer("sram", UINT8, (pool_bytes,), scope="pool", alignment=16)
    body: tir.Stmt = tir.Seq(tuple(calls))
    for buffer, offset in reversed(placed):
        window = tir.AccessPtr(pool, tir.IntImm(offset, INT32), buffer.size_bytes, "rw")
        body = tir.DeclBuffer(buffer, window, body)
    return tir.PrimFunc("run", (tir.Param(pool, "pool"),), body, {"aot_main": True})
