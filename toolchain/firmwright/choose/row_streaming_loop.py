"""TIR of a row-streamed segment: a loop over the source rows that calls row kernels.

A row buffer holds rows in order, the newest last; each new row shifts the older ones, so every
window is contiguous at a fixed position. Rows outside the tensor hold its padding.

    for step in source rows, then in further steps until the last stage is complete
        copy a row of the source (or padding)
        for each stage that fires: shift its row buffer; kernel(window of sources, newest row)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.dtypes import BOOL
from firmwright.choose.row_copy_kernels import copy_row_kernel, fill_kernel, shift_rows_kernel
from firmwright.choose.row_streaming_plan import RowStage, RowStreamingPlan
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call
from firmwright.ir.tir.builder import INDEX, ArithExpr, ExprLike, as_expr, logical_and, whole_buffer
from firmwright.ops.opdef import RowReduction
from firmwright.ops.schedule import LoweringCandidate, RowKernels

ROW_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class FusedSegment:
    """Calls of the entry from index `first`, computed together row by row.

    `picks` has the chosen kernel of each call. Time and instructions are predicted for one run.
    """

    first: int
    calls: tuple[Call, ...]
    kernels: tuple[RowKernels, ...]
    picks: tuple[LoweringCandidate, ...]
    stages: tuple[RowStage, ...]
    plan: RowStreamingPlan
    time: int = 0
    instructions: int = 0

    @property
    def end(self) -> int:
        return self.first + len(self.calls)

    @property
    def constants(self) -> dict[str, Constant]:
        return {name: item for pick in self.picks for name, item in pick.constants.items()}

    @property
    def streamed(self) -> frozenset[str]:
        return frozenset(self.plan.row_buffers) - {self.plan.source}


def build_row_streaming_loop(
    segment: FusedSegment, whole: Mapping[str, tir.Buffer], names: UniqueNamer, target: str
) -> tuple[tir.Stmt, dict[str, tir.PrimFunc]]:
    builder = _RowStreamingLoopBuilder(segment, whole, names, target)
    return builder.statement(), builder.functions


@dataclass
class _RowStreamingLoopBuilder:
    segment: FusedSegment
    whole: Mapping[str, tir.Buffer]
    names: UniqueNamer
    target: str
    functions: dict[str, tir.PrimFunc] = field(default_factory=dict)
    rows: dict[str, tir.Buffer] = field(default_factory=dict)
    sums: tir.Buffer | None = None

    def statement(self) -> tir.Stmt:
        plan, finish = self.segment.plan, self.segment.kernels[-1].finish
        types = {value.name: value.type for call in self.segment.calls for value in call.values}
        for name, row_buffer in plan.row_buffers.items():
            fresh = self.names.unique(f"{name}_rows" if name == plan.source else name)
            shape = (row_buffer.rows, *types[name].shape[2:])
            self.rows[name] = tir.Buffer(fresh, types[name].dtype, shape, alignment=ROW_ALIGNMENT)
        lasting = {name: r for name, r in plan.row_buffers.items() if not r.is_transient}
        # Without padding the initial contents of a row buffer do not matter.
        stmts = [self._fill(self.rows[name], r.fill or 0) for name, r in lasting.items()]
        allocated = [self.rows[name] for name in lasting]
        rows = self.segment.kernels[-1].rows
        if isinstance(rows, RowReduction):
            name = self.names.unique(f"{self.segment.calls[-1].outputs[0].name}_sums")
            self.sums = tir.Buffer(name, rows.dtype, (rows.count,), alignment=ROW_ALIGNMENT)
            allocated.append(self.sums)
            stmts.append(self._fill(self.sums, 0))
        step = tir.Var(self.names.unique("step"), INDEX)
        stmts.append(tir.For(step, _int(0), _int(plan.steps), self._body(step)))
        if self.sums is not None and finish is not None:
            stmts.append(self._finish(finish, self.sums))
        body: tir.Stmt = tir.Seq(tuple(stmts))
        for buffer in reversed(allocated):
            body = tir.Allocate(buffer, body, "ring")
        return body

    # ---- one step ----------------------------------------------------------------------------

    def _body(self, step: tir.Var) -> tir.Stmt:
        segment = self.segment
        stmts: list[tuple[tir.Stmt, tir.Buffer | None]] = []
        if segment.plan.fed:
            stmts.append((self._feed(step), self._transient_buffer(segment.plan.source)))
        for index, stage in enumerate(segment.stages):
            stmts.append((self._stage(index, step), self._transient_buffer(stage.result)))
        body: list[tir.Stmt] = []
        for stmt, passing in reversed(stmts):
            body.insert(0, stmt)
            if passing is not None:
                body = [tir.Allocate(passing, tir.Seq(tuple(body)), "ring")]
        return tir.Seq(tuple(body))

    def _transient_buffer(self, name: str) -> tir.Buffer | None:
        row_buffer = self.segment.plan.row_buffers.get(name)
        return self.rows[name] if row_buffer is not None and row_buffer.is_transient else None

    def _feed(self, step: tir.Var) -> tir.Stmt:
        name = self.segment.plan.source
        rows, source = self.rows[name], self.whole[name]
        size = _row_elements(rows)
        height = source.elements // size
        pointer = tir.AccessPtr(source, as_expr(ArithExpr(step) * size), size, "r")
        kernel = copy_row_kernel(rows.dtype, size, self.target)
        call = tir.PrimFuncCall(self._function(kernel), (pointer, self._newest_band(name)))
        return self._guard_band(name, ArithExpr(step), height, self.segment.plan.steps, 0, call)

    def _stage(self, index: int, step: tir.Var) -> tir.Stmt:
        segment = self.segment
        stage, firing = segment.stages[index], segment.plan.firings[index]
        period, lag = firing.period, firing.lag
        row = tir.Var(self.names.unique("row"), INDEX)
        pick, call = segment.picks[index], segment.calls[index]
        starts = dict(zip(stage.sources, firing.starts, strict=True))
        reading = [
            self._window(value.name, starts[value.name], stage, ArithExpr(row))
            if value.name in starts
            else whole_buffer(self.whole[value.name], "r")
            for value in call.variables
        ]
        args = (*reading, self._output_pointer(stage, ArithExpr(row)))
        name = self._function(pick.function)
        kernel_call = tir.PrimFuncCall(name, args, call.span, segment.first + index)
        turns = -(-segment.plan.steps // period)  # the last may not be complete
        stmt = self._guard_band(stage.result, ArithExpr(row), stage.height, turns, lag, kernel_call)
        stmt = tir.Let(row, as_expr(ArithExpr(step) / period - lag), stmt)
        if period == 1:
            return stmt
        return tir.If(as_expr((ArithExpr(step) % period).equal(period - 1), BOOL), stmt)

    def _guard_band(
        self, name: str, row: ArithExpr, height: int, turns: int, lag: int, stmt: tir.Stmt
    ) -> tir.Stmt:
        """Restrict `stmt` to bands within the tensor, and fill the padding bands after them."""
        row_buffer = self.segment.plan.row_buffers.get(name)
        shift: list[tir.Stmt] = []
        if row_buffer is not None and not row_buffer.is_transient:
            rows, count, band = self.rows[name], row_buffer.rows, row_buffer.band
            kernel = shift_rows_kernel(rows.dtype, count, _row_elements(rows), band, self.target)
            shift = [tir.PrimFuncCall(self._function(kernel), (whole_buffer(rows, "rw"),))]
        conditions = [row >= 0] if lag > 0 else []
        if turns - lag > height:
            conditions.append(row < height)
        then: tir.Stmt = tir.Seq((*shift, stmt))
        if not conditions:
            return then
        padding: tir.Stmt | None = None
        if row_buffer is not None and row_buffer.padding_bands:
            tail = [*shift]
            if row_buffer.fill is not None:
                newest = self._newest_band(name)
                kernel = fill_kernel(
                    newest.buffer.dtype, newest.extent, row_buffer.fill, self.target
                )
                tail.append(tir.PrimFuncCall(self._function(kernel), (newest,)))
            cond = logical_and(row >= height, row < height + row_buffer.padding_bands)
            padding = tir.If(as_expr(cond, BOOL), tir.Seq(tuple(tail)))
        return tir.If(as_expr(logical_and(*conditions), BOOL), then, padding)

    # ---- pointers and calls ------------------------------------------------------------------

    def _window(
        self, name: str, start: int | None, stage: RowStage, row: ArithExpr
    ) -> tir.AccessPtr:
        if start is not None:
            rows = self.rows[name]
            size = _row_elements(rows)
            return tir.AccessPtr(rows, _int(start * size), stage.rows.window_height * size, "r")
        source = self.whole[name]
        size = source.elements // source.shape[1]
        offset = as_expr(row * (stage.rows.stride * size))
        return tir.AccessPtr(source, offset, stage.rows.window_height * size, "r")

    def _output_pointer(self, stage: RowStage, row: ArithExpr) -> tir.AccessPtr:
        if self.sums is not None and not stage.result:
            return whole_buffer(self.sums, "rw")
        if stage.result in self.rows:
            return self._newest_band(stage.result)
        result = self.whole[stage.result]
        size = result.elements // stage.height
        return tir.AccessPtr(result, as_expr(row * size), size, "w")

    def _newest_band(self, name: str) -> tir.AccessPtr:
        rows = self.rows[name]
        size = _row_elements(rows) * self.segment.plan.row_buffers[name].band
        return tir.AccessPtr(rows, _int(rows.elements - size), size, "w")

    def _fill(self, buffer: tir.Buffer, value: float) -> tir.Stmt:
        kernel = fill_kernel(buffer.dtype, buffer.elements, value, self.target)
        return tir.PrimFuncCall(self._function(kernel), (whole_buffer(buffer, "w"),))

    def _finish(self, finish: LoweringCandidate, sums: tir.Buffer) -> tir.Stmt:
        call, name = self.segment.calls[-1], self._function(finish.function)
        args = (whole_buffer(sums, "r"), whole_buffer(self.whole[call.outputs[0].name], "w"))
        return tir.PrimFuncCall(name, args, call.span, self.segment.end - 1)

    def _function(self, kernel: tir.PrimFunc) -> str:
        self.functions[kernel.name] = kernel
        return kernel.name


def _row_elements(rows: tir.Buffer) -> int:
    return rows.elements // rows.shape[0]


def _int(value: ExprLike) -> tir.Expr:
    return tir.IntImm(value, INDEX) if isinstance(value, int) else as_expr(value)
