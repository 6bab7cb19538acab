"""The cost model counts work as compilers leave it: shares of conditions, hoisting, unrolling."""

import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.errors import InternalError
from firmwright.ir.tir.cost import GENERIC, Weights, cost
from firmwright.ir.tir.nodes import (
    Binary,
    Buffer,
    BufferLoad,
    BufferStore,
    Call,
    For,
    If,
    IntImm,
    Param,
    PrimFunc,
    Var,
)
from firmwright.ir.tir.work import work

X = Buffer("x", INT8, (64,))
Y = Buffer("y", INT8, (64,))
I, J = Var("i", INT32), Var("j", INT32)  # noqa: E741 - as loops are written


def number(value: int) -> IntImm:
    return IntImm(value, INT32)


def loop(var: Var, count: int, body, kind="serial") -> For:
    return For(var, number(0), number(count), body, kind)


def function(body) -> PrimFunc:
    return PrimFunc("f", (Param(X, "in"), Param(Y, "out")), body)


def copy(index, value=None) -> BufferStore:
    return BufferStore(Y, (index,), value or BufferLoad(X, (index,)))


def test_loads_and_stores_run_as_often_as_their_loops():
    done = work(function(loop(I, 5, loop(J, 7, copy(J)))), {}).done
    assert (done["load"], done["store"]) == (35, 35)
    assert (done["loop"], done["entry"], done["call"]) == (5 + 35, 1 + 5, 1)


@pytest.mark.parametrize(("place", "lookups"), [(BufferLoad(X, (I,)), 5), (I, 0)])
def test_a_table_read_where_data_say_is_looked_up(place, lookups: int):
    table = Buffer("table", INT8, (64,), scope="const")
    done = work(function(loop(I, 5, copy(I, BufferLoad(table, (place,))))), {}).done
    assert done.get("lookup", 0) == lookups


def test_an_unrolled_loop_has_no_overhead():
    done = work(function(loop(I, 8, copy(I), "unrolled")), {}).done
    assert done["load"] == 8
    assert "loop" not in done


@pytest.mark.parametrize("inside", [0, 3, 16, 20, 32])
def test_a_condition_on_loops_counts_by_its_share(inside: int):
    body = loop(I, 32, If(Binary("lt", I, number(inside)), copy(I)))
    assert work(function(body), {}).done.get("store", 0) == pytest.approx(inside, abs=1)


def test_conditions_of_two_loops_multiply():
    inner = If(Binary("ge", J, number(4)), copy(J))
    body = loop(I, 8, loop(J, 8, If(Binary("lt", I, number(4)), inner)))
    assert work(function(body), {}).done["store"] == pytest.approx(16, abs=2)


def test_a_condition_on_data_counts_half():
    cond = Binary("lt", BufferLoad(X, (I,)), IntImm(0, INT8))
    assert work(function(loop(I, 10, If(cond, copy(I)))), {}).done["store"] == 5


def test_a_loop_as_long_as_another_counts_its_mean():
    triangle = loop(I, 9, For(J, number(0), I, copy(J)))
    assert work(function(triangle), {}).done["store"] == pytest.approx(36, rel=0.05)


def test_arithmetic_on_indices_stands_outside_of_loops_and_once():
    row = Binary("mul", I, number(12))
    body = loop(I, 4, loop(J, 16, If(Binary("lt", Binary("add", row, J), row), copy(J))))
    done = work(function(body), {}).done
    assert done["index"] == 4 + 4 * 16


def test_a_product_that_is_added_is_one_operation_and_a_part_used_twice_is_done_once():
    product = Binary("mul", BufferLoad(X, (I,)), BufferLoad(Y, (I,)))
    total = Binary("add", BufferLoad(X, (number(0),)), product)
    done = work(function(loop(I, 6, copy(I, Binary("xor", total, total)))), {}).done
    assert (done["multiply_add"], done["alu"], done["load"]) == (6, 6, 18)
    assert "multiply" not in done


@pytest.mark.parametrize(
    ("low", "high", "kind"), [(-8, 7, "saturate"), (0, 127, "saturate"), (-5, 5, "clip")]
)
def test_a_clamp_by_constants_saturates_where_its_limits_are_those_of_bits(low, high, kind):
    value = Binary("max", BufferLoad(X, (I,)), IntImm(low, INT8))
    done = work(function(loop(I, 6, copy(I, Binary("min", value, IntImm(high, INT8))))), {}).done
    assert done[kind] == 6
    assert {"saturate", "clip", "clamp"} & set(done) == {kind}


def test_a_constant_that_a_loop_does_not_choose_is_loaded_outside_of_it():
    table = Buffer("table", INT8, (4,), scope="const")
    body = loop(I, 6, loop(J, 9, copy(J, BufferLoad(table, (number(2),)))))
    assert work(function(body), {}).done["load"] == 1


def test_instructions_are_the_weighted_sum():
    kernel = function(loop(I, 10, copy(I)))
    weights = Weights("test", {"load": 2.0, "store": 3.0, "loop": 4.0, "entry": 5.0, "call": 6.0})
    assert cost(kernel, {}, weights).instructions == 10 * (2 + 3 + 4) + 5 + 6
    assert cost(kernel, {}) == cost(kernel, {}, GENERIC)


def test_an_unknown_intrinsic_is_an_error():
    with pytest.raises(InternalError, match="intrinsic nothing is not in the table"):
        work(function(copy(I, Call("nothing", (), INT8))), {})
