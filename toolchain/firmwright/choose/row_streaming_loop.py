"""TIR of a row-streamed segment: a loop over the source rows that calls row kernels.

A row buffer holds rows in order, the newest last; each new row shifts the older ones,
so every window is contiguous at a fixed position. Rows outside the tensor hold its
padding.

    for step in source rows, then in further steps until the last stage is complete
        copy a row of the source (or padding)
        for each stage that fires
            shift its row buffer
            kernel(window of sources, newest row)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.dtypes import BOOL
from firmwright.base.rounding import divide_up
from firmwright.choose.row_copy_kernels import (
    copy_row_kernel,
    fill_kernel,
    shift_rows_kernel,
)
from firmwright.choose.row_streaming_plan import RowBuffer, RowStage, RowStreamingPlan
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call, TensorType
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    ExprLike,
    as_expr,
    logical_and,
    whole_buffer,
)
from firmwright.ops.opdef import RowReduction
from firmwright.ops.schedule import LoweringCandidate, RowKernels

ROW_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class FusedSegment:
    """Calls of the entry from index `first`, computed together row by row.

    `picks` has the chosen kernel of each call. Time and instructions are predicted for
    one run.
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
        """The constants of all chosen kernels."""
        constants: dict[str, Constant] = {}
        for pick in self.picks:
            constants.update(pick.constants)
        return constants

    @property
    def streamed(self) -> frozenset[str]:
        """The values of which only row buffers exist."""
        return frozenset(self.plan.row_buffers) - {self.plan.source}


def build_row_streaming_loop(
    segment: FusedSegment,
    whole: Mapping[str, tir.Buffer],
    names: UniqueNamer,
    target: str,
) -> tuple[tir.Stmt, dict[str, tir.PrimFunc]]:
    """Return the loop of a segment and the kernels that it calls.

    `whole` has the buffers of the values that are in memory as a whole.
    """
    builder = _RowStreamingLoopBuilder(segment, whole, names, target)
    return builder.statement(), builder.functions


@dataclass
class _RowStreamingLoopBuilder:
    """Builds the loop; `rows` are row buffers, `sums` is that of a final reduction."""

    segment: FusedSegment
    whole: Mapping[str, tir.Buffer]
    names: UniqueNamer
    target: str
    functions: dict[str, tir.PrimFunc] = field(default_factory=dict)
    rows: dict[str, tir.Buffer] = field(default_factory=dict)
    sums: tir.Buffer | None = None

    def statement(self) -> tir.Stmt:
        """Return the loop within the initial values and allocations of lasting buffers.

        Transient row buffers are allocated within a step.
        """
        plan, kernels = self.segment.plan, self.segment.kernels[-1]
        self._make_row_buffers()
        stmts: list[tir.Stmt] = []
        allocated: list[tir.Buffer] = []
        for name, row_buffer in plan.row_buffers.items():
            if not row_buffer.is_transient:
                # Without padding the initial contents of a row buffer do not matter.
                stmts.append(self._fill(self.rows[name], row_buffer.fill or 0))
                allocated.append(self.rows[name])
        if isinstance(kernels.rows, RowReduction):
            name = self.names.unique(f"{self.segment.calls[-1].outputs[0].name}_sums")
            shape, dtype = (kernels.rows.count,), kernels.rows.dtype
            self.sums = tir.Buffer(name, dtype, shape, alignment=ROW_ALIGNMENT)
            allocated.append(self.sums)
            stmts.append(self._fill(self.sums, 0))
        step = tir.Var(self.names.unique("step"), INDEX)
        stmts.append(tir.For(step, _int(0), _int(plan.steps), self._body(step)))
        if self.sums is not None and kernels.finish is not None:
            stmts.append(self._finish(kernels.finish, self.sums))
        body: tir.Stmt = tir.Seq(tuple(stmts))
        for buffer in reversed(allocated):
            body = tir.Allocate(buffer, body, "ring")
        return body

    def _make_row_buffers(self) -> None:
        """Fill `rows`: the source has a second buffer, with a name of its own."""
        types: dict[str, TensorType] = {}
        for call in self.segment.calls:
            for value in call.values:
                types[value.name] = value.type
        plan = self.segment.plan
        for name, row_buffer in plan.row_buffers.items():
            kind, own_name = types[name], name
            if name == plan.source:
                own_name = f"{name}_rows"
            own_name = self.names.unique(own_name)
            shape = (row_buffer.rows, *kind.shape[2:])
            buffer = tir.Buffer(own_name, kind.dtype, shape, alignment=ROW_ALIGNMENT)
            self.rows[name] = buffer

    # ---- one step --------------------------------------------------------------------

    def _body(self, step: tir.Var) -> tir.Stmt:
        """Return the statements of a step: the feed, then the stages.

        A transient row buffer is allocated from the statement that writes it to the end
        of the step; the statements are therefore nested, and built from the last one.
        """
        segment = self.segment
        stmts: list[tir.Stmt] = []
        results: list[str] = []
        if segment.plan.fed:
            stmts.append(self._feed(step))
            results.append(segment.plan.source)
        for index, stage in enumerate(segment.stages):
            stmts.append(self._stage(index, step))
            results.append(stage.result)
        body: list[tir.Stmt] = []
        # row = feed; [ a = stage 0; [ b = stage 1; stage 2 ] ]
        #
        # A bracket is an Allocate. The life of b begins where it is written, so that it
        # may take the memory of what is dead.
        for stmt, result in zip(reversed(stmts), reversed(results), strict=True):
            body.insert(0, stmt)
            transient = self._transient_buffer(result)
            if transient is not None:
                body = [tir.Allocate(transient, tir.Seq(tuple(body)), "ring")]
        return tir.Seq(tuple(body))

    def _transient_buffer(self, name: str) -> tir.Buffer | None:
        """Return the row buffer of a value if no row of it outlives a step."""
        row_buffer = self.segment.plan.row_buffers.get(name)
        if row_buffer is None or not row_buffer.is_transient:
            return None
        return self.rows[name]

    def _feed(self, step: tir.Var) -> tir.Stmt:
        """Copy the row of this step from the source to its row buffer."""
        name = self.segment.plan.source
        rows, source = self.rows[name], self.whole[name]
        size = _row_elements(rows)
        height = source.elements // size
        pointer = tir.AccessPtr(source, as_expr(ArithExpr(step) * size), size, "r")
        kernel = copy_row_kernel(rows.dtype, size, self.target)
        args = (pointer, self._newest_band(name))
        call = tir.PrimFuncCall(self._function(kernel), args)
        steps = self.segment.plan.steps
        return self._guard_band(name, ArithExpr(step), height, steps, 0, call)

    def _stage(self, index: int, step: tir.Var) -> tir.Stmt:
        """Return the call of a stage's kernel for this step's band, if it fires."""
        segment = self.segment
        stage, firing = segment.stages[index], segment.plan.firings[index]
        period, lag = firing.period, firing.lag
        row = tir.Var(self.names.unique("row"), INDEX)
        band = ArithExpr(row)
        pick, call = segment.picks[index], segment.calls[index]
        starts = dict(zip(stage.sources, firing.starts, strict=True))
        args: list[tir.AccessPtr] = []
        for value in call.variables:
            if value.name in starts:
                args.append(self._window(value.name, starts[value.name], stage, band))
            else:
                args.append(whole_buffer(self.whole[value.name], "r"))
        args.append(self._output_pointer(stage, band))
        name, number = self._function(pick.function), segment.first + index
        stmt: tir.Stmt = tir.PrimFuncCall(name, tuple(args), call.span, number)
        # The stage could fire this often, but only `height` of the turns are bands of
        # the tensor.
        turns = divide_up(segment.plan.steps, period)  # the last may not be complete
        stmt = self._guard_band(stage.result, band, stage.height, turns, lag, stmt)
        stmt = tir.Let(row, as_expr(ArithExpr(step) / period - lag), stmt)
        if period == 1:
            return stmt
        fires = (ArithExpr(step) % period).equal(period - 1)
        return tir.If(as_expr(fires, BOOL), stmt)

    def _guard_band(
        self,
        name: str,
        row: ArithExpr,
        height: int,
        turns: int,
        lag: int,
        stmt: tir.Stmt,
    ) -> tir.Stmt:
        """Restrict `stmt` to bands within the tensor, then fill the padding bands.

        `row` is the number of a band of the value `name`, which has `height` bands. In
        the loop, it is from -`lag` to `turns` - `lag` - 1:

            row      -lag .. -1     0 .. height - 1    then padding_bands    further
                     not ready      shift, stmt        shift, fill           nothing
        """
        row_buffer = self.segment.plan.row_buffers.get(name)
        shift: list[tir.Stmt] = []
        if row_buffer is not None and not row_buffer.is_transient:
            shift.append(self._shift(name, row_buffer))
        # Conditions that always hold are left out: most kernels then have no If.
        conditions: list[ArithExpr] = []
        if lag > 0:
            conditions.append(row >= 0)
        if turns - lag > height:
            conditions.append(row < height)
        then: tir.Stmt = tir.Seq((*shift, stmt))
        if not conditions:
            return then
        padding: tir.Stmt | None = None
        if row_buffer is not None and row_buffer.padding_bands:
            stmts = list(shift)
            if row_buffer.fill is not None:
                newest = self._newest_band(name)
                stmts.append(self._fill_pointed(newest, row_buffer.fill))
            end = height + row_buffer.padding_bands
            is_padding = logical_and(row >= height, row < end)
            padding = tir.If(as_expr(is_padding, BOOL), tir.Seq(tuple(stmts)))
        return tir.If(as_expr(logical_and(*conditions), BOOL), then, padding)

    # ---- pointers and calls ----------------------------------------------------------

    def _window(
        self, name: str, start: int | None, stage: RowStage, row: ArithExpr
    ) -> tir.AccessPtr:
        """Return the rows that a stage reads: from `start` of a buffer, or whole."""
        window_height = stage.rows.window_height
        if start is not None:
            rows = self.rows[name]
            size = _row_elements(rows)
            return tir.AccessPtr(rows, _int(start * size), window_height * size, "r")
        source = self.whole[name]
        size = source.elements // source.shape[1]
        offset = as_expr(row * (stage.rows.stride * size))
        return tir.AccessPtr(source, offset, window_height * size, "r")

    def _output_pointer(self, stage: RowStage, row: ArithExpr) -> tir.AccessPtr:
        """Return the place of a stage's band: sums, row buffer, or whole tensor."""
        if self.sums is not None and not stage.result:
            return whole_buffer(self.sums, "rw")
        if stage.result in self.rows:
            return self._newest_band(stage.result)
        result = self.whole[stage.result]
        size = result.elements // stage.height
        return tir.AccessPtr(result, as_expr(row * size), size, "w")

    def _newest_band(self, name: str) -> tir.AccessPtr:
        """Return the last rows of a row buffer, to which the next band is written."""
        rows = self.rows[name]
        size = _row_elements(rows) * self.segment.plan.row_buffers[name].band
        return tir.AccessPtr(rows, _int(rows.elements - size), size, "w")

    def _shift(self, name: str, row_buffer: RowBuffer) -> tir.Stmt:
        """Return the call that makes room for a band in a row buffer."""
        rows = self.rows[name]
        size, band = _row_elements(rows), row_buffer.band
        kernel = shift_rows_kernel(rows.dtype, row_buffer.rows, size, band, self.target)
        return tir.PrimFuncCall(self._function(kernel), (whole_buffer(rows, "rw"),))

    def _fill(self, buffer: tir.Buffer, value: float) -> tir.Stmt:
        return self._fill_pointed(whole_buffer(buffer, "w"), value)

    def _fill_pointed(self, pointer: tir.AccessPtr, value: float) -> tir.Stmt:
        kernel = fill_kernel(pointer.buffer.dtype, pointer.extent, value, self.target)
        return tir.PrimFuncCall(self._function(kernel), (pointer,))

    def _finish(self, finish: LoweringCandidate, sums: tir.Buffer) -> tir.Stmt:
        """Return the call that computes the result of a row reduction from the sums."""
        call = self.segment.calls[-1]
        name = self._function(finish.function)
        result = self.whole[call.outputs[0].name]
        args = (whole_buffer(sums, "r"), whole_buffer(result, "w"))
        return tir.PrimFuncCall(name, args, call.span, self.segment.end - 1)

    def _function(self, kernel: tir.PrimFunc) -> str:
        """Record a kernel and return its name."""
        self.functions[kernel.name] = kernel
        return kernel.name


def _row_elements(rows: tir.Buffer) -> int:
    return rows.elements // rows.shape[0]


def _int(value: ExprLike) -> tir.Expr:
    return tir.IntImm(value, INDEX) if isinstance(value, int) else as_expr(value)
