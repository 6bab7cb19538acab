"""The default loops of any operator, unrolled and with less requantization."""

import math
from collections.abc import Callable
from dataclasses import replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.traversal import (
    Node,
    child_statements,
    local_names,
    make_sequence,
    rewrite_stmt,
    substitute,
    walk,
    with_body,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.passes.tir.unroll import rename_declarations
from firmwright.schedules.scalar.requantize_tables import reduce_requantization

# Repeating a short body saves counter and branch, and index arithmetic becomes offsets
# of loads. Short loops disappear, so that the loop around them is the innermost one.

_FACTORS = (8, 4, 2)
_STATEMENTS_MAX = 24
_TIME_MAX = 0.95
"""Maximum share of the time of the default loops."""
_NOT_ON_THUMB1 = {"average_pool2d"}
"""Their taps are farther apart than loads of Armv6-M reach, which is not predicted."""
WITH_KERNELS = {"conv2d", "depthwise_conv2d", "fully_connected", "lstm"}


def _is_never_long(node: Node) -> bool:
    return False


def unroll_inner_loops(
    func: tir.PrimFunc, is_long: Callable[[Node], bool] = _is_never_long
) -> tir.PrimFunc:
    """Unroll the innermost loops without a node that `is_long`."""
    names = UniqueNamer(local_names(func))

    def rule(node: Node) -> tir.Stmt | None:
        if not isinstance(node, tir.For) or node.kind != "serial":
            return None
        if not isinstance(node.extent, tir.IntImm):
            return None
        if any(map(is_long, walk(node.body))):
            return None
        size = _count_statements(node.body)
        extent = node.extent.value
        if extent * size <= _STATEMENTS_MAX:
            return replace(node, kind="unrolled")
        for factor in _FACTORS:
            if factor * size <= _STATEMENTS_MAX and factor <= extent:
                return _split(node, extent, factor, names)
        return None

    return with_body(func, rewrite_stmt(func.body, rule))


def _count_statements(body: tir.Stmt) -> float:
    """Return the number of statements after unrolling, infinite if loops remain."""
    total = sum(map(_count_statements, child_statements(body)))
    match body:
        case tir.For(extent=tir.IntImm(value=trips), kind="unrolled"):
            return trips * total
        case tir.For() | tir.While():
            return math.inf
    return total + 1


def _split(loop: tir.For, extent: int, factor: int, names: UniqueNamer) -> tir.Stmt:
    dtype, rest = loop.var.dtype, extent % factor
    zero = tir.IntImm(0, dtype)
    count = tir.IntImm(factor, dtype)
    step = tir.Var(names.unique("u"), dtype)
    first = tir.Binary("mul", loop.var, count)
    place = tir.Binary("add", loop.start, tir.Binary("add", first, step))
    body = substitute(loop.body, {loop.var.name: place})
    inner = tir.For(step, zero, count, body, "unrolled")
    trips = tir.IntImm(extent // factor, dtype)
    blocks = replace(loop, start=zero, extent=trips, body=inner)
    if not rest:
        return blocks
    start = tir.Binary("add", loop.start, tir.IntImm(extent - rest, dtype))
    var = tir.Var(names.unique(loop.var.name), dtype)
    tail = rename_declarations(substitute(loop.body, {loop.var.name: var}), names)
    last = tir.For(var, start, tir.IntImm(rest, dtype), tail, "unrolled")
    return make_sequence([blocks, last])


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    _build_loops(op, config, b)
    is_long = _reads_table if op.op == "softmax" else _is_never_long

    def transform(func: tir.PrimFunc) -> tir.PrimFunc:
        return unroll_inner_loops(reduce_requantization(func, b), is_long)

    b.transform = transform


def _reads_table(node: Node) -> bool:
    """Return whether a loop of softmax looks up exponentials.

    Its iterations are long: for ten classes, repeating them saves 0.1 % of a small
    network's instructions and takes 1,000 bytes of code.
    """
    return isinstance(node, tir.BufferLoad) and node.buffer.scope == "const"


def _build_loops(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    op_table()[op.op].lower(op, b)
    b.transform = lambda func: reduce_requantization(func, b)


SCHEDULES = tuple(
    Schedule(
        f"{family}.{op}.{name}",
        op,
        frozenset({feature}),
        lambda op: (NO_CONFIG,),
        build,
        time_max=_TIME_MAX,
    )
    for op in sorted(op_table().keys() - WITH_KERNELS)
    for family, name, feature, build in (
        ("scalar", "unrolled", "offsets", _build),
        ("scalar", "requantized", "thumb1", _build_loops),
        ("thumb1", "unrolled", "thumb1", _build),
    )
    if family != "thumb1" or op not in _NOT_ON_THUMB1
)
