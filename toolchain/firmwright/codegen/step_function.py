"""`NAME_step`, which runs an inference in steps for cooperative main loops.

One call executes one operator with its neighboring statements, one row of a row-streaming loop, or
a whole branch or other loop. The position is kept in the caller's `struct NAME_progress` and all
data in the pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from firmwright.base.errors import UsageError
from firmwright.codegen.c_names import LocalScope
from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.expr_printer import ExprPrinter
from firmwright.codegen.function_printer import (
    AotMainPrinter,
    FunctionEmitter,
    without_constant_copies,
)
from firmwright.ir import tir
from firmwright.ir.tir.traversal import prim_calls, used_buffers

_RESERVED = ("at", "in", "out", "pools", "params", "row")


def print_step_function(emitter: FunctionEmitter, function: tir.PrimFunc) -> str:
    """Print `NAME_step`; raise UsageError if the AOT main cannot be executed in steps."""
    _check(emitter)
    body = without_constant_copies(emitter.module, function.body)
    return _StepFunctionPrinter(emitter, function, tuple(_split_main(body))).text()


def _check(emitter: FunctionEmitter) -> None:
    io = emitter.interface
    unsupported = {
        "--stream-input-rows": bool(io.rows),
        "--devices": bool(io.devices),
        "constants that are read while kernels run": any(
            pool.scope == "async" for pool in emitter.memory.pools
        ),
    }
    more = "; feeding rows is already stepwise" if io.rows else ""
    for feature, is_so in unsupported.items():
        if is_so:
            raise UsageError(
                f"{feature} and --emit-step-api do not go together.",
                where=emitter.module.name,
                hint=f"leave one of them out{more}.",
            )


@dataclass(frozen=True, slots=True)
class _StepPart:
    """The statements of one step, or one iteration of `loop`."""

    body: tir.Stmt
    loop: tir.For | None = None


def _split_main(main: tir.Stmt) -> list[_StepPart]:
    """Split the main after every operator; other statements join an adjacent operator."""
    parts: list[_StepPart] = []
    waiting: list[tir.Stmt] = []
    for piece, loop in _pieces(main):
        if loop is not None:
            _close(parts, waiting)
            parts.append(_StepPart(piece, loop))
            continue
        waiting.append(piece)
        if any(call.op >= 0 for call in prim_calls(piece)):
            parts.append(_StepPart(tir.Seq(tuple(waiting))))
            waiting.clear()
    _close(parts, waiting)
    return parts


def _close(parts: list[_StepPart], waiting: list[tir.Stmt]) -> None:
    """Append pending statements to the previous part, or as a part of their own after a loop."""
    if waiting and parts and parts[-1].loop is None:
        parts[-1] = _StepPart(tir.Seq((parts[-1].body, *waiting)))
    elif waiting:
        parts.append(_StepPart(tir.Seq(tuple(waiting))))
    waiting.clear()


def _is_row_loop(loop: tir.For) -> bool:
    return isinstance(loop.extent, tir.IntImm) and any(call.op >= 0 for call in prim_calls(loop))


def _pieces(stmt: tir.Stmt) -> list[tuple[tir.Stmt, tir.For | None]]:
    """Return the statements in order, each inside the declarations it uses.

    The body of a row-streaming loop is returned once, with the loop.
    """
    match stmt:
        case tir.Seq(stmts):
            return [piece for part in stmts for piece in _pieces(part)]
        case tir.DeclBuffer(buffer=buffer, body=body) | tir.AllocateConst(buffer=buffer, body=body):
            return [
                (replace(stmt, body=piece) if buffer.name in used_buffers(piece) else piece, loop)
                for piece, loop in _pieces(body)
            ]
        case tir.For() if _is_row_loop(stmt):
            return [(stmt.body, stmt)]
        case _:
            return [(stmt, None)]


@dataclass(frozen=True)
class _StepFunctionPrinter:
    emitter: FunctionEmitter
    function: tir.PrimFunc
    parts: Sequence[_StepPart]

    def text(self) -> str:
        out = CWriter()
        emitter = self.emitter
        macro = emitter.names.macro
        with out.function(emitter.definitions.one_step):
            emitter.refuse(out, ["at == NULL"], "e_null")
            emitter.checks(out, ("in", "out"))
            if not emitter.interface.pools and not emitter.memory.pools:
                out.line("(void)pools;")
            with out.block("switch (at->part)"):
                for number, part in enumerate(self.parts):
                    self._case(out, number, part)
                out.line("default:")
                with out.indent():
                    out.line(f"return {macro('e_progress')};")
            with out.block(f"if (++at->part < {len(self.parts)})"):
                out.line(f"return {macro('more')};")
            out.line("at->part = 0;")
            out.line(f"return {macro('ok')};")
        return out.text()

    def _case(self, out: CWriter, number: int, part: _StepPart) -> None:
        emitter = self.emitter
        exprs = ExprPrinter(emitter.names, emitter.intrinsics, emitter.used)
        scope = LocalScope(_RESERVED)
        with out.block(f"case {number}:"):
            buffers = used_buffers(part.body)
            for param in self.function.params:
                emitter.main_param(out, exprs, scope, param, buffers)
            printer = AotMainPrinter(out, exprs, scope, emitter)
            if part.loop is not None:
                out.line("const int32_t row = (int32_t)at->row;")
                exprs.variables[part.loop.var.name] = "row"
            printer.main_body(part.body)
            if part.loop is not None:
                assert isinstance(part.loop.extent, tir.IntImm)
                with out.block(f"if (++at->row < {part.loop.extent.value})"):
                    out.line(f"return {emitter.names.macro('more')};")
                out.line("at->row = 0;")
            out.line("break;")
