"""Kernels that add up the bytes they store, before memory can change them.

    y[i] = f(acc)      becomes      stored = f(acc)
                                    y[i] = stored
                                    total = total + bytes of stored
                                    products = products + acc
    ...
    sum[0] = total
    sum[1] = products

The sum starts with the parameter `tag`, so that it also shows which call has run.
Bytes that a kernel stores twice, such as the last pixel of an odd number that it
computes in pairs, are subtracted at the end.
`products` is there on request: the sum of the accumulators of all outputs.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.dtypes import FLOAT32, INT32, UINT8, UINT16, UINT32, DType
from firmwright.ir import tir
from firmwright.ir.tir.access_trace import AccessTracer, UnknownAccessError
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.expr_evaluation import Ints
from firmwright.ir.tir.traversal import (
    Node,
    local_names,
    make_sequence,
    rewrite_stmt,
    statements,
    walk,
)

_UNSIGNED = {1: UINT8, 2: UINT16, 4: UINT32}


def with_store_sum(
    kernel: tir.PrimFunc, *, adds_products: bool = False
) -> tir.PrimFunc | None:
    """Return the kernel with the parameters `tag` and `sum`.

    None if it has several outputs, reads its output, stores by intrinsics or vectors,
    leaves a byte out, or stores one again that is no result of an accumulator; with
    `adds_products` also if any stored value is none.
    """
    written = [param for param in kernel.params if param.role in ("out", "inout")]
    if len(written) != 1 or written[0].role == "inout":
        return None
    output = written[0].value
    assert isinstance(output, tir.Buffer)
    views = _views_of(output.name, kernel.body)
    if not _has_plain_stores(kernel.body, views):
        return None
    counts = _count_stores(kernel.body, output)
    if counts is None or not counts.all():
        return None
    is_repeated = bool((counts > 1).any())
    have_accumulators = all(map(_accumulator, _stores(kernel.body, views)))
    if (adds_products or is_repeated) and not have_accumulators:
        return None
    if adds_products and is_repeated:
        return None
    return _StoreSums(kernel, output, views, counts, adds_products).kernel_with_sums()


class _StoreSums:
    """The registers and parameters that one kernel gets."""

    def __init__(
        self,
        kernel: tir.PrimFunc,
        output: tir.Buffer,
        views: Collection[str],
        counts: Ints,
        adds_products: bool,
    ) -> None:
        self.kernel = kernel
        self.output = output
        self.views = views
        self.counts = counts
        self.names = UniqueNamer(local_names(kernel))
        self.total = self._register("total")
        self.products = self._register("products") if adds_products else None
        self.tag = tir.Var(self.names.unique("tag"), UINT32)
        sums = 2 if adds_products else 1
        name = self.names.unique("sum")
        self.result = tir.Buffer(name, UINT32, (sums,), alignment=4)

    def kernel_with_sums(self) -> tir.PrimFunc:
        body = rewrite_stmt(self.kernel.body, self._rule)
        body = make_sequence([body, *self._subtractions()])
        body = self._with_sum(self.total, self.tag, 0, body)
        if self.products is not None:
            body = self._with_sum(self.products, tir.IntImm(0, UINT32), 1, body)
        added = (tir.Param(self.tag, "scalar"), tir.Param(self.result, "out"))
        return replace(self.kernel, params=self.kernel.params + added, body=body)

    def _register(self, name: str) -> tir.Buffer:
        return tir.Buffer(self.names.unique(name), UINT32, (1,), scope="reg")

    def _rule(self, node: Node) -> Node | None:
        if not isinstance(node, tir.BufferStore) or node.buffer.name not in self.views:
            return None
        stored = tir.Var(self.names.unique("stored"), node.buffer.dtype)
        stmts: list[tir.Stmt] = [replace(node, value=stored)]
        stmts.append(_set(self.total, add_value(_get(self.total), stored)))
        accumulator = _accumulator(node)
        if self.products is not None and accumulator is not None:
            product = tir.Cast(UINT32, accumulator)
            total = tir.Binary("add", _get(self.products), product)
            stmts.append(_set(self.products, total))
        return tir.Let(stored, node.value, tir.Seq(tuple(stmts)))

    def _subtractions(self) -> Iterator[tir.Stmt]:
        """Yield the loops that subtract bytes that were added more than once."""
        size = self.output.dtype.size_bytes
        for first, end, count in _repeated_ranges(self.counts):
            name = self.names.unique("again")
            view = tir.Buffer(name, UINT8, (end - first,))
            start = tir.IntImm(first // size, INDEX)
            source = tir.AccessPtr(self.output, start, (end - first) // size, "r")
            index = tir.Var(self.names.unique("i"), INDEX)
            byte = tir.Cast(UINT32, tir.BufferLoad(view, (index,)))
            twice = tir.Binary("mul", byte, tir.IntImm(count - 1, UINT32))
            less = tir.Binary("sub", _get(self.total), twice)
            bounds = tir.IntImm(0, INDEX), tir.IntImm(end - first, INDEX)
            loop = tir.For(index, *bounds, _set(self.total, less))
            yield tir.DeclBuffer(view, source, loop)

    def _with_sum(
        self, total: tir.Buffer, start: tir.Expr, index: int, body: tir.Stmt
    ) -> tir.Stmt:
        """Return `body` between the start of a register and its store."""
        end = tir.BufferStore(self.result, (tir.IntImm(index, INDEX),), _get(total))
        sequence = make_sequence([_set(total, start), body, end])
        return tir.Allocate(total, sequence, "reg")


def _get(register: tir.Buffer) -> tir.BufferLoad:
    return tir.BufferLoad(register, (tir.IntImm(0, INDEX),))


def _set(register: tir.Buffer, value: tir.Expr) -> tir.BufferStore:
    return tir.BufferStore(register, (tir.IntImm(0, INDEX),), value)


def _accumulator(store: tir.BufferStore) -> tir.BufferLoad | None:
    """Return the register from which alone the stored value is computed, or None."""
    loads: dict[tir.BufferLoad, None] = {}
    for node in walk(store.value):
        if isinstance(node, tir.BufferLoad):
            loads[node] = None
    match list(loads):
        case [tir.BufferLoad(buffer) as load] if (
            buffer.scope == "reg" and buffer.dtype == INT32
        ):
            return load
    return None


def add_value(total: tir.Expr, value: tir.Expr) -> tir.Expr:
    """Return the total, a uint32, plus the bytes of a value of at most four bytes."""
    if value.dtype == FLOAT32:
        value = tir.IntrinsicCall("bits_of_f32", (value,), INT32)
    size_bytes = value.dtype.size_bytes
    bits: tir.Expr = tir.Cast(_UNSIGNED[size_bytes], value)
    if size_bytes < 4:
        bits = tir.Cast(UINT32, bits)
    if size_bytes == 1:
        return tir.Binary("add", total, bits)
    return tir.IntrinsicCall("add_bytes", (total, bits), UINT32)


def _views_of(output: str, body: tir.Stmt) -> frozenset[str]:
    views = {output}
    for stmt in statements(body):
        if isinstance(stmt, tir.DeclBuffer) and stmt.source.buffer.name in views:
            views.add(stmt.buffer.name)
    return frozenset(views)


def _has_plain_stores(body: tir.Stmt, views: Collection[str]) -> bool:
    """Return whether memory in `views` is only stored to, by values in loops."""
    pointers = 0
    for node in walk(body):
        match node:
            case tir.BufferLoad(buffer) if buffer.name in views:
                return False
            case tir.BufferStore(buffer) if buffer.name in views:
                if not _is_summable(buffer.dtype):
                    return False
            case tir.AccessPtr(buffer) if buffer.name in views:
                pointers += 1
            case tir.DeclBuffer(_, source) if source.buffer.name in views:
                pointers -= 1
            case tir.For(kind="vectorized") if any(_stores(node, views)):
                return False
            case tir.While():
                return False
    return pointers == 0


def _is_summable(dtype: DType) -> bool:
    is_integer = dtype.is_int and dtype.size_bytes in _UNSIGNED
    return dtype.c_type != "bool" and (is_integer or dtype == FLOAT32)


def _stores(stmt: tir.Stmt, views: Collection[str]) -> Iterator[tir.BufferStore]:
    for node in statements(stmt):
        if isinstance(node, tir.BufferStore) and node.buffer.name in views:
            yield node


def _count_stores(body: tir.Stmt, output: tir.Buffer) -> Ints | None:
    """Return how often each byte of an output is stored; None if that is not known."""
    tracer = AccessTracer("", output.name, body)
    try:
        log = tracer.run(0)
    except UnknownAccessError:
        return None
    starts, ends = log.start[log.write], log.end[log.write]
    if not tracer.is_exact or not len(starts) or output.strides is not None:
        return None
    if starts.min() < 0 or ends.max() > output.size_bytes:
        return None
    changes = np.zeros(output.size_bytes + 1, np.int64)
    np.add.at(changes, starts, 1)
    np.add.at(changes, ends, -1)
    return np.cumsum(changes[:-1])


def _repeated_ranges(counts: Ints) -> Iterator[tuple[int, int, int]]:
    """Yield the ranges of bytes that are stored more than once, with how often."""
    borders = [0, *(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(counts)]
    for first, end in pairwise(borders):
        if counts[first] > 1:
            yield first, end, int(counts[first])
