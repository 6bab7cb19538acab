"""`NAME_step`, which runs an inference in steps for cooperative main loops.

A call executes an operator with its neighboring statements, a row of a row-streaming
loop, or a whole branch or other loop. The position is kept in the caller's `struct
NAME_progress`.
"""

from dataclasses import dataclass, replace

from firmwright.base.errors import UsageError
from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.function_printer import AotMainPrinter, without_constant_copies
from firmwright.codegen.stmt_printer import EmitContext
from firmwright.ir import tir
from firmwright.ir.tir.traversal import prim_calls, used_buffers

_RESERVED = ("at", "in", "out", "pools", "params", "row")


@dataclass(frozen=True, slots=True)
class _StepPart:
    """The statements of one step, or one iteration of `loop`."""

    body: tir.Stmt
    loop: tir.For | None = None


def print_step_function(context: EmitContext, main: tir.PrimFunc) -> str:
    """Print `NAME_step`; raise UsageError if the AOT main has no steps."""
    _check(context)
    parts = _split_main(without_constant_copies(context.module, main.body))
    out = CWriter()
    printer = AotMainPrinter(context, _RESERVED, out)
    with out.function(context.definition("step")):
        printer.refuse(["at == NULL"], "e_null")
        printer.check_arguments(("in", "out"))
        if not context.interface.pools and not context.const_pools:
            out.line("(void)pools;")
        with out.block("switch (at->part)"):
            for number, part in enumerate(parts):
                with out.block(f"case {number}:"):
                    _print_part(AotMainPrinter(context, _RESERVED, out), main, part)
            out.line("default:")
            with out.indent():
                printer.return_status("e_progress")
        printer.refuse([f"++at->part < {len(parts)}"], "more")
        out.line("at->part = 0;")
        printer.return_status("ok")
    return out.text()


def _print_part(printer: AotMainPrinter, main: tir.PrimFunc, part: _StepPart) -> None:
    out = printer.out
    printer.declare_params(main.params, used_buffers(part.body))
    if part.loop is not None:
        out.line("const int32_t row = (int32_t)at->row;")
        printer.exprs.variables[part.loop.var.name] = "row"
    printer.main_body(part.body)
    if part.loop is not None:
        assert isinstance(part.loop.extent, tir.IntImm)
        printer.refuse([f"++at->row < {part.loop.extent.value}"], "more")
        out.line("at->row = 0;")
    out.line("break;")


def _check(context: EmitContext) -> None:
    io = context.interface
    async_pools = [pool for pool in context.const_pools if pool.scope == "async"]
    unsupported = {
        "--stream-input-rows": io.rows,
        "--devices": io.devices,
        "constants that are read while kernels run": async_pools,
    }
    more = "; feeding rows is already stepwise" if io.rows else ""
    for feature, present in unsupported.items():
        if present:
            what = f"{feature} and --emit-step-api do not go together."
            hint = f"leave one of them out{more}."
            raise UsageError(what, where=context.module.name, hint=hint)


def _split_main(main: tir.Stmt) -> list[_StepPart]:
    """Split the main after operators; others join the next, at loops the previous."""
    parts: list[_StepPart] = []
    waiting: list[tir.Stmt] = []

    def close() -> None:
        if waiting and parts and parts[-1].loop is None:
            parts[-1] = _StepPart(tir.Seq((parts[-1].body, *waiting)))
        elif waiting:
            parts.append(_StepPart(tir.Seq(tuple(waiting))))
        waiting.clear()

    for piece in _pieces(main):
        if piece.loop is not None:
            close()
            parts.append(piece)
            continue
        waiting.append(piece.body)
        if _has_operator(piece.body):
            parts.append(_StepPart(tir.Seq(tuple(waiting))))
            waiting.clear()
    close()
    return parts


def _pieces(stmt: tir.Stmt) -> list[_StepPart]:
    """Return the statements in their declarations; loops of rows as their bodies."""
    match stmt:
        case tir.Seq(stmts):
            pieces: list[_StepPart] = []
            for part in stmts:
                pieces += _pieces(part)
            return pieces
        case (
            tir.DeclBuffer(buffer=buffer, body=body)
            | tir.AllocateConst(buffer=buffer, body=body)
        ):
            declared: list[_StepPart] = []
            for piece in _pieces(body):
                if buffer.name in used_buffers(piece.body):
                    piece = replace(piece, body=replace(stmt, body=piece.body))
                declared.append(piece)
            return declared
        case tir.For(extent=tir.IntImm()) if _has_operator(stmt):
            return [_StepPart(stmt.body, stmt)]
    return [_StepPart(stmt)]


def _has_operator(stmt: tir.Stmt) -> bool:
    return any(call.op >= 0 for call in prim_calls(stmt))
