"""Control-flow graph of the AOT main and liveness of its buffers.

A buffer occupies memory where it may be defined and may still be read, and at each node
that accesses it.

* Nodes that access memory are numbered in program order; these numbers are the times.
* A write does not end the life of the previous value, as it may be partial. An Allocate
  does: contents are undefined each time it is entered.
* The start and the wait of an asynchronous call each access all buffers of the call,
  which therefore remain in memory in between.
* A view (DeclBuffer) counts as its underlying buffer.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
    """A node; its `time` is -1 without memory accesses; it makes `kills` undefined."""

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
    """Nodes in the order of the text, edges (from, to), and the exit nodes.

    `allocates` are the planned buffers by name; `roots` maps each buffer's name to its
    planned buffer; `loops` are the outermost loops.
    """

    nodes: tuple[CfgNode, ...]
    edges: tuple[tuple[int, int], ...]
    exits: tuple[int, ...]
    end_time: int
    allocates: Mapping[str, tir.Allocate]
    roots: Mapping[str, str]
    loops: tuple[CfgLoop, ...] = ()


def build_cfg(
    main: tir.PrimFunc, functions: Mapping[str, AnyFunction]
) -> ControlFlowGraph:
    """Return the graph of `main`; `functions` has the kernels and parameter roles.

    Its first node is the entry. For the statement `for i: a; b` followed by `c`:

        head -> a -> b -> head     the head evaluates the extent
        head -> c                  the loop may run no time
    """
    builder = _CfgBuilder(functions)
    entry = builder.step([], CfgNode())
    exits = builder.walk(main.body, [entry])
    return ControlFlowGraph(
        nodes=tuple(builder.nodes),
        edges=tuple(builder.edges),
        exits=tuple(exits),
        end_time=builder.time,
        allocates=builder.allocates,
        roots=builder.roots,
        loops=tuple(builder.loops),
    )


def compute_live_ranges(
    flow: ControlFlowGraph,
    held_at_entry: Collection[str],
    held_at_exit: Collection[str],
) -> dict[str, tuple[LiveRange, ...]]:
    """Return the times at which each planned buffer occupies memory, as sorted ranges.

    The buffers in `held_at_entry` have contents before the run, those in `held_at_exit`
    are read after it. Sets of buffers are bit masks: a graph has hundreds of nodes and
    buffers.
    """
    bit = _bits(flow)
    defined = _may_be_defined(flow, bit, _mask(bit, held_at_entry))
    live_out = _live_out(flow, bit, _mask(bit, held_at_exit))
    names = list(flow.allocates)
    times: dict[str, list[int]] = {name: [] for name in names}
    for index, node in enumerate(flow.nodes):
        if node.time < 0:
            continue
        # A buffer that may be defined but is not read any more is dead, and one that is
        # read later but is not defined yet has nothing to keep. An access itself needs
        # the memory in any case: of a result that is never read, too.
        occupied = (defined[index] & live_out[index]) | _mask(bit, node.accessed)
        while occupied:
            # x & -x is the lowest set bit of x: the loop visits the set bits only.
            lowest = occupied & -occupied
            times[names[lowest.bit_length() - 1]].append(node.time)
            occupied ^= lowest
    return {name: merge_times(moments) for name, moments in times.items()}


def find_last_reads(
    flow: ControlFlowGraph, held_at_exit: Collection[str]
) -> tuple[frozenset[str], ...]:
    """Return the buffers that each node reads for the last time, loops included."""
    bit = _bits(flow)
    live_out = _live_out(flow, bit, _mask(bit, held_at_exit))
    last_reads: list[frozenset[str]] = []
    for node, needed_later in zip(flow.nodes, live_out, strict=True):
        last = [name for name in node.reads if not needed_later & bit[name]]
        last_reads.append(frozenset(last))
    return tuple(last_reads)


def live_end(buffers: Sequence[BufferInfo]) -> int:
    """Return the time at which the last live range ends; 0 without buffers."""
    end = 0
    for buffer in buffers:
        for live in buffer.live:
            end = max(end, live.end)
    return end


def live_sets(buffers: Sequence[BufferInfo]) -> Iterator[tuple[int, ...]]:
    """Yield the positions of the live buffers whenever a live range begins."""
    alive: set[int] = set()
    changes = _changes(buffers)
    for time in sorted(changes):
        change = changes[time]
        alive.difference_update(change.ending)
        alive.update(change.beginning)
        if change.beginning:
            yield tuple(sorted(alive))


def live_sets_by_time(
    buffers: Sequence[BufferInfo], end: int
) -> Iterator[tuple[int, ...]]:
    """For each time before `end`, yield the positions of all live buffers."""
    changes = _changes(buffers)
    alive: set[int] = set()
    shown: tuple[int, ...] = ()
    for time in range(end):
        change = changes.get(time)
        if change is not None:
            alive.difference_update(change.ending)
            alive.update(change.beginning)
            shown = tuple(sorted(alive))
        yield shown


@dataclass(frozen=True, slots=True)
class _Change:
    """The positions of the buffers whose live ranges begin, or end, at one time."""

    beginning: list[int] = field(default_factory=list)
    ending: list[int] = field(default_factory=list)


def _changes(buffers: Sequence[BufferInfo]) -> dict[int, _Change]:
    """Return the changes by time."""
    changes: dict[int, _Change] = {}
    for index, buffer in enumerate(buffers):
        for live in buffer.live:
            changes.setdefault(live.first, _Change()).beginning.append(index)
            changes.setdefault(live.end, _Change()).ending.append(index)
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


def _bits(flow: ControlFlowGraph) -> dict[str, int]:
    """Return the bit of each planned buffer in masks."""
    return {name: 1 << index for index, name in enumerate(flow.allocates)}


def _mask(bit: Mapping[str, int], names: Collection[str]) -> int:
    mask = 0
    for name in names:
        mask += bit[name]
    return mask


def _may_be_defined(
    flow: ControlFlowGraph, bit: Mapping[str, int], at_entry: int
) -> list[int]:
    """Return the buffers that may have contents when each node is reached, forwards."""

    def leaving(index: int, arriving: int) -> int:
        node = flow.nodes[index]
        return (arriving | _mask(bit, node.writes)) & _survivors(node, bit)

    state = [0] * len(flow.nodes)
    state[0] = at_entry
    return _solve_dataflow(flow.edges, state, leaving)


def _live_out(
    flow: ControlFlowGraph, bit: Mapping[str, int], at_exit: int
) -> list[int]:
    """Return the buffers whose contents may be read after each node, backwards."""

    def arriving(index: int, leaving: int) -> int:
        node = flow.nodes[index]
        return (leaving & _survivors(node, bit)) | _mask(bit, node.reads)

    # Reversed edges in reversed order: sweeps go from the end of the text, as the sets.
    edges = [(target, source) for source, target in reversed(flow.edges)]
    state = [0] * len(flow.nodes)
    for index in flow.exits:
        state[index] = at_exit
    return _solve_dataflow(edges, state, arriving)


def _survivors(node: CfgNode, bit: Mapping[str, int]) -> int:
    """Return the mask of buffers whose contents a node keeps: all, or all but one."""
    return ~bit[node.kills] if node.kills else -1


def _solve_dataflow(
    edges: Sequence[tuple[int, int]],
    state: list[int],
    transfer: Callable[[int, int], int],
) -> list[int]:
    """Propagate bit sets along edges until none changes; `transfer` maps a node's set.

    Edges are in the order of the text, so each sweep reaches the ends of most paths.
    """
    changed = True
    while changed:
        changed = False
        for source, target in edges:
            # The sets only grow, within finitely many buffers, so the sweeps end.
            moved = transfer(source, state[source])
            if moved & ~state[target]:
                state[target] |= moved
                changed = True
    return state


class _CfgBuilder:
    """Builds nodes and edges; `walk` takes predecessors and returns exits."""

    def __init__(self, functions: Mapping[str, AnyFunction]) -> None:
        self.functions = functions
        self.nodes: list[CfgNode] = []
        self.edges: list[tuple[int, int]] = []
        self.time = 0
        self.allocates: dict[str, tir.Allocate] = {}
        self.roots: dict[str, str] = {}
        self.loops: list[CfgLoop] = []
        self.loop_depth = 0

    def step(self, before: Sequence[int], node: CfgNode) -> int:
        """Add a node with edges from the nodes `before`; return its index."""
        index = len(self.nodes)
        self.nodes.append(node)
        for source in before:
            self.edges.append((source, index))
        return index

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
                after_then = self.walk(then, head)
                # Without an else, what follows comes directly after the condition, too.
                after_else = self.walk(orelse, head) if orelse else head
                return after_then + after_else
            case tir.For(_, start, extent, body, _):
                head_index = self._touching(before, start, extent)
                first = self.time
                after = self._loop(head_index, body)
                if not self.loop_depth and self.time > first:
                    # Overlaps are found in outermost loops only (planning_input.py),
                    # and only in those that access memory.
                    self.loops.append(CfgLoop(stmt, LiveRange(first, self.time)))
                return after
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
        """Add what a statement around a body does before the body, then the body."""
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
        """Add the body with edges from and to the head, which is the only exit."""
        self.loop_depth += 1
        for source in self.walk(body, [head]):
            self.edges.append((source, head))
        self.loop_depth -= 1
        return [head]

    def _touching(
        self, before: Sequence[int], *exprs: tir.Expr, stored: str = ""
    ) -> int:
        """Add a node that evaluates expressions and may store to `stored`."""
        reads, writes = self._accesses(exprs)
        if stored in self.roots:
            writes.add(self.roots[stored])
        if not reads and not writes:
            return self.step(before, CfgNode())
        node = CfgNode(self._tick(), frozenset(reads), frozenset(writes))
        return self.step(before, node)

    def _call(self, before: Sequence[int], call: tir.PrimFuncCall) -> int:
        """Add the node of a call; the parameters' roles define its accesses."""
        reads, writes = self._accesses(call.args)
        callee = self.functions.get(call.callee)
        if isinstance(callee, tir.PrimFunc):
            for arg, param in zip(call.args, callee.params, strict=True):
                if not isinstance(arg, tir.AccessPtr):
                    continue
                root = self.roots.get(arg.buffer.name)
                if root is None:
                    continue
                if param.role in _READING_ROLES:
                    reads.add(root)
                if param.role in _WRITING_ROLES:
                    writes.add(root)
        # Between its start and its wait, an asynchronous call reads and writes whenever
        # it likes: each of the two counts as a read and a write of all its buffers, so
        # that their lives span the time in between.
        #
        #     start(a -> b)    kernel(c -> d)    wait(a -> b)
        #     a, b ------------------------------------->
        if call.phase != "call":
            reads = writes = reads | writes
        node = CfgNode(self._tick(), frozenset(reads), frozenset(writes), call=call)
        return self.step(before, node)

    def _tick(self) -> int:
        """Return the current time and advance it."""
        time = self.time
        self.time += 1
        return time

    def _accesses(self, exprs: Sequence[tir.Expr]) -> tuple[set[str], set[str]]:
        """Return the planned buffers that expressions read and that they write."""
        reads: set[str] = set()
        writes: set[str] = set()
        for expr in exprs:
            for node in walk(expr):
                if not isinstance(node, tir.BufferLoad | tir.AccessPtr):
                    continue
                root = self.roots.get(node.buffer.name)
                if root is None:
                    continue
                access = node.access if isinstance(node, tir.AccessPtr) else "r"
                if "r" in access:
                    reads.add(root)
                if "w" in access:
                    writes.add(root)
        return reads, writes
