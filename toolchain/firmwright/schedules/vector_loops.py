"""The default loops of any operator, over vectors where iterations are independent."""

from collections.abc import Iterator
from functools import partial

from firmwright.base.dtypes import BOOL, INT8, INT16, INT32, UINT8, UINT16, UINT32
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.affine import Affine
from firmwright.ir.tir.loop_vectorizability import LoopScope, is_parallel
from firmwright.ir.tir.traversal import Node, map_children, walk, with_body
from firmwright.kernels.vector_loops import VectorTarget, has_vectors
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.ops.strided_copy import MOVES
from firmwright.schedules.scalar.unrolled_loops import WITH_KERNELS

_TIME_MAX = 0.8
"""Maximum share of the time of the default loops."""
_LEAST_TRIPS = 4
_BYTES = frozenset({INT8, UINT8})
_ELEMENTS = _BYTES | {BOOL, INT16, INT32, UINT16, UINT32}


def mark_vector_loops(func: tir.PrimFunc, target: VectorTarget) -> tir.PrimFunc:
    """Mark the loops that have vectors; parameters are memories of their own."""
    places: dict[str, tuple[str, Affine]] = {}
    for param in func.params:
        if isinstance(param.value, tir.Buffer):
            places[param.name] = (param.name, Affine({}, 0))
    return with_body(func, _marked(func.body, LoopScope(places), target))


def _marked(node: tir.Stmt, scope: LoopScope, target: VectorTarget) -> tir.Stmt:
    if isinstance(node, tir.For) and _is_over_vectors(node, scope, target):
        return tir.For(node.var, node.start, node.extent, node.body, "vectorized")
    inner = scope.inside(node)

    def change(part: Node) -> Node:
        return _marked(part, inner, target) if isinstance(part, tir.Stmt) else part

    return map_children(node, change)


def _is_over_vectors(loop: tir.For, scope: LoopScope, target: VectorTarget) -> bool:
    is_short = isinstance(loop.extent, tir.IntImm) and loop.extent.value < _LEAST_TRIPS
    if is_short or loop.kind != "serial" or not has_vectors(loop, target):
        return False
    return is_parallel(loop, scope, {}) and not _reads_results(loop, scope)


def _reads_results(loop: tir.For, scope: LoopScope) -> bool:
    """Return whether a loop reads a memory that it writes: loads come before stores."""
    read: set[str] = set()
    written: set[str] = set()
    for node in walk(loop.body):
        if isinstance(node, tir.BufferLoad) and node.buffer.scope != "reg":
            read.add(scope.places[node.buffer.name][0])
        elif isinstance(node, tir.BufferStore):
            written.add(scope.places[node.buffer.name][0])
    return not read.isdisjoint(written)


def _configs(op: OpCall) -> tuple[ScheduleConfig, ...]:
    """Return a configuration if the results are integers, and not all are of bytes."""
    results = {kind.dtype for kind in op.outputs}
    given = {kind.dtype for kind in op.inputs if kind is not None}
    is_for_lanes = results <= _ELEMENTS and not results | given <= _BYTES
    return (NO_CONFIG,) if is_for_lanes else ()


def _build(target: VectorTarget, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    op_table()[op.op].lower(op, b)
    b.transform = partial(mark_vector_loops, target=target)


def vector_loop_schedules(
    family: str, target: VectorTarget
) -> Iterator[Schedule[ScheduleConfig]]:
    """Yield the schedules of all operators that compute elements."""
    for op in sorted(op_table().keys() - WITH_KERNELS - frozenset(MOVES)):
        yield Schedule(
            f"{family}.{op}.lanes",
            op,
            frozenset({target.feature}),
            _configs,
            partial(_build, target),
            time_max=_TIME_MAX,
        )
