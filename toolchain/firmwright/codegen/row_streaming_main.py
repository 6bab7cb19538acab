"""C functions of a model with a row-streamed input: `feed_row`, `finish` and `run`.

The AOT main is split at the loop that reads the input. The statements before the loop
are executed with row 0, and the loop body becomes a function. `finish` executes the
remaining iterations (padding rows) and statements. Persistent data is in the pools.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from firmwright.base.errors import InternalError, UsageError
from firmwright.codegen.c_names import PointerBinding
from firmwright.codegen.function_printer import AotMainPrinter
from firmwright.codegen.model_interface import StreamedInput
from firmwright.codegen.stmt_printer import EmitContext
from firmwright.ir import tir
from firmwright.ir.tir.traversal import (
    Node,
    prim_calls,
    rewrite_stmt,
    used_buffers,
    walk,
)


@dataclass(frozen=True, slots=True)
class _RowLoopParts:
    """The row loop, its body, and the statements around it, with declarations."""

    before: tir.Stmt
    loop: tir.For
    body: tir.Stmt
    after: tir.Stmt

    def inside(self, wrap: Callable[[tir.Stmt], tir.Stmt]) -> _RowLoopParts:
        before, body, after = wrap(self.before), wrap(self.body), wrap(self.after)
        return replace(self, before=before, body=body, after=after)


def print_row_streaming_main(context: EmitContext, main: tir.PrimFunc) -> str:
    rows = context.interface.rows
    if rows is None:
        raise InternalError(f"{main.name} has no row-streamed input")
    functions = _RowFunctions(context, main, rows, _split_at_row_loop(main.body, rows))
    texts = [functions.row_step(), functions.feed_row()]
    texts += [functions.finish(), functions.run()]
    return "\n".join(texts)


def _split_at_row_loop(stmt: tir.Stmt, rows: StreamedInput) -> _RowLoopParts:
    match stmt:
        case tir.For() if _reads(stmt, rows):
            return _RowLoopParts(tir.Seq(()), stmt, stmt.body, tir.Seq(()))
        case tir.DeclBuffer(body=body) | tir.AllocateConst(body=body):
            parts = _split_at_row_loop(body, rows)
            return parts.inside(lambda part: replace(stmt, body=part))
        case tir.Seq(stmts):
            readers = [i for i, part in enumerate(stmts) if _reads(part, rows)]
            if len(readers) == 1:
                (index,) = readers
                inner = _split_at_row_loop(stmts[index], rows)
                before = tir.Seq((*stmts[:index], inner.before))
                after = tir.Seq((inner.after, *stmts[index + 1 :]))
                return replace(inner, before=before, after=after)
    # Later passes may have simplified a loop with one iteration or without effect.
    raise UsageError(
        f"--stream-input-rows: no loop over the rows of {rows.field} remains in the "
        "program.",
        hint="compile without it.",
    )


def _reads(stmt: tir.Stmt, rows: StreamedInput) -> bool:
    for part in walk(stmt):
        if isinstance(part, tir.AccessPtr) and part.buffer.name == rows.field:
            return True
    return False


@dataclass(frozen=True)
class _RowFunctions:
    context: EmitContext
    main: tir.PrimFunc
    rows: StreamedInput
    parts: _RowLoopParts

    def _call(self, function: str, *args: str) -> str:
        io = self.context.interface
        arguments = [*args, "pools"]
        if not io.linked:
            arguments.append("params")
        if io.has_probe_callback:
            arguments.append("probe")
        return f"{self.context.names.prefix}_{function}({', '.join(arguments)})"

    def _return_if_failed(self, printer: AotMainPrinter, call: str) -> None:
        printer.out.line(f"const int32_t status = {call};")
        with printer.out.block("if (status != 0)"):
            printer.out.line("return status;")

    def _declare_params(
        self, printer: AotMainPrinter, body: tir.Stmt, *roles: str
    ) -> None:
        used = used_buffers(body)
        for role in roles:
            params = [param for param in self.main.params if param.role == role]
            printer.declare_params(params, used)

    def row_step(self) -> str:
        """Print the loop body as a function that takes a pointer to the current row."""

        def at_row(part: Node) -> Node | None:
            if isinstance(part, tir.AccessPtr) and part.buffer.name == self.rows.field:
                return replace(part, offset=tir.IntImm(0, part.offset.dtype))
            return None

        printer = AotMainPrinter(self.context, ("row", "step", "pools", "params"))
        exprs = printer.exprs
        first_line = (
            "Consumes row `step` of the input, or padding after the last row, "
            "and computes all"
        )
        printer.out.comment([first_line, "rows that depend on it."])
        with printer.out.function(self.context.definition("row_step")):
            self._declare_params(printer, self.parts.body, "pool")
            values = {param.name: param.value for param in self.main.params}
            buffer = values[self.rows.field]
            assert isinstance(buffer, tir.Buffer)
            exprs.places[buffer.name] = PointerBinding("row", buffer)
            exprs.variables[self.parts.loop.var.name] = "step"
            printer.main_body(rewrite_stmt(self.parts.body, at_row))
            printer.out.gap()
            printer.return_status("ok")
        return printer.out.text()

    def feed_row(self) -> str:
        macro, before = self.rows.macro, self.parts.before
        printer = AotMainPrinter(self.context, ("row", "y", "pools"))
        with printer.out.function(self.context.definition("feed_row")):
            printer.check_arguments(("row",), [("row", f"{macro}_ROW_ALIGN")])
            printer.refuse([f"y >= {macro}_ROWS"], "e_row")
            if any(prim_calls(before)):
                with printer.out.block("if (y == 0)"):
                    self._declare_params(printer, before, "pool")
                    printer.main_body(before)
            printer.out.line(f"return {self._call('step', '(int32_t)y', 'row')};")
        return printer.out.text()

    def finish(self) -> str:
        extent, after, macro = self.parts.loop.extent, self.parts.after, self.rows.macro
        assert isinstance(extent, tir.IntImm)
        printer = AotMainPrinter(self.context, ("out", "pools", "params"))
        with printer.out.function(self.context.definition("finish")):
            printer.check_arguments(("out",))
            if extent.value > self.rows.count:
                head = f"int32_t step = {macro}_ROWS; step < {extent.value}; ++step"
                with printer.out.block(f"for ({head})"):
                    self._return_if_failed(printer, self._call("step", "step", "NULL"))
                printer.out.line()
            self._declare_params(printer, after, "pool", "out")
            printer.main_body(after)
            printer.out.gap()
            printer.return_status("ok")
        return printer.out.text()

    def run(self) -> str:
        macro, field = self.rows.macro, self.rows.field
        printer = AotMainPrinter(self.context, ())
        with printer.out.function(self.context.definition("run")):
            printer.refuse(["in == NULL", f"in->{field} == NULL"], "e_null")
            with printer.out.block(f"for (uint32_t y = 0; y < {macro}_ROWS; ++y)"):
                row = f"in->{field} + y * {macro}_ROW_ELEMENTS"
                self._return_if_failed(printer, self._call("feed_row", "y", row))
            printer.out.line(f"return {self._call('finish', 'out')};")
        return printer.out.text()
