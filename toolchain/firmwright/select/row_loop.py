"""A row-streamed segment as TIR: one loop over the rows that flow in, calls of row kernels inside.

In: a `Segment`, and the buffers of the tensors that lie in memory as a whole. Out: the statement
for the AOT main, and the functions that it calls. The rows that are kept of a tensor lie in order,
the newest last: when one more comes, those before it move up (`row_moves.slide`), so kernels find
every window in one piece and at a fixed place. Rows outside of the tensor hold its padding.

    for step in rows of the source, and some more until the last stage is done
        a row of the source comes in (or padding)
        stage: if a row of it is due: make room; kernel(window of its sources, newest row)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from firmwright.base.dtypes import BOOL
from firmwright.base.names import NameSupply
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call, TensorType, Value
from firmwright.ir.graph.opdef import RowFold
from firmwright.ir.tir.builder import INDEX, E, Operand, expr, logical_and
from firmwright.ir.tir.nodes import (
    Access,
    AccessPtr,
    Allocate,
    Buffer,
    CallPrim,
    Expr,
    For,
    If,
    IntImm,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Var,
)
from firmwright.ir.tir.schedule import Alternative, RowKernels
from firmwright.select.row_moves import copy, fill, slide
from firmwright.select.row_plan import Firing, Kept, RowPlan, Stage

ROW_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Segment:
    """Calls `first`.. of the entry, computed together row by row, with the kernel of each.

    `instructions` are those of a run, as predicted.
    """

    first: int
    calls: tuple[Call, ...]
    kernels: tuple[RowKernels, ...]
    picks: tuple[Alternative, ...]
    stages: tuple[Stage, ...]
    plan: RowPlan
    instructions: int = 0

    @property
    def end(self) -> int:
        return self.first + len(self.calls)

    @property
    def constants(self) -> dict[str, Constant]:
        """What the kernels link."""
        found: dict[str, Constant] = {}
        for pick in self.picks:
            found.update(pick.constants)
        return found

    @property
    def streamed(self) -> frozenset[str]:
        """Tensors that never are in memory as a whole."""
        return frozenset(self.plan.kept) - {self.plan.source}


def row_loop(
    segment: Segment, whole: Mapping[str, Buffer], names: NameSupply, target: str
) -> tuple[Stmt, dict[str, PrimFunc]]:
    """The segment's statement and the functions it calls."""
    work = _RowLoop(segment, whole, names, target)
    return work.statement(), work.functions


@dataclass
class _RowLoop:
    segment: Segment
    whole: Mapping[str, Buffer]
    names: NameSupply
    target: str
    functions: dict[str, PrimFunc] = field(default_factory=dict)
    rows: dict[str, Buffer] = field(default_factory=dict)

    def statement(self) -> Stmt:
        plan = self.segment.plan
        types = self._types()
        self.rows = {name: self._kept(name, types[name], k) for name, k in plan.kept.items()}
        before = [self._filled(name) for name, kept in plan.kept.items() if not kept.passing]
        sums = self._sums()
        if sums is not None:
            before.append(self._call(fill(sums.dtype, sums.elements, 0, self.target), (sums, "w")))
        step = Var(self.names.take("step"), INDEX)
        loop = For(step, _int(0), _int(plan.steps), self._body(step, sums))
        stmts = [*before, loop]
        finish = self.segment.kernels[-1].finish
        if sums is not None and finish is not None:
            stmts.append(self._finish(finish, sums))
        body: Stmt = Seq(tuple(stmts))
        if sums is not None:
            body = Allocate(sums, body, "ring")
        for name, kept in reversed(list(plan.kept.items())):
            if not kept.passing:
                body = Allocate(self.rows[name], body, "ring")
        return body

    def _types(self) -> dict[str, TensorType]:
        values: list[Value | None] = []
        for call in self.segment.calls:
            values += [*call.inputs, *call.outputs]
        return {value.name: value.type for value in values if value is not None}

    def _kept(self, name: str, kind: TensorType, kept: Kept) -> Buffer:
        fresh = f"{name}_rows" if name == self.segment.plan.source else name
        shape = (kept.rows, *kind.shape[2:])
        return Buffer(self.names.take(fresh), kind.dtype, shape, alignment=ROW_ALIGNMENT)

    def _sums(self) -> Buffer | None:
        rows = self.segment.kernels[-1].rows
        if not isinstance(rows, RowFold):
            return None
        name = self.names.take(f"{self.segment.calls[-1].outputs[0].name}_sums")
        return Buffer(name, rows.dtype, (rows.count,), alignment=ROW_ALIGNMENT)

    # ---- one step ----------------------------------------------------------------------------

    def _body(self, step: Var, sums: Buffer | None) -> Stmt:
        """What happens in a step; rows that only the next stages of it need are allocated in it."""
        segment = self.segment
        stmts: list[tuple[Stmt, Buffer | None]] = []
        if segment.plan.fed:
            stmts.append((self._feed(step), self._passing(segment.plan.source)))
        for index, (stage, firing) in enumerate(
            zip(segment.stages, segment.plan.firings, strict=True)
        ):
            stmt = self._stage(index, stage, firing, step, sums)
            stmts.append((stmt, self._passing(stage.result)))
        body: list[Stmt] = []
        for stmt, passing in reversed(stmts):
            body.insert(0, stmt)
            if passing is not None:
                body = [Allocate(passing, Seq(tuple(body)), "ring")]
        return Seq(tuple(body))

    def _passing(self, name: str) -> Buffer | None:
        kept = self.segment.plan.kept.get(name)
        return self.rows[name] if kept is not None and kept.passing else None

    def _feed(self, step: Var) -> Stmt:
        """Takes in row `step` of the source."""
        name = self.segment.plan.source
        rows, source = self.rows[name], self.whole[name]
        size = rows.elements // rows.shape[0]
        height = source.elements // size
        pointer = AccessPtr(source, expr(E(step) * size), size, "r")
        call = CallPrim(
            self._function(copy(rows.dtype, size, self.target)), (pointer, self._newest(name))
        )
        return self._due(name, E(step), height, self.segment.plan.steps, 0, [call])

    def _stage(
        self, index: int, stage: Stage, firing: Firing, step: Var, sums: Buffer | None
    ) -> Stmt:
        period, lag = firing.period, firing.lag
        row = Var(self.names.take("row"), INDEX)
        pick, call = self.segment.picks[index], self.segment.calls[index]
        starts = dict(zip(stage.sources, firing.starts, strict=True))
        reading = [
            self._window(value.name, starts[value.name], stage, E(row))
            if value.name in starts
            else _all(self.whole[value.name], "r")
            for value in call.variables
        ]
        written = self._written(stage, E(row), sums)
        self.functions[pick.function.name] = pick.function
        made = CallPrim(
            pick.function.name, (*reading, written), call.span, self.segment.first + index
        )
        turns = self.segment.plan.steps // period
        stmt = self._due(stage.result, E(row), stage.height, turns, lag, [made])
        stmt = Let(row, expr(E(step) / period - lag), stmt)
        if period == 1:
            return stmt
        return If(expr((E(step) % period).equal(period - 1), BOOL), stmt)

    def _due(self, name: str, row: E, height: int, turns: int, lag: int, made: list[Stmt]) -> Stmt:
        """`made` for the bands of the tensor, after that its padding's turn."""
        kept = self.segment.plan.kept.get(name)
        room: list[Stmt] = []
        if kept is not None and not kept.passing:
            rows = self.rows[name]
            size = rows.elements // kept.rows
            kernel = slide(rows.dtype, kept.rows, size, kept.band, self.target)
            room = [self._call(kernel, (rows, "rw"))]
        conditions = [row >= 0] if lag > 0 else []
        if turns - lag > height:
            conditions.append(row < height)
        then: Stmt = Seq((*room, *made))
        if not conditions:
            return then
        padding: Stmt | None = None
        if kept is not None and kept.padding_bands:
            tail = [*room] if kept.fill is None else [*room, self._padding(name, kept.fill)]
            cond = logical_and(row >= height, row < height + kept.padding_bands)
            padding = If(expr(cond, BOOL), Seq(tuple(tail)))
        return If(expr(logical_and(*conditions), BOOL), then, padding)

    # ---- pointers and calls ------------------------------------------------------------------

    def _window(self, name: str, start: int | None, stage: Stage, row: E) -> AccessPtr:
        """The rows of a source that band `row` of the stage is made of."""
        if start is not None:
            rows = self.rows[name]
            size = rows.elements // rows.shape[0]
            return AccessPtr(rows, _int(start * size), stage.rows.reach * size, "r")
        source = self.whole[name]
        size = source.elements // source.shape[1]
        offset = expr(row * (stage.rows.stride * size))
        return AccessPtr(source, offset, stage.rows.reach * size, "r")

    def _written(self, stage: Stage, row: E, sums: Buffer | None) -> AccessPtr:
        if sums is not None and not stage.result:
            return _all(sums, "rw")
        if stage.result in self.rows:
            return self._newest(stage.result)
        result = self.whole[stage.result]
        size = result.elements // stage.height
        return AccessPtr(result, expr(row * size), size, "w")

    def _newest(self, name: str) -> AccessPtr:
        rows = self.rows[name]
        size = rows.elements // rows.shape[0] * self.segment.plan.kept[name].band
        return AccessPtr(rows, _int(rows.elements - size), size, "w")

    def _padding(self, name: str, value: float) -> Stmt:
        newest = self._newest(name)
        kernel = fill(newest.buffer.dtype, newest.extent, value, self.target)
        return CallPrim(self._function(kernel), (newest,))

    def _filled(self, name: str) -> Stmt:
        """All rows that are kept as padding; where there is none their contents do not matter."""
        rows, value = self.rows[name], self.segment.plan.kept[name].fill
        return self._call(fill(rows.dtype, rows.elements, value or 0, self.target), (rows, "w"))

    def _finish(self, finish: Alternative, sums: Buffer) -> Stmt:
        call = self.segment.calls[-1]
        self.functions[finish.function.name] = finish.function
        args = (_all(sums, "r"), _all(self.whole[call.outputs[0].name], "w"))
        return CallPrim(finish.function.name, args, call.span, self.segment.end - 1)

    def _call(self, kernel: PrimFunc, *args: tuple[Buffer, Access]) -> Stmt:
        pointers = tuple(_all(buffer, access) for buffer, access in args)
        return CallPrim(self._function(kernel), pointers)

    def _function(self, kernel: PrimFunc) -> str:
        self.functions[kernel.name] = kernel
        return kernel.name


def _all(buffer: Buffer, access: Access) -> AccessPtr:
    return AccessPtr(buffer, _int(0), buffer.elements, access)


def _int(value: Operand) -> Expr:
    return IntImm(value, INDEX) if isinstance(value, int) else expr(value)
