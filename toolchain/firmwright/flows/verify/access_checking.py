"""Runs a compilation on the host and checks every memory access.

Kernels and memory plan are those of the compilation, but buffers do not overlap.
InternalError is raised at the first read of a byte that the plan has reused, or access
outside all buffers.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Unpack

from firmwright.base.errors import UsageError
from firmwright.base.source_paths import is_backend_file
from firmwright.base.version import VERSION
from firmwright.build.instrumented_library import build_instrumented_library
from firmwright.codegen.emit_options import EmitOptions
from firmwright.codegen.model_emitter import emit_model
from firmwright.device.instrumented_library import AccessTracingSession
from firmwright.flows.board.model_session import (
    ModelSession,
    SessionOptions,
    make_library_model,
)
from firmwright.flows.samples import bounded_shapes
from firmwright.ir.constant_pools import UNADDRESSABLE_SCOPES, constant_pools
from firmwright.ir.module import IRModule
from firmwright.ir.tir.plan import RelocatedBuffer
from firmwright.ir.tir.traversal import prim_calls
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.pipeline import Compilation
from firmwright.schedules.registry import INTRINSICS
from firmwright.usmp.redzones import insert_redzones


@dataclass(frozen=True, slots=True)
class CheckedLibrary:
    """An instrumented library of `compiled` with buffers relocated not to overlap."""

    compiled: Compilation
    library: Path
    moved: tuple[RelocatedBuffer, ...]

    def session(self, moved: Sequence[RelocatedBuffer] = ()) -> ModelSession:
        module, io = self.compiled.module, self.compiled.module.io
        preserved = io.inputs if io.preserve_input and io.mode == "arena" else ()
        session = AccessTracingSession(
            self.library,
            make_library_model(self.compiled),
            moved or self.moved,
            _operator_labels(module),
            frozenset(tensor.buffer for tensor in preserved),
            partial(bounded_shapes.used_bytes, self.compiled),
        )
        return ModelSession(self.compiled, session, None)


def open_checked_session(
    compiled: Compilation, /, **options: Unpack[SessionOptions]
) -> ModelSession:
    """Build an instrumented library and open a session on it."""
    with tempfile.TemporaryDirectory(prefix="firmwright-checked-") as folder:
        return build_checked_library(compiled, Path(folder)).session()


def build_checked_library(compiled: Compilation, folder: Path) -> CheckedLibrary:
    """Build the library in `folder`, which must exist until all sessions are open."""
    if not compiled.board.is_host:
        what = (
            "memory accesses are checked on the host only, not on "
            f"{compiled.board.name}."
        )
        raise UsageError(
            what, hint="--board host, with --target for the kernels of another core."
        )
    pools = constant_pools(compiled.module)
    if any(pool.scope in UNADDRESSABLE_SCOPES for pool in pools):
        what = (
            "memory that is filled by a function cannot be checked: its writes are not "
            "traced."
        )
        hint = "use --const-pool NAME:external, or leave constants in the image."
        raise UsageError(what, hint=hint)
    if any(map(is_backend_file, compiled.tree.files)):
        what = "memory accesses cannot be checked in C that is not generated."
        raise UsageError(
            what, where=compiled.module.name, hint="use a --target without backends."
        )
    module, moved = insert_redzones(compiled.module)
    name = compiled.c_prefix
    intrinsics = collect_intrinsics(module, INTRINSICS)
    options = EmitOptions(prefix=name, tool_version=VERSION)
    tree = emit_model(module, intrinsics, options)
    tree.write(folder)
    library = build_instrumented_library(folder, name)
    return CheckedLibrary(replace(compiled, module=module, tree=tree), library, moved)


def _operator_labels(module: IRModule) -> tuple[str, ...]:
    main = module.aot_main
    names: dict[int, str] = {}
    for call in prim_calls(main.body):
        callee = module.functions[call.callee]
        facts = (str(callee.attrs.get("op")), call.span.tensor)
        names[call.op] = ", ".join(filter(None, facts))
    return tuple(names.get(op, "") for op in range(max(names, default=-1) + 1))
