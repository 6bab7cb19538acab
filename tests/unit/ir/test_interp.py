"""The interpreter: what each node means, which loops become lanes, what every mistake says."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from firmwright.base.dtypes import (
    BOOL,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    DType,
)
from firmwright.base.errors import InternalError
from firmwright.ir.core import Constant, Span
from firmwright.ir.tir.affine import Affine
from firmwright.ir.tir.builder import (
    Builder,
    binary,
    call,
    logical_and,
    logical_not,
    maximum,
    minimum,
    select,
)
from firmwright.ir.tir.interp import Interpreter, interpret
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.ir.tir.lanes import Scope, is_parallel
from firmwright.ir.tir.nodes import (
    AccessPtr,
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Call,
    CallPrim,
    Cast,
    DeclBuffer,
    Evaluate,
    For,
    IntImm,
    Param,
    PrimFunc,
    Seq,
    Var,
)
from firmwright.ir.tir.walk import walk

Array = np.ndarray[Any, Any]


def smlad_meaning(a: Array, b: Array, acc: Array) -> Array:
    low = a.astype(np.int16).astype(np.int64) * b.astype(np.int16)
    high = (a >> 16).astype(np.int64) * (b >> 16)
    return (acc + low + high).astype(np.int32)


SMLAD = Intrinsic(
    "smlad",
    (Operand("a", "in", INT32), Operand("b", "in", INT32), Operand("acc", "in", INT32)),
    INT32,
    smlad_meaning,
    "",
    "two 16-bit products added to an accumulator",
)
DOT4 = Intrinsic(
    "dot4",
    (
        Operand("acc", "inout", INT32),
        Operand("a", "ptr", INT8, "r", 4),
        Operand("b", "ptr", INT8, "r", 4),
    ),
    None,
    lambda acc, a, b: acc + (a.astype(np.int32) * b).sum(axis=0, dtype=np.int32),
    "",
    "four 8-bit products added to an accumulator",
)
FILL4 = Intrinsic(
    "fill4",
    (Operand("value", "in", INT32), Operand("out", "ptr", INT8, "w", 4)),
    None,
    lambda value, old: np.broadcast_to(value.astype(np.int8), old.shape).copy(),
    "",
    "four copies of a byte",
)
TABLE = {item.name: item for item in (SMLAD, DOT4, FILL4)}


def run(b: Builder, both: bool = True, **args: Any) -> None:
    """Interprets what `b` built with lanes, and checks that serial execution does the same."""
    func = b.build()
    copies = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in args.items()}
    interpret(func, args, TABLE, constants=b.constants)
    if both:
        Interpreter({func.name: func}, TABLE, b.constants, lanes_max=1).run(func.name, copies)
        for name, value in args.items():
            np.testing.assert_array_equal(value, copies[name])


def outermost(func: PrimFunc) -> For:
    return next(node for node in walk(func.body) if isinstance(node, For))


def runs_in_lanes(func: PrimFunc, loop: For | None = None) -> bool:
    places = {
        param.name: (param.name, Affine({}, 0))
        for param in func.params
        if isinstance(param.value, Buffer)
    }
    return is_parallel(loop or outermost(func), Scope(places), TABLE)


# ---- values ------------------------------------------------------------------------------------

BINARY_MEANINGS: list[tuple[str, Callable[[int, int], int]]] = [
    ("add", lambda a, b: a + b),
    ("sub", lambda a, b: a - b),
    ("mul", lambda a, b: a * b),
    ("div", lambda a, b: int(a / b)),
    ("mod", lambda a, b: a - b * int(a / b)),
    ("min", min),
    ("max", max),
    ("and", lambda a, b: a & b),
    ("or", lambda a, b: a | b),
    ("xor", lambda a, b: a ^ b),
]
LEFT = np.array([7, -7, 7, -7, 100, -100, 0, 1], np.int32)
RIGHT = np.array([2, 2, -2, -2, 7, -9, 5, 1], np.int32)


@pytest.mark.parametrize(
    ("op", "meaning"), BINARY_MEANINGS, ids=lambda v: v if type(v) is str else ""
)
def test_binary_operators_mean_what_c_means(op: Any, meaning: Callable[[int, int], int]) -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT32, (8,), "in"), b.buffer_param("y", INT32, (8,), "in")
    z = b.buffer_param("z", INT32, (8,), "out")
    with b.for_("i", 8) as i:
        b.store(z, [i], binary(op, b.load(x, [i]), b.load(y, [i])))
    out = np.zeros(8, np.int32)
    run(b, x=LEFT, y=RIGHT, z=out)
    assert out.tolist() == [meaning(int(p), int(q)) for p, q in zip(LEFT, RIGHT, strict=True)]


@pytest.mark.parametrize(
    ("op", "expected"),
    [("lt", 1), ("le", 1), ("gt", 0), ("ge", 0), ("eq", 0), ("ne", 1)],
)
def test_comparisons_give_booleans(op: Any, expected: int) -> None:
    b = Builder("f")
    y = b.buffer_param("y", BOOL, (1,), "out")
    x = b.buffer_param("x", INT8, (1,), "in")
    b.store(y, [0], binary(op, b.load(x, [0]), 3))
    out = np.zeros(1, np.bool_)
    run(b, x=np.array([-1], np.int8), y=out)
    assert out[0] == bool(expected)


@pytest.mark.parametrize(
    ("source", "target", "values", "expected"),
    [
        (INT32, INT8, [300, -300, 127], [44, -44, 127]),
        (INT32, UINT8, [-1, 256, 7], [255, 0, 7]),
        (INT8, INT32, [-128, 127, 0], [-128, 127, 0]),
        (FLOAT32, INT32, [2.9, -2.9, 0.5], [2, -2, 0]),
        (INT32, FLOAT32, [3, -3, 16777217], [3.0, -3.0, 16777216.0]),
        (BOOL, INT32, [True, False, True], [1, 0, 1]),
        (INT32, BOOL, [5, 0, -1], [True, False, True]),
    ],
)
def test_casts_keep_low_bits_and_truncate_floats(
    source: DType, target: DType, values: list[Any], expected: list[Any]
) -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", source, (3,), "in"), b.buffer_param("y", target, (3,), "out")
    z = b.buffer_param("z", target, (3,), "out")
    with b.for_("i", 3) as i:
        b.store(y, [i], b.load(x, [i]).cast(target))
    for k in range(3):
        b.store(z, [k], b.load(x, [k]).cast(target))
    lanes, one_by_one = np.zeros(3, target.np), np.zeros(3, target.np)
    run(b, x=np.array(values, source.np), y=lanes, z=one_by_one)
    assert lanes.tolist() == one_by_one.tolist() == expected


def test_shifts_are_arithmetic_for_signed_types() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT32, (4,), "in"), b.buffer_param("y", INT32, (4, 2), "out")
    with b.for_("i", 4) as i:
        b.store(y, [i, 0], b.load(x, [i]) >> 2)
        b.store(y, [i, 1], b.load(x, [i]) << 3)
    out = np.zeros((4, 2), np.int32)
    run(b, x=np.array([5, -5, 1000, -1], np.int32), y=out)
    assert out.tolist() == [[1, 40], [-2, -40], [250, 8000], [-1, -8]]


def test_float_sums_round_to_single_precision_at_every_step() -> None:
    values = np.random.default_rng(1).standard_normal(100).astype(np.float32)
    b = Builder("f")
    x, y = b.buffer_param("x", FLOAT32, (100,), "in"), b.buffer_param("y", FLOAT32, (1,), "out")
    acc = b.reg("acc", FLOAT32)
    b.store(acc, [0], 0.1)
    with b.for_("i", 100) as i:
        b.store(acc, [0], b.load(acc, [0]) + b.load(x, [i]) * 1.5)
    b.store(y, [0], b.load(acc, [0]))
    expected = np.float32(0.1)
    for value in values:
        expected = np.float32(expected + np.float32(value * np.float32(1.5)))
    out = np.zeros(1, np.float32)
    run(b, x=values, y=out)
    assert out[0] == expected


def test_select_not_and_let_work_in_lanes_and_outside() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT32, (6,), "in"), b.buffer_param("y", INT32, (7,), "out")
    with b.for_("i", 6) as i, b.let("v", b.load(x, [i]), INT32) as v:
        inside = logical_and(v > -2, logical_not(v.equal(1)))
        b.store(y, [i], select(inside, v, 99))
    with b.let("first", b.load(x, [0])) as v:
        b.store(y, [6], select(v < 0, v, 7))
    out = np.zeros(7, np.int32)
    run(b, x=np.array([-3, -2, -1, 0, 1, 2], np.int32), y=out)
    assert out.tolist() == [99, 99, -1, 0, 99, 2, -3]


def test_unsigned_arithmetic_wraps() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", UINT16, (2,), "in"), b.buffer_param("y", UINT16, (3,), "out")
    with b.for_("i", 2) as i:
        b.store(y, [i], b.load(x, [i]) - 5)
    b.store(y, [2], b.load(x, [0]) - 5)
    out = np.zeros(3, np.uint16)
    run(b, x=np.array([3, 9], np.uint16), y=out)
    assert out.tolist() == [65534, 4, 65534]


# ---- loops -------------------------------------------------------------------------------------


def padded_conv(size: int, channels: int, outputs: int) -> tuple[Builder, Array]:
    weights = np.random.default_rng(2).integers(-127, 128, (outputs, 3, 3, channels))
    b = Builder("conv")
    x = b.buffer_param("x", INT8, (size, size, channels), "in")
    y = b.buffer_param("y", INT32, (size, size, outputs), "out")
    w = b.constant("w", weights, INT8)
    with b.for_("oy", size) as oy, b.for_("ox", size) as ox, b.for_("oc", outputs) as oc:
        acc = b.reg("acc", INT32)
        b.store(acc, [0], 0)
        with b.for_("ky", 3) as ky, b.for_("kx", 3) as kx:
            iy, ix = oy + ky - 1, ox + kx - 1
            inside = logical_and(iy >= 0, iy < size, ix >= 0, ix < size)
            with b.if_(inside), b.for_("ic", channels) as ic:
                tap = b.load_i32(x, [iy, ix, ic]) * b.load_i32(w, [oc, ky, kx, ic])
                b.store(acc, [0], b.load(acc, [0]) + tap)
        b.store(y, [oy, ox, oc], b.load(acc, [0]))
    return b, weights


def test_a_padded_convolution_equals_numpy() -> None:
    b, weights = padded_conv(6, 5, 4)
    x = np.random.default_rng(3).integers(-128, 128, (6, 6, 5)).astype(np.int8)
    out = np.zeros((6, 6, 4), np.int32)
    run(b, x=x, y=out)
    padded = np.pad(x.astype(np.int64), ((1, 1), (1, 1), (0, 0)))
    taps = [
        padded[ky : ky + 6, kx : kx + 6] @ weights[:, ky, kx].T
        for ky in range(3)
        for kx in range(3)
    ]
    np.testing.assert_array_equal(out, sum(taps))


def test_a_reduction_is_serial_and_the_loop_around_it_is_lanes() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT32, (5, 9), "in"), b.buffer_param("y", INT32, (5,), "inout")
    with b.for_("i", 5) as i, b.for_("k", 9) as k:
        b.store(y, [i], b.load(y, [i]) + b.load(x, [i, k]))
    func = b.build()
    outer, inner = (node for node in walk(func.body) if isinstance(node, For))
    assert runs_in_lanes(func, outer)
    assert not runs_in_lanes(func, inner)
    values = np.arange(45, dtype=np.int32).reshape(5, 9)
    out = np.zeros(5, np.int32)
    interpret(func, {"x": values, "y": out}, {})
    assert out.tolist() == values.sum(axis=1).tolist()


def prefix_sum() -> Builder:
    b = Builder("f")
    y = b.buffer_param("y", INT32, (16,), "inout")
    with b.for_("i", 15) as i:
        b.store(y, [i + 1], b.load(y, [i + 1]) + b.load(y, [i]))
    return b


def test_a_loop_that_reads_what_another_iteration_wrote_is_serial() -> None:
    out = np.ones(16, np.int32)
    b = prefix_sum()
    run(b, y=out)
    assert out.tolist() == list(range(1, 17))
    assert not runs_in_lanes(prefix_sum().build())


@pytest.mark.parametrize(
    ("index", "parallel"),
    [
        (lambda i, j: i * 4 + j, True),
        (lambda i, j: i * 3 + j, False),
        (lambda i, j: j * 8 + i, True),
        (lambda i, j: j * 7 + i, False),
        (lambda i, j: minimum(i * 4 + j, 31), False),
        (lambda i, j: i * 4 + minimum(j, 2), True),
        (lambda i, j: j, False),
        (lambda i, j: binary("sub", 31, i * 4 + j), True),
        (lambda i, j: (i / 2) * 8 + j, False),
    ],
)
def test_iterations_are_lanes_exactly_when_their_stores_are_apart(
    index: Callable[[Any, Any], Any], parallel: bool
) -> None:
    b = Builder("f")
    y = b.buffer_param("y", INT32, (64,), "out")
    with b.for_("i", 8) as i, b.for_("j", 4) as j:
        b.store(y, [index(i, j)], (i * 10 + j).cast(INT32))
    func = b.build()
    assert runs_in_lanes(func) == parallel


def test_stores_to_several_rows_and_columns_at_once_are_apart() -> None:
    """Two channels by four pixels a step, as a register-blocked kernel writes them."""
    b = Builder("f")
    y = b.buffer_param("y", INT8, (32, 10), "out")
    with b.for_("block", 8) as block, b.for_("pair", 5) as pair:
        for row in range(4):
            for column in range(2):
                b.store(y, [block * 4 + row, pair * 2 + column], 1 + row)
    func = b.build()
    pair_loop = [node for node in walk(func.body) if isinstance(node, For)][1]
    assert runs_in_lanes(func)
    assert runs_in_lanes(func, pair_loop)


def test_registers_that_outlive_an_iteration_make_a_loop_serial() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT32, (9,), "in"), b.buffer_param("y", INT32, (9,), "out")
    last = b.reg("last", INT32)
    b.store(last, [0], 0)
    with b.for_("i", 9) as i:
        b.store(last, [0], maximum(b.load(last, [0]), b.load(x, [i])))
        b.store(y, [i], b.load(last, [0]))
    x_values = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5], np.int32)
    out = np.zeros(9, np.int32)
    run(b, x=x_values, y=out)
    assert out.tolist() == np.maximum.accumulate(x_values).tolist()


def test_registers_may_be_numbered_by_an_unrolled_loop() -> None:
    b = Builder("f")
    y = b.buffer_param("y", INT32, (5, 4), "out")
    with b.for_("i", 5) as i:
        acc = b.reg("acc", INT32, 4)
        with b.for_("j", 4, kind="unrolled") as j:
            b.store(acc, [j], (i * 10 + j).cast(INT32))
        with b.for_("k", 4, kind="unrolled") as k:
            b.store(y, [i, k], b.load(acc, [k]))
    out = np.zeros((5, 4), np.int32)
    run(b, y=out)
    assert out[3].tolist() == [30, 31, 32, 33]


def test_extents_may_differ_between_lanes() -> None:
    b = Builder("f")
    y = b.buffer_param("y", INT32, (5, 5), "out")
    z = b.buffer_param("z", INT32, (5,), "out")
    with b.for_("i", 5) as i:
        total = b.reg("total", INT32)
        b.store(total, [0], 0)
        with b.for_("j", i + 1) as j:
            b.store(y, [i, j], (j + 1).cast(INT32))
            b.store(total, [0], b.load(total, [0]) + 1)
        b.store(z, [i], b.load(total, [0]))
    out, counts = np.zeros((5, 5), np.int32), np.zeros(5, np.int32)
    run(b, y=out, z=counts)
    np.testing.assert_array_equal(out, np.tril(np.tile(np.arange(1, 6), (5, 1))))
    assert counts.tolist() == [1, 2, 3, 4, 5]


def test_branches_diverge_and_while_loops_end_lane_by_lane() -> None:
    """Collatz steps: a while loop, an if and an else that differ in every lane."""
    b = Builder("f")
    x, y = b.buffer_param("x", INT32, (20,), "in"), b.buffer_param("y", INT32, (20,), "out")
    with b.for_("i", 20) as i:
        n, steps = b.reg("n", INT32), b.reg("steps", INT32)
        b.store(n, [0], b.load(x, [i]))
        b.store(steps, [0], 0)
        with b.while_(b.load(n, [0]) > 1):
            with b.if_((b.load(n, [0]) % 2).equal(0)):
                b.store(n, [0], b.load(n, [0]) / 2)
            with b.else_():
                b.store(n, [0], b.load(n, [0]) * 3 + 1)
            b.store(steps, [0], b.load(steps, [0]) + 1)
        b.store(y, [i], b.load(steps, [0]))

    def collatz(n: int) -> int:
        return 0 if n <= 1 else 1 + collatz(n // 2 if n % 2 == 0 else 3 * n + 1)

    out = np.zeros(20, np.int32)
    run(b, x=np.arange(1, 21, dtype=np.int32), y=out)
    assert out.tolist() == [collatz(n) for n in range(1, 21)]


def test_scratch_inside_a_loop_is_private_to_an_iteration() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT8, (6, 8), "in"), b.buffer_param("y", INT32, (6,), "out")
    with b.for_("i", 6) as i, b.allocate("column", INT16, (8,)) as column:
        with b.for_("k", 8) as k:
            b.store(column, [k], b.load(x, [i, binary("sub", 7, k)]).cast(INT16))
        acc = b.reg("acc", INT32)
        b.store(acc, [0], 0)
        with b.for_("k", 8) as k:
            b.store(acc, [0], b.load(acc, [0]) * 2 + b.load(column, [k]).cast(INT32))
        b.store(y, [i], b.load(acc, [0]))
    values = np.random.default_rng(4).integers(-9, 9, (6, 8)).astype(np.int8)
    out = np.zeros(6, np.int32)
    run(b, x=values, y=out)
    weights = 2 ** np.arange(8)
    np.testing.assert_array_equal(out, values.astype(np.int32) @ weights)


def test_lanes_beyond_the_limit_run_in_chunks() -> None:
    b = Builder("f")
    y = b.buffer_param("y", INT32, (50, 7), "out")
    with b.for_("i", 50) as i, b.for_("j", 7) as j:
        b.store(y, [i, j], (i * 7 + j).cast(INT32))
    func = b.build()
    for lanes_max in (1, 2, 5, 8, 40, 1 << 16):
        out = np.zeros((50, 7), np.int32)
        Interpreter({"f": func}, {}, {}, lanes_max=lanes_max).run("f", {"y": out})
        assert out.reshape(-1).tolist() == list(range(350))


def packed_gemm(pixels: int, depth: int, channels: int) -> tuple[Builder, Array]:
    """Four pixels by two channels in registers over a packed column: the shape of a schedule."""
    rng = np.random.default_rng(5)
    weights = rng.integers(-127, 128, (channels // 2, depth // 2, 2, 2)).astype(np.int16)
    b = Builder("gemm")
    x = b.buffer_param("x", INT8, (pixels, depth), "in")
    y = b.buffer_param("y", INT32, (pixels, channels), "out")
    w = b.constant("w", weights, INT16, alignment=4)
    with b.for_("block", pixels // 4) as block, b.allocate("column", INT16, (4, depth)) as column:
        with b.for_("p", 4) as p, b.for_("k", depth) as k:
            b.store(column, [p, k], b.load(x, [block * 4 + p, k]).cast(INT16))
        with (
            b.window("words", column, 0, (4, depth // 2), dtype=INT32) as words,
            b.for_("pair", channels // 2) as pair,
            b.window("row", w, pair * (depth * 2), (depth // 2, 2), dtype=INT32) as row,
        ):
            acc = b.reg("acc", INT32, 8)
            for n in range(8):
                b.store(acc, [n], 0)
            with b.for_("k", depth // 2) as k:
                for n in range(8):
                    terms = [b.load(row, [k, n % 2]), b.load(words, [n // 2, k]), b.load(acc, [n])]
                    b.store(acc, [n], call("smlad", terms, INT32))
            for n in range(8):
                b.store(y, [block * 4 + n // 2, pair * 2 + n % 2], b.load(acc, [n]))
    return b, weights.transpose(0, 2, 1, 3).reshape(channels, depth)


def test_a_packed_register_blocked_schedule_equals_a_matrix_product() -> None:
    b, weights = packed_gemm(8, 12, 6)
    x = np.random.default_rng(6).integers(-128, 128, (8, 12)).astype(np.int8)
    out = np.zeros((8, 6), np.int32)
    run(b, x=x, y=out)
    np.testing.assert_array_equal(out, x.astype(np.int32) @ weights.T.astype(np.int32))


def test_statement_intrinsics_update_registers_and_write_through_pointers() -> None:
    b = Builder("f")
    x, w = b.buffer_param("x", INT8, (3, 8), "in"), b.buffer_param("w", INT8, (8,), "in")
    y, z = b.buffer_param("y", INT32, (3,), "out"), b.buffer_param("z", INT8, (12,), "out")
    with b.for_("i", 3) as i:
        acc = b.reg("acc", INT32)
        b.store(acc, [0], 1)
        with b.for_("k", 2) as k:
            pointers = [b.pointer(x, i * 8 + k * 4, 4), b.pointer(w, k * 4, 4)]
            b.evaluate("dot4", [b.load(acc, [0]), *pointers])
        b.store(y, [i], b.load(acc, [0]))
        b.evaluate("fill4", [i.cast(INT32), b.pointer(z, i * 4, 4, "w")])
    rng = np.random.default_rng(7)
    xs, ws = rng.integers(-128, 128, (3, 8)).astype(np.int8), rng.integers(-9, 9, 8).astype(np.int8)
    out, filled = np.zeros(3, np.int32), np.zeros(12, np.int8)
    run(b, x=xs, w=ws, y=out, z=filled)
    np.testing.assert_array_equal(out, 1 + xs.astype(np.int32) @ ws.astype(np.int32))
    assert filled.tolist() == [0] * 4 + [1] * 4 + [2] * 4


def scratch_kernel(carried: bool) -> PrimFunc:
    """Scratch is a parameter, as after planning; `carried`: iterations read each other's."""
    b = Builder("f")
    x, y = b.buffer_param("x", INT8, (6, 8), "in"), b.buffer_param("y", INT32, (6,), "out")
    z = b.buffer_param("z", INT32, (8,), "out")
    column = b.buffer_param("column", INT16, (8,), "scratch")
    if carried:
        with b.for_("k0", 8) as k:
            b.store(column, [k], 0)
    with b.window("whole", column, 0, (8,), access="rw") as whole:
        with b.for_("i", 6) as i:
            with b.for_("k", 8) as k:
                old = b.load(whole, [k]) if carried else 1
                b.store(column, [k], b.load(x, [i, k]).cast(INT16) + old)
            acc = b.reg("acc", INT32)
            b.store(acc, [0], 0)
            with b.for_("k", 8) as k:
                b.store(acc, [0], b.load(acc, [0]) + b.load(whole, [k]).cast(INT32))
            b.store(y, [i], b.load(acc, [0]))
        with b.for_("k", 8) as k:
            b.store(z, [k], b.load(column, [k]).cast(INT32))
    return b.build()


@pytest.mark.parametrize("carried", [False, True])
def test_shared_scratch_behaves_as_if_the_loop_were_serial(carried: bool) -> None:
    func = scratch_kernel(carried)
    values = np.random.default_rng(4).integers(-9, 9, (6, 8)).astype(np.int8)
    wide = values.astype(np.int32)
    columns = np.cumsum(wide, axis=0) if carried else wide + 1
    for lanes_max in (1, 4, 1 << 16):
        args = {
            "x": values,
            "y": np.zeros(6, np.int32),
            "z": np.zeros(8, np.int32),
            "column": np.zeros(8, np.int16),
        }
        program = Interpreter({"f": func}, {}, {}, lanes_max=lanes_max)
        for _ in range(2):  # the second run knows what the first found out
            program.run("f", args)
            assert args["y"].tolist() == columns.sum(axis=1).tolist()
            assert args["z"].tolist() == columns[-1].tolist()
            assert args["column"].tolist() == columns[-1].tolist()


# ---- memory and calls --------------------------------------------------------------------------


def doubling() -> PrimFunc:
    b = Builder("double")
    x = b.buffer_param("x", INT8, (8,), "in")
    y = b.buffer_param("y", INT8, (8,), "out")
    with b.for_("i", 8) as i:
        b.store(y, [i], b.load(x, [i]) * 2)
    return b.build()


def pool_main(x_offset: int, y_offset: int) -> PrimFunc:
    """A planned main: doubles the 8 bytes at one offset of a pool into another place."""
    pool = Buffer("sram", UINT8, (32,), scope="pool")
    x, y = Buffer("x", INT8, (8,)), Buffer("y", INT8, (8,))
    body = DeclBuffer(
        x,
        AccessPtr(pool, IntImm(x_offset, INT64), 8, "rw"),
        DeclBuffer(
            y,
            AccessPtr(pool, IntImm(y_offset, INT64), 8, "rw"),
            CallPrim(
                "double",
                (
                    AccessPtr(x, IntImm(0, INT64), 8, "r"),
                    AccessPtr(y, IntImm(0, INT64), 8, "w"),
                ),
            ),
        ),
    )
    return PrimFunc("run", (Param(pool, "pool"),), body, {"aot_main": True})


@pytest.mark.parametrize("offset", [8, 0, 1, 3])
def test_overlapped_arguments_are_executed_in_the_program_order(offset: int) -> None:
    """Writing ahead of the reads destroys inputs, exactly as the C loop does."""
    pool = np.zeros(32, np.uint8)
    pool[4:12] = np.arange(1, 9)
    expected = pool.copy()
    for i in range(8):
        expected[4 + offset + i] = int(expected[4 + i]) * 2 % 256
    interpret(
        pool_main(4, 4 + offset), {"sram": pool}, {}, functions={"double": doubling()},
        check_overflow=False,
    )  # fmt: skip
    np.testing.assert_array_equal(pool, expected)


def test_windows_reinterpret_bytes() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT8, (8,), "in"), b.buffer_param("y", INT32, (2,), "out")
    with b.window("words", x, 0, (2,), dtype=INT32) as words, b.for_("i", 2) as i:
        b.store(y, [i], b.load(words, [i]))
    out = np.zeros(2, np.int32)
    run(b, x=np.array([1, 0, 0, 0, -1, -1, -1, -1], np.int8), y=out)
    assert out.tolist() == [1, -1]


def test_windows_may_start_at_odd_bytes() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT8, (9,), "inout"), b.buffer_param("y", INT16, (4,), "out")
    with b.window("halves", x, 1, (4,), dtype=INT16, access="rw") as halves:
        with b.for_("i", 4) as i:
            b.store(y, [i], b.load(halves, [i]))
        with b.for_("i", 2) as i:
            b.store(halves, [i], 0x0102)
    source = np.array([9, 1, 0, 2, 0, 3, 0, 4, 0], np.int8)
    out = np.zeros(4, np.int16)
    run(b, x=source, y=out)
    assert out.tolist() == [1, 2, 3, 4]
    assert source.tolist() == [9, 2, 1, 2, 1, 3, 0, 4, 0]


def test_strided_buffers_skip_elements() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT8, (12,), "in"), b.buffer_param("y", INT8, (3, 2), "out")
    with b.window("column", x, 1, (3, 2), strides=(4, 1)) as v, b.for_("i", 3) as i:
        for j in range(2):
            b.store(y, [i, j], b.load(v, [i, j]))
    out = np.zeros((3, 2), np.int8)
    run(b, x=np.arange(12, dtype=np.int8), y=out)
    assert out.tolist() == [[1, 2], [5, 6], [9, 10]]


def test_scalar_parameters_are_passed_by_calls() -> None:
    n = Var("n", INT32)
    y = Buffer("y", INT32, (4,))
    body = For(
        Var("i", INT64), IntImm(0, INT64), IntImm(4, INT64),
        BufferStore(y, (Var("i", INT64),), n),
    )  # fmt: skip
    fill = PrimFunc("fill", (Param(y, "out"), Param(n, "scalar")), body)
    out = np.zeros(4, np.int32)
    interpret(fill, {"y": out, "n": 7}, {})
    assert out.tolist() == [7] * 4
    z = Buffer("z", INT32, (4,))
    pointer = AccessPtr(z, IntImm(0, INT64), 4, "w")
    main = PrimFunc("run", (Param(z, "out"),), CallPrim("fill", (pointer, IntImm(9, INT32))))
    interpret(main, {"z": out}, {}, functions={"fill": fill})
    assert out.tolist() == [9] * 4


# ---- mistakes ----------------------------------------------------------------------------------


def failing(b: Builder, **args: Any) -> str:
    func = b.build()
    with pytest.raises(InternalError) as caught:
        interpret(func, args, TABLE, constants=b.constants)
    return str(caught.value)


def test_an_index_out_of_bounds_names_function_buffer_and_index() -> None:
    b = Builder("f", Span("m.tflite", 0, 3, "t"))
    x, y = b.buffer_param("x", INT8, (4, 3), "in"), b.buffer_param("y", INT8, (3,), "out")
    with b.for_("i", 3) as i:
        b.store(y, [i], b.load(x, [0, i + 1]))
    assert failing(b, x=np.zeros((4, 3), np.int8), y=np.zeros(3, np.int8)) == (
        "@f (m.tflite: subgraph 0, operator 3 (t)): index 3 of x is outside of dimension 1, "
        "which has 3 elements."
    )


def test_a_guarded_index_may_be_out_of_bounds_where_the_guard_is_false() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT8, (3,), "in"), b.buffer_param("y", INT8, (5,), "out")
    with b.for_("i", 5) as i, b.if_(logical_and(i >= 1, i < 4)):
        b.store(y, [i], b.load(x, [i - 1]))
    out = np.zeros(5, np.int8)
    run(b, x=np.array([1, 2, 3], np.int8), y=out)
    assert out.tolist() == [0, 1, 2, 3, 0]


def test_a_guard_that_is_off_by_one_is_found() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT8, (3,), "in"), b.buffer_param("y", INT8, (5,), "out")
    with b.for_("i", 5) as i, b.if_(logical_and(i >= 1, i <= 4)):
        b.store(y, [i], b.load(x, [i - 1]))
    message = failing(b, x=np.zeros(3, np.int8), y=np.zeros(5, np.int8))
    assert message.startswith("@f: index 3 of x is outside of dimension 0")


def overflow_case(op: str, in_lanes: bool) -> str:
    b = Builder("f")
    x, y = b.buffer_param("x", INT32, (2,), "in"), b.buffer_param("y", INT32, (2,), "out")
    if in_lanes:
        with b.for_("i", 2) as i:
            b.store(y, [i], binary(op, b.load(x, [i]), 70000))  # type: ignore[arg-type]  # a literal
    else:
        b.store(y, [1], binary(op, b.load(x, [1]), 70000))  # type: ignore[arg-type]  # a literal
    return failing(b, x=np.array([1, 2**31 - 1], np.int32), y=np.zeros(2, np.int32))


@pytest.mark.parametrize("in_lanes", [True, False])
@pytest.mark.parametrize("op", ["add", "mul"])
def test_integer_overflow_is_an_error(op: str, in_lanes: bool) -> None:
    assert f"@f: {op} overflows int32" in overflow_case(op, in_lanes)


def test_overflow_wraps_when_it_is_not_checked() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT32, (2,), "in"), b.buffer_param("y", INT32, (2,), "out")
    with b.for_("i", 2) as i:
        b.store(y, [i], b.load(x, [i]) + 1)
    out = np.zeros(2, np.int32)
    args = {"x": np.array([2**31 - 1, 5], np.int32), "y": out}
    interpret(b.build(), args, {}, check_overflow=False)
    assert out.tolist() == [-(2**31), 6]


def test_64_bit_overflow_is_an_error() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT64, (2,), "in"), b.buffer_param("y", INT64, (2,), "out")
    with b.for_("i", 2) as i:
        b.store(y, [i], b.load(x, [i]) * b.load(x, [i]))
    message = failing(b, x=np.array([3, 2**40], np.int64), y=np.zeros(2, np.int64))
    assert "mul overflows int64" in message


def test_division_by_zero_is_an_error() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT32, (2,), "in"), b.buffer_param("y", INT32, (2,), "out")
    with b.for_("i", 2) as i:
        b.store(y, [i], binary("div", 10, b.load(x, [i])))
    assert failing(b, x=np.array([5, 0], np.int32), y=np.zeros(2, np.int32)) == "@f: div by zero"


def test_shifts_out_of_range_are_errors() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", UINT32, (2,), "in"), b.buffer_param("y", UINT32, (2,), "out")
    with b.for_("i", 2) as i:
        b.store(y, [i], binary("shl", 1, b.load(x, [i])))
    message = failing(b, x=np.array([5, 32], np.uint32), y=np.zeros(2, np.uint32))
    assert message.startswith("@f: shl by")


def test_a_float_beyond_the_integers_is_an_error() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", FLOAT32, (2,), "in"), b.buffer_param("y", INT8, (2,), "out")
    with b.for_("i", 2) as i:
        b.store(y, [i], b.load(x, [i]).cast(INT8))
    out = np.zeros(2, np.int8)
    run(b, x=np.array([-128.9, 127.9], np.float32), y=out)
    assert out.tolist() == [-128, 127]
    func = b.build()
    with pytest.raises(InternalError, match="a float does not fit int8"):
        interpret(
            PrimFunc("f", func.params, float_body(func)),
            {"x": np.array([128.0, np.nan], np.float32), "y": out},
            {},
        )


def float_body(func: PrimFunc) -> Any:
    x, y = (param.value for param in func.params)
    assert isinstance(x, Buffer)
    assert isinstance(y, Buffer)
    i = Var("i", INT64)
    store = BufferStore(y, (i,), Cast(INT8, BufferLoad(x, (i,))))
    return For(i, IntImm(0, INT64), IntImm(2, INT64), store)


def test_a_register_read_before_it_is_written_is_an_error() -> None:
    b = Builder("f")
    y = b.buffer_param("y", INT32, (1,), "out")
    acc = b.reg("acc", INT32)
    b.store(y, [0], b.load(acc, [0]))
    assert failing(b, y=np.zeros(1, np.int32)) == (
        "@f: the register acc is read before it is written."
    )


def test_undefined_memory_does_not_read_as_zero() -> None:
    b = Builder("f")
    y = b.buffer_param("y", INT8, (4,), "out")
    with b.allocate("t", INT8, (4,)) as t, b.for_("i", 4) as i:
        b.store(y, [i], b.load(t, [i]))
    out = np.zeros(4, np.int8)
    run(b, y=out)
    assert (out != 0).all()


def test_inputs_and_constants_are_not_written() -> None:
    b = Builder("f")
    x = b.buffer_param("x", INT8, (1,), "in")
    b.store(x, [0], 1)
    assert failing(b, x=np.zeros(1, np.int8)) == "@f: x is written, but is read-only"
    c = Builder("g")
    w = c.constant("w", np.zeros(2), INT8)
    with c.window("v", w, 0, (2,), access="w") as v:
        c.store(v, [0], 1)
    assert failing(c) == "@g: w is read-only and a pointer would write it"


def test_pointers_stay_inside_their_buffer() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT8, (8,), "in"), b.buffer_param("y", INT8, (2,), "out")
    with b.for_("i", 2) as i, b.window("v", x, i * 5, (4,)) as v:
        b.store(y, [i], b.load(v, [3]))
    message = failing(b, x=np.zeros(8, np.int8), y=np.zeros(2, np.int8))
    assert "are not inside x, which has 8." in message


def test_windows_are_no_larger_than_what_they_look_at() -> None:
    x, v = Buffer("x", INT8, (8,)), Buffer("v", INT32, (2,))
    pointer = AccessPtr(x, IntImm(0, INT64), 7, "r")
    func = PrimFunc("f", (Param(x, "in"),), DeclBuffer(v, pointer, Seq(())))
    with pytest.raises(InternalError, match="the window v needs 8 bytes of 7"):
        interpret(func, {"x": np.zeros(8, np.int8)}, {})


def test_calls_pass_enough_memory() -> None:
    z = Buffer("z", INT8, (4,))
    pointer = AccessPtr(z, IntImm(0, INT64), 4, "rw")
    main = PrimFunc("run", (Param(z, "inout"),), CallPrim("double", (pointer, pointer)))
    with pytest.raises(InternalError, match="@double, parameter x: needs 8 bytes, gets 4"):
        interpret(main, {"z": np.zeros(4, np.int8)}, {}, functions={"double": doubling()})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"x": np.zeros(8, np.int8)}, "parameters are"),
        ({"x": np.zeros(8, np.int16), "y": np.zeros(8, np.int8)}, "is int16, not int8"),
        ({"x": np.zeros(4, np.int8), "y": np.zeros(8, np.int8)}, "needs 8 bytes, gets 4"),
        ({"x": 3, "y": np.zeros(8, np.int8)}, "an array is expected"),
        ({"x": np.zeros(8, np.int8), "y": np.zeros(16, np.int8)[::2]}, "lie in one piece"),
    ],
)
def test_arguments_must_fit_the_parameters(args: dict[str, Any], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        interpret(doubling(), args, {})


def test_unknown_names_are_errors() -> None:
    with pytest.raises(InternalError, match="the function missing is not in the module"):
        interpret(PrimFunc("f", (), CallPrim("missing", ())), {}, {})
    with pytest.raises(InternalError, match="the intrinsic missing is not in the table"):
        interpret(PrimFunc("f", (), Evaluate(Call("missing", (), INT32))), {}, {})
    b = Builder("f")
    b.constant("w", np.zeros(2), INT8)
    with pytest.raises(InternalError, match=r"the constant f\.w is not in the table"):
        interpret(b.build(), {}, {})


def test_a_result_that_does_not_fit_is_an_error() -> None:
    wide = Intrinsic(
        "wide", (Operand("x", "in", INT32),), INT32, lambda x: x.astype(np.int64) << 20, "", ""
    )
    b = Builder("f")
    x, y = b.buffer_param("x", INT32, (2,), "in"), b.buffer_param("y", INT32, (2,), "out")
    with b.for_("i", 2) as i:
        b.store(y, [i], call("wide", [b.load(x, [i])], INT32))
    args = {"x": np.array([1, 4096], np.int32), "y": np.zeros(2, np.int32)}
    with pytest.raises(InternalError, match="the result of wide does not fit int32"):
        interpret(b.build(), args, {"wide": wide})


def test_constants_must_be_what_their_buffer_declares() -> None:
    b = Builder("f")
    b.constant("w", np.zeros(2), INT8)
    wrong = {"f.w": Constant.from_array("f.w", np.zeros(2), INT16)}
    with pytest.raises(InternalError, match=r"the constant f\.w is not what w declares"):
        interpret(b.build(), {}, {}, constants=wrong)


def test_kernels_allocate_activations_too() -> None:
    t = Buffer("t", INT8, (8,))
    x, y = Buffer("x", INT8, (8,)), Buffer("y", INT8, (8,))

    def step(source: Buffer, target: Buffer) -> CallPrim:
        zero = IntImm(0, INT64)
        return CallPrim(
            "double", (AccessPtr(source, zero, 8, "r"), AccessPtr(target, zero, 8, "w"))
        )

    body = Allocate(t, Seq((step(x, t), step(t, y))), "activation")
    main = PrimFunc("run", (Param(x, "in"), Param(y, "out")), body)
    out = np.zeros(8, np.int8)
    values = np.arange(8, dtype=np.int8)
    interpret(main, {"x": values, "y": out}, {}, functions={"double": doubling()})
    assert out.tolist() == (values * 4).tolist()
