"""Runs a compilation's C on this computer with every access to memory held against its plan.

In: a `Compiled` for the host. Out: a `ModelSession` whose runs raise InternalError at the first
byte that is read after another buffer has taken its place, or that belongs to no buffer. Kernels
and plan are those of the compilation; only the buffers lie apart, so that each byte has one owner.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.base.version import VERSION
from firmwright.build.watched import build_watched
from firmwright.codegen.module import EmitOptions, emit
from firmwright.device.watched_library import WatchedBuffer, WatchedSession
from firmwright.flows.sessions import ModelSession, c_name, library_model
from firmwright.ir.constant_pools import READ_BY_FUNCTION, constant_pools
from firmwright.ir.module import IRModule
from firmwright.ir.tir.nodes import PrimFunc
from firmwright.ir.tir.walk import prim_calls
from firmwright.partitioning.hooks import FILES
from firmwright.partitioning.libraries import intrinsics_of
from firmwright.pipeline import Compiled
from firmwright.schedules.registry import INTRINSICS
from firmwright.usmp.apart import Moved, apart


@dataclass(frozen=True, slots=True)
class Watched:
    """A library that can be watched, of the compilation `compiled` with its buffers apart."""

    compiled: Compiled
    library: Path
    moved: tuple[Moved, ...]

    def session(self, moved: Sequence[Moved] = ()) -> ModelSession:
        """A watched run; `moved` are other places than the plan's to hold accesses against."""
        module = self.compiled.module
        places = moved or self.moved
        session = WatchedSession(
            self.library,
            library_model(self.compiled),
            [WatchedBuffer(m.name, m.pool, m.offset, m.planned, m.size_bytes) for m in places],
            _operators(module),
            _kept(module),
        )
        return ModelSession(self.compiled, session, None)


def open_watched(compiled: Compiled) -> ModelSession:
    """Start a watched run. Raises UsageError, ToolMissingError, ToolFailedError."""
    with tempfile.TemporaryDirectory(prefix="firmwright-watched-") as folder:
        return watched(compiled, Path(folder)).session()


def watched(compiled: Compiled, folder: Path) -> Watched:
    """Build the library in `folder`, which sessions need only while they are opened."""
    if not compiled.board.is_host:
        raise UsageError(
            f"memory is watched on the host, not on {compiled.board.name}.",
            hint="--board host, with --target for the kernels of another core.",
        )
    if any(pool.scope in READ_BY_FUNCTION for pool in constant_pools(compiled.module)):
        raise UsageError(
            "memory that is filled by a function cannot be watched: nobody sees its writes.",
            hint="--const-pool NAME:external, or constants where they are by default.",
        )
    if any(path.startswith(f"{FILES}/") for path in compiled.tree.files):
        raise UsageError(
            "memory cannot be watched where the model calls C that is not generated.",
            where=compiled.module.name,
            hint="--target without backends.",
        )
    module, moved = apart(compiled.module)
    name = c_name(compiled)
    tree = emit(
        module, intrinsics_of(module, INTRINSICS), EmitOptions(prefix=name, tool_version=VERSION)
    )
    tree.write(folder)
    library = build_watched(folder, name)
    return Watched(replace(compiled, module=module, tree=tree), library, moved)


def _operators(module: IRModule) -> tuple[str, ...]:
    main = module.entry
    assert isinstance(main, PrimFunc)
    names: dict[int, str] = {}
    for call in prim_calls(main.body):
        callee = module.functions[call.callee]
        names[call.op] = ", ".join(filter(None, (str(callee.attrs.get("op")), call.span.tensor)))
    return tuple(names.get(op, "") for op in range(max(names, default=-1) + 1))


def _kept(module: IRModule) -> frozenset[str]:
    inputs = module.io.inputs if module.io.keep_input and module.io.mode == "workspace" else ()
    return frozenset(tensor.buffer for tensor in inputs)
