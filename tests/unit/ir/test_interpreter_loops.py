"""Tests of the interpreter: which loops run as lanes, equivalent to serial loops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT16, INT32
from firmwright.ir import tir
from firmwright.ir.tir.builder import (
    Builder,
    binary_expr,
    call_intrinsic,
    logical_and,
    maximum,
    minimum,
)
from firmwright.ir.tir.interpreter import Interpreter, interpret
from firmwright.ir.tir.traversal import walk
from tests.unit.ir.interpreted import Array, run, runs_in_lanes


def padded_conv(size: int, channels: int, outputs: int) -> tuple[Builder, Array]:
    weights = np.random.default_rng(2).integers(-127, 128, (outputs, 3, 3, channels))
    b = Builder("conv")
    x = b.buffer_param("x", INT8, (size, size, channels), "in")
    y = b.buffer_param("y", INT32, (size, size, outputs), "out")
    w = b.constant("w", weights, INT8)
    with (
        b.for_("oy", size) as oy,
        b.for_("ox", size) as ox,
        b.for_("oc", outputs) as oc,
    ):
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


def test_a_reduction_is_serial_inside_a_parallel_loop() -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT32, (5, 9), "in"),
        b.buffer_param("y", INT32, (5,), "inout"),
    )
    with b.for_("i", 5) as i, b.for_("k", 9) as k:
        b.store(y, [i], b.load(y, [i]) + b.load(x, [i, k]))
    func = b.build()
    outer, inner = (node for node in walk(func.body) if isinstance(node, tir.For))
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


def test_a_loop_carried_dependence_makes_a_loop_serial() -> None:
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
        (lambda i, j: binary_expr("sub", 31, i * 4 + j), True),
        (lambda i, j: (i / 2) * 8 + j, False),
    ],
)
def test_a_loop_is_parallel_exactly_if_its_stores_are_disjoint(
    index: Callable[[Any, Any], Any], parallel: bool
) -> None:
    b = Builder("f")
    y = b.buffer_param("y", INT32, (64,), "out")
    with b.for_("i", 8) as i, b.for_("j", 4) as j:
        b.store(y, [index(i, j)], (i * 10 + j).cast(INT32))
    func = b.build()
    assert runs_in_lanes(func) == parallel


def test_blocked_stores_to_rows_and_columns_are_disjoint() -> None:
    """Two channels by four pixels per step, as in a register-blocked kernel."""
    b = Builder("f")
    y = b.buffer_param("y", INT8, (32, 10), "out")
    with b.for_("block", 8) as block, b.for_("pair", 5) as pair:
        for row in range(4):
            for column in range(2):
                b.store(y, [block * 4 + row, pair * 2 + column], 1 + row)
    func = b.build()
    pair_loop = [node for node in walk(func.body) if isinstance(node, tir.For)][1]
    assert runs_in_lanes(func)
    assert runs_in_lanes(func, pair_loop)


def test_registers_that_outlive_an_iteration_make_a_loop_serial() -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT32, (9,), "in"),
        b.buffer_param("y", INT32, (9,), "out"),
    )
    last = b.reg("last", INT32)
    b.store(last, [0], 0)
    with b.for_("i", 9) as i:
        b.store(last, [0], maximum(b.load(last, [0]), b.load(x, [i])))
        b.store(y, [i], b.load(last, [0]))
    x_values = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5], np.int32)
    out = np.zeros(9, np.int32)
    run(b, x=x_values, y=out)
    assert out.tolist() == np.maximum.accumulate(x_values).tolist()


def test_registers_may_be_indexed_by_an_unrolled_loop() -> None:
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


def test_branches_and_while_loops_diverge_per_lane() -> None:
    """Collatz steps: a while loop, an if and an else that differ in every lane."""
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT32, (20,), "in"),
        b.buffer_param("y", INT32, (20,), "out"),
    )
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
    x, y = (
        b.buffer_param("x", INT8, (6, 8), "in"),
        b.buffer_param("y", INT32, (6,), "out"),
    )
    with b.for_("i", 6) as i:
        column = b.allocate("column", INT16, (8,))
        with b.for_("k", 8) as k:
            b.store(column, [k], b.load(x, [i, binary_expr("sub", 7, k)]).cast(INT16))
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
    """Return a GEMM over a packed column: four pixels by two channels in registers."""
    rng = np.random.default_rng(5)
    weights = rng.integers(-127, 128, (channels // 2, depth // 2, 2, 2)).astype(
        np.int16
    )
    b = Builder("gemm")
    x = b.buffer_param("x", INT8, (pixels, depth), "in")
    y = b.buffer_param("y", INT32, (pixels, channels), "out")
    w = b.constant("w", weights, INT16, alignment=4)
    with b.for_("block", pixels // 4) as block:
        column = b.allocate("column", INT16, (4, depth))
        with b.for_("p", 4) as p, b.for_("k", depth) as k:
            b.store(column, [p, k], b.load(x, [block * 4 + p, k]).cast(INT16))
        words = b.view("words", column, 0, (4, depth // 2), dtype=INT32)
        with b.for_("pair", channels // 2) as pair:
            row = b.view("row", w, pair * (depth * 2), (depth // 2, 2), dtype=INT32)
            acc = b.reg("acc", INT32, 8)
            for n in range(8):
                b.store(acc, [n], 0)
            with b.for_("k", depth // 2) as k:
                for n in range(8):
                    terms = [
                        b.load(row, [k, n % 2]),
                        b.load(words, [n // 2, k]),
                        b.load(acc, [n]),
                    ]
                    b.store(acc, [n], call_intrinsic("smlad", terms, INT32))
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
    x, w = (
        b.buffer_param("x", INT8, (3, 8), "in"),
        b.buffer_param("w", INT8, (8,), "in"),
    )
    y, z = (
        b.buffer_param("y", INT32, (3,), "out"),
        b.buffer_param("z", INT8, (12,), "out"),
    )
    with b.for_("i", 3) as i:
        acc = b.reg("acc", INT32)
        b.store(acc, [0], 1)
        with b.for_("k", 2) as k:
            pointers = [b.pointer(x, i * 8 + k * 4, 4), b.pointer(w, k * 4, 4)]
            b.evaluate("dot4", [b.load(acc, [0]), *pointers])
        b.store(y, [i], b.load(acc, [0]))
        b.evaluate("fill4", [i.cast(INT32), b.pointer(z, i * 4, 4, "w")])
    rng = np.random.default_rng(7)
    xs, ws = (
        rng.integers(-128, 128, (3, 8)).astype(np.int8),
        rng.integers(-9, 9, 8).astype(np.int8),
    )
    out, filled = np.zeros(3, np.int32), np.zeros(12, np.int8)
    run(b, x=xs, w=ws, y=out, z=filled)
    np.testing.assert_array_equal(out, 1 + xs.astype(np.int32) @ ws.astype(np.int32))
    assert filled.tolist() == [0] * 4 + [1] * 4 + [2] * 4


def scratch_kernel(carried: bool) -> tir.PrimFunc:
    """Return a kernel with scratch as a parameter.

    With `carried`, iterations read each other's.
    """
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT8, (6, 8), "in"),
        b.buffer_param("y", INT32, (6,), "out"),
    )
    z = b.buffer_param("z", INT32, (8,), "out")
    column = b.buffer_param("column", INT16, (8,), "scratch")
    if carried:
        with b.for_("k0", 8) as k:
            b.store(column, [k], 0)
    whole = b.view("whole", column, 0, (8,), access="rw")
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
