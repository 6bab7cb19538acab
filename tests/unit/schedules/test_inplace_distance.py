"""In-place distances of kernels, compared with execution one access at a time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT16, INT32, UINT8
from firmwright.base.quant import Quantization
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.layers import Conv2DAttrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.pass_catalog import PASS_NAMES
from firmwright.ir.tir.access_trace import AccessTracer
from firmwright.ir.tir.inplace_distance import (
    excluded_distances,
    find_offset_constraints,
)
from firmwright.ir.tir.interpreter import interpret
from firmwright.ir.tir.plan import OffsetConstraint
from firmwright.ir.tir.traversal import walk
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.passes import BY_NAME
from firmwright.schedules.registry import INTRINSICS, SCHEDULES

# The judge walks a kernel in plain Python, marks every byte written, and records at
# each read the offset differences for which that byte would already be overwritten: the
# exact set of unsafe differences. The interpreter then runs kernels whose
# input and output overlap.

SEEDS, SEEDS_DEEP = range(3), range(6)
ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "and": operator.and_,
    "or": operator.or_,
    "min": min,
    "max": max,
}


Tables: TypeAlias = Mapping[str, Constant]
Environment: TypeAlias = dict[str, "int | np.ndarray"]
"""Variables, registers and tables."""
Access: TypeAlias = tir.BufferLoad | tir.BufferStore | tir.AccessPtr


class Walk:
    """Executes the address computations of a kernel, not its values."""

    def __init__(
        self, func: tir.PrimFunc, source: str, result: str, tables: Tables
    ) -> None:
        sizes = {
            p.name: p.value.size_bytes
            for p in func.params
            if isinstance(p.value, tir.Buffer)
        }
        self.places: dict[str, tuple[str, int]] = {
            source: (source, 0),
            result: (result, 0),
        }
        self.source, self.result = source, result
        self.written = np.zeros(sizes[result], bool)
        self.lost = np.zeros(sizes[source] + sizes[result], bool)
        self.known: dict[int, list[Access]] = {}
        self.inside = {result, source}
        for part in walk(func.body):
            if (
                isinstance(part, tir.DeclBuffer)
                and part.source.buffer.name in self.inside
            ):
                self.inside.add(part.buffer.name)
        self.tables = tables
        self.run(func.body, {})

    @property
    def unsafe(self) -> set[int]:
        """Differences at which a read is late; index 0 is 1 - the output's size."""
        return {int(d) + 1 - len(self.written) for d in np.flatnonzero(self.lost)}

    def accesses(self, node: tir.Stmt | tir.Expr) -> list[Access]:
        """Return the accesses in `node` to the source and the result."""
        if id(node) not in self.known:
            self.known[id(node)] = [
                part
                for part in walk(node)
                if isinstance(part, Access) and part.buffer.name in self.inside
            ]
        return self.known[id(node)]

    def run(self, node: tir.Stmt, env: Environment) -> None:  # noqa: C901 - one case for each node
        match node:
            case _ if not self.accesses(node):
                return
            case tir.Seq(stmts):
                for stmt in stmts:
                    if is_number(stmt):
                        env = {**env, stmt.buffer.name: value_of(stmt.value, env)}
                    self.run(stmt, env)
            case tir.For(var, start, extent, body):
                first = value_of(start, env)
                for step in range(first, first + value_of(extent, env)):
                    self.run(body, {**env, var.name: step})
            case tir.Let(var, value, body):
                self.read(value, env)
                names = {part.name for part in walk(value) if isinstance(part, tir.Var)}
                names |= {
                    p.buffer.name for p in walk(value) if isinstance(p, tir.BufferLoad)
                }
                if names <= env.keys() and not depends_on_memory(value):
                    env = {**env, var.name: value_of(value, env)}
                self.run(body, env)
            case tir.If(cond, then, orelse):
                if value_of(cond, env):
                    self.run(then, env)
                elif orelse is not None:
                    self.run(orelse, env)
            case tir.Allocate(body=body):
                self.run(body, env)
            case tir.AllocateConst(buffer, constant, body):
                if constant in self.tables:
                    values = self.tables[constant].array().reshape(buffer.shape)
                    env = {**env, buffer.name: values}
                self.run(body, env)
            case tir.DeclBuffer(buffer, source, body):
                if source.buffer.name in self.inside:
                    root, base = self.places[source.buffer.name]
                    at = (
                        base
                        + value_of(source.offset, env) * source.buffer.dtype.size_bytes
                    )
                    self.places[buffer.name] = root, at
                self.run(body, env)
            case tir.BufferStore(buffer, indices, value):
                self.read(value, env)
                if buffer.name in self.inside:
                    start, end = self.element(buffer, indices, env)
                    self.written[start:end] = True
            case tir.Evaluate(call):
                self.write_through(call, env)
                self.read(call, env)
            case _:
                raise AssertionError(node)

    def element(self, buffer: tir.Buffer, indices, env: Environment) -> tuple[int, int]:
        size = buffer.dtype.size_bytes
        at = self.places[buffer.name][1]
        for index, stride in zip(indices, buffer.element_strides, strict=True):
            at += value_of(index, env) * stride * size
        return at, at + size

    def read(self, node: tir.Expr, env: Environment) -> None:
        for part in self.accesses(node):
            if isinstance(part, tir.BufferLoad):
                self.lose(part.buffer, *self.element(part.buffer, part.indices, env))
            elif isinstance(part, tir.AccessPtr):
                for start, end in self.pointed(part, env):
                    self.lose(part.buffer, start, end)

    def write_through(self, node: tir.Expr, env: Environment) -> None:
        for part in self.accesses(node):
            if (
                isinstance(part, tir.AccessPtr)
                and self.places[part.buffer.name][0] == self.result
            ):
                for start, end in self.pointed(part, env):
                    self.written[start:end] = True

    def pointed(
        self, part: tir.AccessPtr, env: Environment
    ) -> Iterator[tuple[int, int]]:
        """Yield the bytes of runs of elements that may be accessed."""
        size = part.buffer.dtype.size_bytes
        start = self.places[part.buffer.name][1] + value_of(part.offset, env) * size
        if part.stride == 1:
            yield start, start + part.extent * size
            return
        for element in range(0, part.extent, part.stride):
            yield start + element * size, start + (element + 1) * size

    def lose(self, buffer: tir.Buffer, start: int, end: int) -> None:
        if self.places[buffer.name][0] == self.source:
            for byte in range(start, end):
                self.lost[byte : byte + len(self.written)] |= self.written[::-1]


def is_number(node: tir.Stmt) -> bool:
    """Return whether `node` sets a register that holds a number of the shape."""
    return (
        isinstance(node, tir.BufferStore)
        and node.buffer.dtype in (INT16, UINT8)
        and node.buffer.scope == "reg"
    )


def depends_on_memory(node: tir.Expr) -> bool:
    plain = (
        tir.IntImm
        | tir.Var
        | tir.Binary
        | tir.Not
        | tir.Cast
        | tir.Select
        | tir.BufferLoad
    )
    return not all(isinstance(part, plain) for part in walk(node))


def value_of(node: tir.Expr, env: Environment) -> int:
    match node:
        case tir.IntImm(value):
            return value
        case tir.Var(name):
            return env[name]
        case tir.BufferLoad(buffer, indices):
            value = env[buffer.name]
            if isinstance(value, np.ndarray):
                return int(value[tuple(value_of(index, env) for index in indices)])
            return value
        case tir.Cast(_, value):
            return value_of(value, env)
        case tir.Not(a):
            return not value_of(a, env)
        case tir.Select(cond, a, b):
            return value_of(a if value_of(cond, env) else b, env)
        case tir.Binary("div", a, b):
            return int(value_of(a, env) / value_of(b, env))
        case tir.Binary("mod", a, b):
            return int(np.fmod(value_of(a, env), value_of(b, env)))
        case tir.Binary(op, a, b):
            return ARITHMETIC[op](value_of(a, env), value_of(b, env))
    raise AssertionError(node)


BEFORE_PLANNING = [
    BY_NAME[name]
    for name in PASS_NAMES[PASS_NAMES.index("unroll") : PASS_NAMES.index("usmp")]
    if name in BY_NAME
]


def prepared(kernel: Kernel) -> tir.PrimFunc:
    """Return the kernel after the passes before memory planning."""
    func = kernel.build()
    module = IRModule("test", {func.name: func}, kernel.constants)
    for step in BEFORE_PLANNING:
        module = step(module)
    prim_func = module.functions[func.name]
    assert isinstance(prim_func, tir.PrimFunc)
    return prim_func


def kernels(call: OpCall) -> Iterator[Kernel]:
    """Lower `call` by its default loops and by every configuration of all schedules."""
    default = Kernel("kernel", call)
    op_table()[call.op].lower(call, default)
    yield default
    for schedule in SCHEDULES:
        if schedule.op == call.op:
            for config in schedule.configs(call):
                kernel = Kernel("kernel", call)
                schedule.build(call, config, kernel)
                yield kernel


def allows(spans: tuple[OffsetConstraint[str], ...], difference: int) -> bool:
    return all(
        not span.lo < difference < span.hi
        or (span.modulus > 1 and difference % span.modulus == 0)
        for span in spans
    )


def sizes(func: tir.PrimFunc) -> tuple[int, int]:
    x, y = func.params[0].value, func.params[-1].value
    assert isinstance(x, tir.Buffer)
    assert isinstance(y, tir.Buffer)
    return x.size_bytes, y.size_bytes


def assert_exact(func: tir.PrimFunc, tables: Tables) -> int:
    """Require that no unsafe difference is allowed and the interval's ends are unsafe.

    An element from a table may be anywhere in its range, so that more is excluded.
    Returns 1 if input and output may overlap.
    """
    unsafe = Walk(func, "x", "y", tables).unsafe
    trace = AccessTracer("x", "y", func.body)
    trace.run()
    spans = find_offset_constraints(func, "x", "y")
    assert spans is not None
    allowed = {d for d in range(-sizes(func)[1], sizes(func)[0]) if allows(spans, d)}
    assert not unsafe & allowed, (func.attrs, sorted(unsafe & allowed)[:4], spans)
    if spans and trace.is_exact and not any(span.modulus for span in spans):
        (span,) = spans
        assert (min(unsafe), max(unsafe)) == (span.lo + 1, span.hi - 1)
    return len(allowed) > 1


def random_calls(
    random_convolution: Callable[..., OpCall],
    random_fully_connected: Callable[[int], OpCall],
    seeds: range,
) -> Iterator[OpCall]:
    for seed in seeds:
        yield random_convolution(seed, depthwise=False)
        yield random_convolution(seed, depthwise=True)
        yield random_fully_connected(seed)


def test_no_unsafe_difference_is_allowed(
    random_convolution, random_fully_connected, deep: bool
) -> None:
    judged = shared = 0
    seeds = SEEDS_DEEP if deep else SEEDS
    for call in random_calls(random_convolution, random_fully_connected, seeds):
        for kernel in kernels(call):
            func = prepared(kernel)
            if "inplace_distances" in func.attrs:  # of one intrinsic; see the next test
                continue
            if find_offset_constraints(func, "x", "y") is not None:
                shared += assert_exact(func, kernel.constants)
                judged += 1
    assert judged > 10 * len(seeds)
    assert shared > judged // 2


def test_distances_of_steps_are_the_hull_of_unsafe_ones() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        count = int(rng.integers(1, 8))
        reads, writes = rng.integers(0, 40, (2, 2, count))
        reads[1], writes[1] = (
            reads[0] + 1 + reads[1] // 4,
            writes[0] + 1 + writes[1] // 4,
        )
        unsafe = [
            x - y
            for step in range(count)
            for before in range(step)
            for x in range(*reads[:, step])
            for y in range(*writes[:, before])
        ]
        lo, hi = excluded_distances((reads[0], reads[1]), (writes[0], writes[1]))
        hull = (min(unsafe) - 1, max(unsafe) + 1) if unsafe else (0, 0)
        assert (lo, hi) == hull


def one_arena(
    kernel: Kernel, func: tir.PrimFunc, difference: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the kernel's output with input and output overlapping and separate."""
    call = kernel.call
    x_size, y_size = sizes(func)
    x_at, y_at = max(0, -difference), max(0, difference)
    x = (
        np.random.default_rng(0)
        .integers(-128, 128, call.input(0).shape)
        .astype(np.int8)
    )
    arena = np.zeros(max(x_at + x_size, y_at + y_size), np.int8)
    arena[x_at : x_at + x_size] = x.reshape(-1)
    shared_x = arena[x_at : x_at + x_size].reshape(x.shape)
    shared_y = arena[y_at : y_at + y_size].reshape(call.output.shape)
    apart = np.zeros(call.output.shape, np.int8)
    for args in ({"x": x, "y": apart}, {"x": shared_x, "y": shared_y}):
        interpret(func, args, INTRINSICS, constants=kernel.constants)
    return shared_y.copy(), apart


def closest(
    spans: tuple[OffsetConstraint[str], ...], x_size: int, y_size: int
) -> list[int]:
    """Return the allowed differences next to the forbidden interval and to zero."""
    allowed = [d for d in range(-y_size, x_size + 1) if allows(spans, d)]
    middle = min(allowed, key=lambda d: abs(2 * d - (x_size - y_size)))
    below = [d for d in allowed if d <= 0]
    return sorted({middle, max(below), min(d for d in allowed if d >= 0)})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("depthwise", [False, True])
def test_overlapping_kernels_compute_the_same(
    random_convolution, depthwise: bool
) -> None:
    for seed in range(2):
        call = random_convolution(seed, depthwise=depthwise)
        for kernel in kernels(call):
            func = prepared(kernel)
            spans = find_offset_constraints(func, "x", "y")
            if spans is None:
                continue
            for difference in closest(spans, *sizes(func)):
                shared, apart = one_arena(kernel, func, difference)
                np.testing.assert_array_equal(
                    shared, apart, f"{func.attrs} at {difference}"
                )


def test_a_wrong_distance_changes_the_result(random_convolution) -> None:
    caught = 0
    for seed in range(4):
        call = random_convolution(seed, depthwise=False)
        kernel = next(kernels(call))
        func = prepared(kernel)
        spans = find_offset_constraints(func, "x", "y")
        assert spans
        shared, apart = one_arena(kernel, func, spans[0].lo + 8)
        print(seed, spans, (shared != apart).sum(), shared.size, np.unique(apart).size)
        caught += not np.array_equal(shared, apart)
    assert caught > 2


def depthwise(height: int, width: int, channels: int) -> OpCall:
    """A 3 x 3 layer of stride 1 with an output of the size of its input."""
    rng = np.random.default_rng(1)
    kind = TensorType((1, height, width, channels), INT8, Quantization((0.05,), (3,)))
    scales = tuple(
        float(np.float32(scale)) for scale in rng.uniform(0.001, 0.02, channels)
    )
    weights = rng.integers(-127, 128, (1, 3, 3, channels)).astype(np.int8)
    quantization = Quantization(scales, (0,) * channels, 3)
    return OpCall(
        "depthwise_conv2d",
        (
            kind,
            TensorType(weights.shape, INT8, quantization),
            TensorType((channels,), INT32),
        ),
        (kind,),
        Conv2DAttrs(
            stride=(1, 1), dilation=(1, 1), padding=(1, 1, 1, 1), activation="none"
        ),
        (
            None,
            Constant.from_array("w", weights, INT8),
            Constant.from_array("b", rng.integers(-900, 900, channels), INT32),
        ),
    )


def built_by(
    name: str, call: OpCall
) -> Iterator[tuple[tir.PrimFunc, tuple[OffsetConstraint[str], ...]]]:
    """Yield the kernels of one schedule and their offset constraints."""
    for schedule in SCHEDULES:
        if schedule.name == name:
            for config in schedule.configs(call):
                kernel = Kernel("kernel", call)
                schedule.build(call, config, kernel)
                func = prepared(kernel)
                spans = find_offset_constraints(func, "x", "y")
                assert spans
                yield func, spans


@pytest.mark.parametrize(
    "schedule", ["scalar.depthwise.channel", "dsp.depthwise.sliding_window"]
)
def test_channel_outer_depthwise_overlaps_at_pixel_distances_beyond_a_row_and_a_pixel(
    schedule: str,
) -> None:
    height, width, channels = 6, 5, 8
    row_and_pixel = (width + 1) * channels
    shared = 0
    for func, spans in built_by(schedule, depthwise(height, width, channels)):
        unsafe = Walk(func, "x", "y", {}).unsafe
        below = range(1 - height * width * channels, -row_and_pixel + 1)
        pixels = [d for d in below if d % channels == 0]
        if any(d in unsafe for d in pixels):
            continue  # along y: a column is written before the next is read
        shared += 1
        assert all(allows(spans, d) for d in pixels)
        others = [d for d in below if d % channels and d > spans[-1].lo]
        assert others
        assert not any(allows(spans, d) for d in others)
        assert {d % channels for d in others if d in unsafe} == set(range(1, channels))
    assert shared


def test_a_gather_of_a_channel_overlaps_at_pixel_distances() -> None:
    """A gather declares the elements of its channel, the stride of a pointer apart."""
    channels = 8
    for func, spans in built_by("helium.depthwise.plane", depthwise(6, 5, channels)):
        unsafe = Walk(func, "x", "y", {}).unsafe
        assert max(unsafe) == 6 * 5 * channels - 1
        low, high = min(unsafe) - 1, max(unsafe) + 1
        assert [(span.modulus, span.hi) for span in spans] == [(channels, high)]
        assert spans[0].lo <= low
        assert not any(d % channels == 0 for d in unsafe)
        assert allows(spans, 0)
