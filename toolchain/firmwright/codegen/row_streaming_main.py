"""C functions of a model with a row-streamed input: `feed_row`, `finish` and `run`.

The AOT main is split at the loop that reads the input. The statements before the loop are executed
with row 0, and the loop body becomes a function. `finish` executes the remaining iterations (for
padding rows) and statements. All data that persists between calls is in the pools.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from firmwright.base.errors import InternalError
from firmwright.codegen.buffer_bindings import MemoryBinding
from firmwright.codegen.c_names import LocalScope
from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.expr_printer import ExprPrinter
from firmwright.codegen.function_printer import AotMainPrinter, FunctionEmitter
from firmwright.codegen.model_interface import FunctionSignatures, StreamedInput
from firmwright.ir import tir
from firmwright.ir.tir.rewrite import rewrite_stmt
from firmwright.ir.tir.traversal import Node, prim_calls, used_buffers, walk


@dataclass(frozen=True, slots=True)
class _RowLoopParts:
    """The statements before and after the loop, each inside the declarations they may need."""

    before: tir.Stmt
    loop: tir.For
    body: tir.Stmt
    after: tir.Stmt

    def inside(self, wrap: Callable[[tir.Stmt], tir.Stmt]) -> _RowLoopParts:
        return replace(self, before=wrap(self.before), body=wrap(self.body), after=wrap(self.after))


def print_row_streaming_main(emitter: FunctionEmitter, function: tir.PrimFunc) -> str:
    rows = emitter.interface.rows
    if rows is None:
        raise InternalError(f"{function.name} has no row-streamed input")
    return _RowStreamingPrinter(
        emitter, function, rows, _split_at_row_loop(function.body, rows)
    ).text()


def _split_at_row_loop(stmt: tir.Stmt, rows: StreamedInput) -> _RowLoopParts:
    match stmt:
        case tir.For() if _reads(stmt, rows):
            return _RowLoopParts(tir.Seq(()), stmt, stmt.body, tir.Seq(()))
        case tir.DeclBuffer(body=body) | tir.AllocateConst(body=body):
            return _split_at_row_loop(body, rows).inside(lambda part: replace(stmt, body=part))
        case tir.Seq(stmts):
            index = next(i for i, part in enumerate(stmts) if _reads(part, rows))
            inner = _split_at_row_loop(stmts[index], rows)
            return replace(
                inner,
                before=tir.Seq((*stmts[:index], inner.before)),
                after=tir.Seq((inner.after, *stmts[index + 1 :])),
            )
        case _:
            raise InternalError("the input is read outside of a loop over its rows")


def _reads(stmt: tir.Stmt, rows: StreamedInput) -> bool:
    return any(
        isinstance(part, tir.AccessPtr) and part.buffer.name == rows.field for part in walk(stmt)
    )


@dataclass(frozen=True)
class _RowStreamingPrinter:
    emitter: FunctionEmitter
    function: tir.PrimFunc
    rows: StreamedInput
    parts: _RowLoopParts

    def text(self) -> str:
        out = CWriter()
        for write in (self._step, self._feed_row, self._finish, self._run):
            write(out)
            out.line()
        return out.text().rstrip("\n") + "\n"

    @property
    def _signatures(self) -> FunctionSignatures:
        return self.emitter.definitions

    @property
    def _more(self) -> str:
        """Return the C arguments that end every call: `pools`, and `params` unless linked."""
        return "pools" if self.emitter.memory.linked else "pools, params"

    def _name(self, function: str) -> str:
        return f"{self.emitter.names.prefix}_{function}"

    def _ok(self, out: CWriter) -> None:
        out.line(f"return {self.emitter.names.macro('ok')};")

    def _printer(self, out: CWriter, scope: LocalScope, body: tir.Stmt) -> AotMainPrinter:
        emitter = self.emitter
        exprs = ExprPrinter(emitter.names, emitter.intrinsics, emitter.used)
        buffers = used_buffers(body)
        for param in self.function.params:
            if param.role == "pool":
                emitter.main_param(out, exprs, scope, param, buffers)
        return AotMainPrinter(out, exprs, scope, emitter)

    def _step(self, out: CWriter) -> None:
        """Print the loop body as a function that takes a pointer to the current row."""

        def at_row(part: Node) -> Node | None:
            if isinstance(part, tir.AccessPtr) and part.buffer.name == self.rows.field:
                return replace(part, offset=tir.IntImm(0, part.offset.dtype))
            return None

        out.comment(
            [
                "Consumes row `step` of the input, or padding after the last row, and computes all",
                "rows that depend on it.",
            ]
        )
        with out.function(self._signatures.step):
            scope = LocalScope(("row", "step", "pools", "params"))
            printer = self._printer(out, scope, self.parts.body)
            buffer = next(
                p.value
                for p in self.function.params
                if p.name == self.rows.field and isinstance(p.value, tir.Buffer)
            )
            printer.exprs.places[buffer.name] = MemoryBinding("row", buffer)
            printer.exprs.variables[self.parts.loop.var.name] = "step"
            printer.main_body(rewrite_stmt(self.parts.body, at_row))
            out.gap()
            self._ok(out)

    def _feed_row(self, out: CWriter) -> None:
        emitter, rows = self.emitter, self.rows
        with out.function(self._signatures.feed_row):
            emitter.checks(out, ("row",), {"row": f"{rows.macro}_ROW_ALIGN"})
            emitter.refuse(out, [f"y >= {rows.macro}_ROWS"], "e_row")
            if any(prim_calls(self.parts.before)):
                with out.block("if (y == 0)"):
                    printer = self._printer(
                        out, LocalScope(("row", "y", "pools")), self.parts.before
                    )
                    printer.main_body(self.parts.before)
            out.line(f"return {self._name('step')}((int32_t)y, row, {self._more});")

    def _finish(self, out: CWriter) -> None:
        loop = self.parts.loop
        assert isinstance(loop.extent, tir.IntImm)
        with out.function(self._signatures.finish):
            self.emitter.checks(out, ("out",))
            if loop.extent.value > self.rows.count:
                head = f"int32_t step = {self.rows.macro}_ROWS; step < {loop.extent.value}; ++step"
                with out.block(f"for ({head})"):
                    self._handed_on(out, f"{self._name('step')}(step, NULL, {self._more})")
                out.line()
            scope = LocalScope(("out", "pools", "params"))
            printer = self._printer(out, scope, self.parts.after)
            buffers = used_buffers(self.parts.after)
            for param in self.function.params:
                if param.role == "out":
                    self.emitter.main_param(out, printer.exprs, scope, param, buffers)
            printer.main_body(self.parts.after)
            out.gap()
            self._ok(out)

    def _run(self, out: CWriter) -> None:
        rows = self.rows
        with out.function(self._signatures.run):
            self.emitter.refuse(out, ["in == NULL", f"in->{rows.field} == NULL"], "e_null")
            with out.block(f"for (uint32_t y = 0; y < {rows.macro}_ROWS; ++y)"):
                row = f"in->{rows.field} + y * {rows.macro}_ROW_ELEMENTS"
                self._handed_on(out, f"{self._name('feed_row')}(y, {row}, {self._more})")
            out.line(f"return {self._name('finish')}(out, {self._more});")

    def _handed_on(self, out: CWriter, call: str) -> None:
        out.line(f"const int32_t status = {call};")
        with out.block("if (status != 0)"):
            out.line("return status;")
