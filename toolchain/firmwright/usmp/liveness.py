"""Control-flow graph of the AOT main and liveness of its buffers.

A buffer occupies memory where it may be defined and may still be read, and at each node that
accesses it.

* Nodes that access memory are numbered in program order; these numbers are the times.
* A write does not end the life of the previous value, as it may be partial. An Allocate does:
  contents are undefined each time it is entered.
* The start and the wait of an asynchronous call each access all buffers of the call, which
  therefore remain in memory in between.
* A view (DeclBuffer) counts as its underlying buffer.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from firmwright.ir import tir
from firmwright.ir.module import AnyFunction
from firmwright.ir.tir.plan import BufferInfo, LiveRange
from firmwright.ir.tir.traversal import walk

DEFINED_AT_ENTRY = frozenset({"input", "state", "const"})
"""Kinds of Allocate with contents from before the run."""

_WRITING_ROLES = frozenset({"out", "inout", "scratch"})
_READING_ROLES = frozenset({"in", "inout", "const", "pool"})


@dataclass(frozen=True, slots=True)
class CfgNode:
    """A node, with `time` -1 if it accesses no memory; it makes the buffer `kills` undefined."""

    time: int = -1
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    kills: str = ""
    call: tir.PrimFuncCall | None = None

    @property
    def accessed(self) -> frozenset[str]:
        return self.reads | self.writes


@dataclass(frozen=True, slots=True)
class CfgLoop:
    """A `For` and the times inside it."""

    stmt: tir.For
    live: LiveRange


@dataclass(frozen=True, slots=True)
class ControlFlowGraph:
    """Nodes in the order of the text, edges (from, to) between them, and the exit nodes.

    `allocates` are the planned buffers by name; `roots` maps each buffer's name to its planned
    buffer; `loops` are the outermost loops.
    """

    nodes: tuple[CfgNode, ...]
    edges: tuple[tuple[int, int], ...]
    exits: tuple[int, ...]
    end_time: int
    allocates: Mapping[str, tir.Allocate]
    roots: Mapping[str, str]
    loops: tuple[CfgLoop, ...] = ()


def build_cfg(main: tir.PrimFunc, functions: Mapping[str, AnyFunction]) -> ControlFlowGraph:
    builder = _CfgBuilder(functions)
    exits = builder.walk(main.body, [builder.step([], CfgNode())])
    nodes, edges, loops = tuple(builder.nodes), tuple(builder.edges), tuple(builder.loops)
    return ControlFlowGraph(
        nodes, edges, tuple(exits), builder.time, builder.allocates, builder.roots, loops
    )


def compute_live_ranges(
    flow: ControlFlowGraph, held_at_entry: Collection[str], held_at_exit: Collection[str]
) -> dict[str, tuple[LiveRange, ...]]:
    """Return the times at which each planned buffer occupies memory, as sorted ranges."""
    bit = {name: 1 << index for index, name in enumerate(flow.allocates)}
    defined = _may_be_defined(flow, bit, _mask(bit, held_at_entry))
    live_out = _live_out(flow, bit, _mask(bit, held_at_exit))
    names = list(flow.allocates)
    times: dict[str, list[int]] = {name: [] for name in names}
    for index, step in enumerate(flow.nodes):
        if step.time < 0:
            continue
        occupied = defined[index] & live_out[index] | _mask(bit, step.accessed)
        while occupied:
            lowest = occupied & -occupied
            times[names[lowest.bit_length() - 1]].append(step.time)
            occupied ^= lowest
    return {name: merge_times(moments) for name, moments in times.items()}


def find_last_reads(
    flow: ControlFlowGraph, held_at_exit: Collection[str]
) -> tuple[frozenset[str], ...]:
    """Return the buffers that each node reads for the last time, over all loop iterations."""
    bit = {name: 1 << index for index, name in enumerate(flow.allocates)}
    live_out = _live_out(flow, bit, _mask(bit, held_at_exit))
    return tuple(
        frozenset(name for name in step.reads if not after & bit[name])
        for step, after in zip(flow.nodes, live_out, strict=True)
    )


def live_sets(buffers: Sequence[BufferInfo]) -> Iterator[tuple[int, ...]]:
    """At each time at which a live range begins, yield the positions of all live buffers."""
    alive: set[int] = set()
    for _, (begin, end) in sorted(_changes(buffers).items()):
        alive.difference_update(end)
        alive.update(begin)
        if begin:
            yield tuple(sorted(alive))


def live_sets_by_time(buffers: Sequence[BufferInfo], end: int) -> Iterator[tuple[int, ...]]:
    changes = _changes(buffers)
    alive: set[int] = set()
    shown: tuple[int, ...] = ()
    for time in range(end):
        if time in changes:
            alive.difference_update(changes[time][1])
            alive.update(changes[time][0])
            shown = tuple(sorted(alive))
        yield shown


def _changes(buffers: Sequence[BufferInfo]) -> dict[int, tuple[list[int], list[int]]]:
    """Return, by time, the positions of the buffers with ranges that begin and that end."""
    changes: dict[int, tuple[list[int], list[int]]] = {}
    for index, buffer in enumerate(buffers):
        for live in buffer.live:
            changes.setdefault(live.first, ([], []))[0].append(index)
            changes.setdefault(live.end, ([], []))[1].append(index)
    return changes


def merge_times(times: Sequence[int]) -> tuple[LiveRange, ...]:
    """Merge consecutive times into half-open ranges; `times` must be ascending."""
    ranges: list[LiveRange] = []
    for time in times:
        if ranges and ranges[-1].end == time:
            ranges[-1] = LiveRange(ranges[-1].first, time + 1)
        else:
            ranges.append(LiveRange(time, time + 1))
    return tuple(ranges)


def _mask(bit: Mapping[str, int], names: Collection[str]) -> int:
    return sum(bit[name] for name in names)


def _may_be_defined(flow: ControlFlowGraph, bit: Mapping[str, int], at_entry: int) -> list[int]:
    def leaving(index: int, arriving: int) -> int:
        return (arriving | _mask(bit, flow.nodes[index].writes)) & _survivors(flow, bit, index)

    return _solve_dataflow(flow.edges, [at_entry] + [0] * (len(flow.nodes) - 1), leaving)


def _live_out(flow: ControlFlowGraph, bit: Mapping[str, int], at_exit: int) -> list[int]:
    def arriving(index: int, leaving: int) -> int:
        return leaving & _survivors(flow, bit, index) | _mask(bit, flow.nodes[index].reads)

    edges = [(target, source) for source, target in reversed(flow.edges)]
    exits = set(flow.exits)
    at_nodes = [at_exit if index in exits else 0 for index in range(len(flow.nodes))]
    return _solve_dataflow(edges, at_nodes, arriving)


def _survivors(flow: ControlFlowGraph, bit: Mapping[str, int], index: int) -> int:
    kills = flow.nodes[index].kills
    return ~bit[kills] if kills else -1


def _solve_dataflow(
    edges: Sequence[tuple[int, int]], state: list[int], transfer: Callable[[int, int], int]
) -> list[int]:
    """Propagate bit sets along edges until none changes; `transfer` maps a node's set."""
    changed = True
    while changed:
        changed = False
        for source, target in edges:
            moved = transfer(source, state[source])
            if moved & ~state[target]:
                state[target] |= moved
                changed = True
    return state


class _CfgBuilder:
    """Builds nodes and edges; `walk` takes a statement's predecessors and returns its exits."""

    def __init__(self, functions: Mapping[str, AnyFunction]) -> None:
        self.functions = functions
        self.nodes: list[CfgNode] = []
        self.edges: list[tuple[int, int]] = []
        self.time = 0
        self.allocates: dict[str, tir.Allocate] = {}
        self.roots: dict[str, str] = {}
        self.loops: list[CfgLoop] = []
        self.loop_depth = 0

    def step(self, before: Sequence[int], step: CfgNode) -> int:
        self.nodes.append(step)
        self.edges.extend((source, len(self.nodes) - 1) for source in before)
        return len(self.nodes) - 1

    def walk(self, stmt: tir.Stmt, before: Sequence[int]) -> list[int]:
        match stmt:
            case tir.Seq(stmts):
                after = list(before)
                for part in stmts:
                    after = self.walk(part, after)
                return after
            case tir.Allocate() | tir.AllocateConst() | tir.DeclBuffer() | tir.Let():
                return self._scope(stmt, before)
            case tir.If(cond, then, orelse):
                head = [self._touching(before, cond)]
                return self.walk(then, head) + (self.walk(orelse, head) if orelse else head)
            case tir.For(_, start, extent, body, _):
                start_step = self._touching(before, start, extent)
                first = self.time
                left_by = self._loop(start_step, body)
                if not self.loop_depth and self.time > first:
                    self.loops.append(CfgLoop(stmt, LiveRange(first, self.time)))
                return left_by
            case tir.While(cond, body):
                return self._loop(self._touching(before, cond), body)
            case tir.BufferStore(buffer, indices, value):
                return [self._touching(before, *indices, value, stored=buffer.name)]
            case tir.Evaluate(call):
                return [self._touching(before, call)]
            case tir.PrimFuncCall():
                return [self._call(before, stmt)]

    def _scope(
        self,
        stmt: tir.Allocate | tir.AllocateConst | tir.DeclBuffer | tir.Let,
        before: Sequence[int],
    ) -> list[int]:
        after = list(before)
        match stmt:
            case tir.Allocate(buffer, _, kind) if buffer.scope == "global":
                self.allocates[buffer.name] = stmt
                self.roots[buffer.name] = buffer.name
                if kind not in DEFINED_AT_ENTRY:
                    after = [self.step(before, CfgNode(kills=buffer.name))]
            case tir.DeclBuffer(buffer, source, _):
                if source.buffer.name in self.roots:
                    self.roots[buffer.name] = self.roots[source.buffer.name]
                after = [self._touching(before, source.offset)]
            case tir.Let(_, value, _):
                after = [self._touching(before, value)]
        return self.walk(stmt.body, after)

    def _loop(self, head: int, body: tir.Stmt) -> list[int]:
        self.loop_depth += 1
        self.edges.extend((source, head) for source in self.walk(body, [head]))
        self.loop_depth -= 1
        return [head]

    def _touching(self, before: Sequence[int], *exprs: tir.Expr, stored: str = "") -> int:
        reads, writes = self._accesses(exprs)
        if stored in self.roots:
            writes |= {self.roots[stored]}
        is_access = bool(reads or writes)
        return self.step(before, CfgNode(self._tick(), reads, writes) if is_access else CfgNode())

    def _call(self, before: Sequence[int], call: tir.PrimFuncCall) -> int:
        reads, writes = self._accesses(call.args)
        callee = self.functions.get(call.callee)
        if isinstance(callee, tir.PrimFunc):
            for arg, param in zip(call.args, callee.params, strict=True):
                if isinstance(arg, tir.AccessPtr) and arg.buffer.name in self.roots:
                    root = frozenset({self.roots[arg.buffer.name]})
                    reads |= root if param.role in _READING_ROLES else frozenset()
                    writes |= root if param.role in _WRITING_ROLES else frozenset()
        if call.phase != "call":
            reads = writes = reads | writes
        return self.step(before, CfgNode(self._tick(), reads, writes, call=call))

    def _tick(self) -> int:
        self.time += 1
        return self.time - 1

    def _accesses(self, exprs: Sequence[tir.Expr]) -> tuple[frozenset[str], frozenset[str]]:
        reads: set[str] = set()
        writes: set[str] = set()
        for node in (node for expr in exprs for node in walk(expr)):
            if isinstance(node, tir.BufferLoad | tir.AccessPtr) and node.buffer.name in self.roots:
                root = self.roots[node.buffer.name]
                access = node.access if isinstance(node, tir.AccessPtr) else "r"
                reads |= {root} if "r" in access else set()
                writes |= {root} if "w" in access else set()
        return frozenset(reads), frozenset(writes)
