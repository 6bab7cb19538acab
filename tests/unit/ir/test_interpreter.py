"""Tests of the interpreter: the semantics of each node, in memory and in calls."""

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
    DType,
)
from firmwright.ir import tir
from firmwright.ir.tir.builder import (
    Builder,
    binary_expr,
    logical_and,
    logical_not,
    select,
)
from firmwright.ir.tir.interpreter import interpret
from tests.unit.ir.interpreted import doubling, run

# ---- values --------------------------------------------------------------------------

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
def test_binary_operators_match_c(op: Any, meaning: Callable[[int, int], int]) -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT32, (8,), "in"),
        b.buffer_param("y", INT32, (8,), "in"),
    )
    z = b.buffer_param("z", INT32, (8,), "out")
    with b.for_("i", 8) as i:
        b.store(z, [i], binary_expr(op, b.load(x, [i]), b.load(y, [i])))
    out = np.zeros(8, np.int32)
    run(b, x=LEFT, y=RIGHT, z=out)
    assert out.tolist() == [
        meaning(int(p), int(q)) for p, q in zip(LEFT, RIGHT, strict=True)
    ]


@pytest.mark.parametrize(
    ("op", "expected"),
    [("lt", 1), ("le", 1), ("gt", 0), ("ge", 0), ("eq", 0), ("ne", 1)],
)
def test_comparisons_return_booleans(op: Any, expected: int) -> None:
    b = Builder("f")
    y = b.buffer_param("y", BOOL, (1,), "out")
    x = b.buffer_param("x", INT8, (1,), "in")
    b.store(y, [0], binary_expr(op, b.load(x, [0]), 3))
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
    x, y = (
        b.buffer_param("x", source, (3,), "in"),
        b.buffer_param("y", target, (3,), "out"),
    )
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
    x, y = (
        b.buffer_param("x", INT32, (4,), "in"),
        b.buffer_param("y", INT32, (4, 2), "out"),
    )
    with b.for_("i", 4) as i:
        b.store(y, [i, 0], b.load(x, [i]) >> 2)
        b.store(y, [i, 1], b.load(x, [i]) << 3)
    out = np.zeros((4, 2), np.int32)
    run(b, x=np.array([5, -5, 1000, -1], np.int32), y=out)
    assert out.tolist() == [[1, 40], [-2, -40], [250, 8000], [-1, -8]]


def test_float_sums_round_to_single_precision_at_every_step() -> None:
    values = np.random.default_rng(1).standard_normal(100).astype(np.float32)
    b = Builder("f")
    x, y = (
        b.buffer_param("x", FLOAT32, (100,), "in"),
        b.buffer_param("y", FLOAT32, (1,), "out"),
    )
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
    x, y = (
        b.buffer_param("x", INT32, (6,), "in"),
        b.buffer_param("y", INT32, (7,), "out"),
    )
    with b.for_("i", 6) as i:
        v = b.let("v", b.load(x, [i]), INT32)
        inside = logical_and(v > -2, logical_not(v.equal(1)))
        b.store(y, [i], select(inside, v, 99))
    v = b.let("first", b.load(x, [0]))
    b.store(y, [6], select(v < 0, v, 7))
    out = np.zeros(7, np.int32)
    run(b, x=np.array([-3, -2, -1, 0, 1, 2], np.int32), y=out)
    assert out.tolist() == [99, 99, -1, 0, 99, 2, -3]


def test_unsigned_arithmetic_wraps() -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", UINT16, (2,), "in"),
        b.buffer_param("y", UINT16, (3,), "out"),
    )
    with b.for_("i", 2) as i:
        b.store(y, [i], b.load(x, [i]) - 5)
    b.store(y, [2], b.load(x, [0]) - 5)
    out = np.zeros(3, np.uint16)
    run(b, x=np.array([3, 9], np.uint16), y=out)
    assert out.tolist() == [65534, 4, 65534]


# ---- memory and calls ----------------------------------------------------------------


def pool_main(x_offset: int, y_offset: int) -> tir.PrimFunc:
    """Return a planned main that doubles 8 bytes from one pool offset to another."""
    pool = tir.Buffer("sram", UINT8, (32,), scope="pool")
    x, y = tir.Buffer("x", INT8, (8,)), tir.Buffer("y", INT8, (8,))
    body = tir.DeclBuffer(
        x,
        tir.AccessPtr(pool, tir.IntImm(x_offset, INT64), 8, "rw"),
        tir.DeclBuffer(
            y,
            tir.AccessPtr(pool, tir.IntImm(y_offset, INT64), 8, "rw"),
            tir.PrimFuncCall(
                "double",
                (
                    tir.AccessPtr(x, tir.IntImm(0, INT64), 8, "r"),
                    tir.AccessPtr(y, tir.IntImm(0, INT64), 8, "w"),
                ),
            ),
        ),
    )
    return tir.PrimFunc("run", (tir.Param(pool, "pool"),), body, {"aot_main": True})


@pytest.mark.parametrize("offset", [8, 0, 1, 3])
def test_overlapped_arguments_are_executed_in_the_program_order(offset: int) -> None:
    """A write ahead of the reads destroys inputs, exactly as in the C loop."""
    pool = np.zeros(32, np.uint8)
    pool[4:12] = np.arange(1, 9)
    expected = pool.copy()
    for i in range(8):
        expected[4 + offset + i] = int(expected[4 + i]) * 2 % 256
    interpret(
        pool_main(4, 4 + offset),
        {"sram": pool},
        {},
        functions={"double": doubling()},
        check_overflow=False,
    )
    np.testing.assert_array_equal(pool, expected)


def test_views_reinterpret_bytes() -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT8, (8,), "in"),
        b.buffer_param("y", INT32, (2,), "out"),
    )
    words = b.view("words", x, 0, (2,), dtype=INT32)
    with b.for_("i", 2) as i:
        b.store(y, [i], b.load(words, [i]))
    out = np.zeros(2, np.int32)
    run(b, x=np.array([1, 0, 0, 0, -1, -1, -1, -1], np.int8), y=out)
    assert out.tolist() == [1, -1]


def test_views_may_start_at_odd_bytes() -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT8, (9,), "inout"),
        b.buffer_param("y", INT16, (4,), "out"),
    )
    halves = b.view("halves", x, 1, (4,), dtype=INT16, access="rw")
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
    x, y = (
        b.buffer_param("x", INT8, (12,), "in"),
        b.buffer_param("y", INT8, (3, 2), "out"),
    )
    v = b.view("column", x, 1, (3, 2), strides=(4, 1))
    with b.for_("i", 3) as i:
        for j in range(2):
            b.store(y, [i, j], b.load(v, [i, j]))
    out = np.zeros((3, 2), np.int8)
    run(b, x=np.arange(12, dtype=np.int8), y=out)
    assert out.tolist() == [[1, 2], [5, 6], [9, 10]]


def test_scalar_parameters_are_passed_by_calls() -> None:
    n = tir.Var("n", INT32)
    y = tir.Buffer("y", INT32, (4,))
    body = tir.For(
        tir.Var("i", INT64),
        tir.IntImm(0, INT64),
        tir.IntImm(4, INT64),
        tir.BufferStore(y, (tir.Var("i", INT64),), n),
    )
    fill = tir.PrimFunc("fill", (tir.Param(y, "out"), tir.Param(n, "scalar")), body)
    out = np.zeros(4, np.int32)
    interpret(fill, {"y": out, "n": 7}, {})
    assert out.tolist() == [7] * 4
    z = tir.Buffer("z", INT32, (4,))
    pointer = tir.AccessPtr(z, tir.IntImm(0, INT64), 4, "w")
    main = tir.PrimFunc(
        "run",
        (tir.Param(z, "out"),),
        tir.PrimFuncCall("fill", (pointer, tir.IntImm(9, INT32))),
    )
    interpret(main, {"z": out}, {}, functions={"fill": fill})
    assert out.tolist() == [9] * 4
