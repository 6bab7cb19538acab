"""Tests of the cost model: fractions of conditions, hoisting and unrolling."""

import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.tir.cost_model import GENERIC_WEIGHTS, CostWeights, estimate_cost
from firmwright.ir.tir.op_count import count_operations

X = tir.Buffer("x", INT8, (64,))
Y = tir.Buffer("y", INT8, (64,))
I, J = tir.Var("i", INT32), tir.Var("j", INT32)  # noqa: E741 - as loops are written


def number(value: int) -> tir.IntImm:
    return tir.IntImm(value, INT32)


def loop(var: tir.Var, count: int, body, kind="serial") -> tir.For:
    return tir.For(var, number(0), number(count), body, kind)


def function(body) -> tir.PrimFunc:
    return tir.PrimFunc("f", (tir.Param(X, "in"), tir.Param(Y, "out")), body)


def copy(index, value=None) -> tir.BufferStore:
    return tir.BufferStore(Y, (index,), value or tir.BufferLoad(X, (index,)))


def test_loads_and_stores_count_once_per_iteration():
    done = count_operations(function(loop(I, 5, loop(J, 7, copy(J)))), {}).done
    assert (done["load"], done["store"]) == (35, 35)
    assert (done["loop"], done["entry"], done["call"]) == (5 + 35, 1 + 5, 1)


@pytest.mark.parametrize(("place", "lookups"), [(tir.BufferLoad(X, (I,)), 5), (I, 0)])
def test_a_load_at_a_data_dependent_index_is_a_lookup(place, lookups: int):
    table = tir.Buffer("table", INT8, (64,), scope="const")
    done = count_operations(
        function(loop(I, 5, copy(I, tir.BufferLoad(table, (place,))))), {}
    ).done
    assert done.get("lookup", 0) == lookups


def test_an_unrolled_loop_has_no_overhead():
    done = count_operations(function(loop(I, 8, copy(I), "unrolled")), {}).done
    assert done["load"] == 8
    assert "loop" not in done


@pytest.mark.parametrize("inside", [0, 3, 16, 20, 32])
def test_a_condition_on_loop_variables_counts_its_fraction(inside: int):
    body = loop(I, 32, tir.If(tir.Binary("lt", I, number(inside)), copy(I)))
    assert count_operations(function(body), {}).done.get("store", 0) == pytest.approx(
        inside, abs=1
    )


def test_conditions_of_two_loops_multiply():
    inner = tir.If(tir.Binary("ge", J, number(4)), copy(J))
    body = loop(I, 8, loop(J, 8, tir.If(tir.Binary("lt", I, number(4)), inner)))
    assert count_operations(function(body), {}).done["store"] == pytest.approx(
        16, abs=2
    )


def test_a_branch_whose_tests_are_known_or_made_before_is_free():
    """As for windows at a border: one column in range, then the next of its row."""
    row = tir.Binary("lt", I, number(4))

    def within(limit: int) -> tir.If:
        return tir.If(
            tir.Binary("and", row, tir.Binary("lt", J, number(limit))), copy(J)
        )

    body = tir.Seq((within(6), within(6), within(8)))
    done = count_operations(function(loop(I, 8, loop(J, 8, body))), {}).done
    assert done["branch"] == 64
    assert done["taken"] == pytest.approx(24 + 24 + 32, abs=4)  # the rarer sides


def test_a_condition_on_data_counts_half():
    cond = tir.Binary("lt", tir.BufferLoad(X, (I,)), tir.IntImm(0, INT8))
    assert (
        count_operations(function(loop(I, 10, tir.If(cond, copy(I)))), {}).done["store"]
        == 5
    )


def test_a_loop_with_a_varying_extent_counts_its_mean():
    triangle = loop(I, 9, tir.For(J, number(0), I, copy(J)))
    assert count_operations(function(triangle), {}).done["store"] == pytest.approx(
        36, rel=0.05
    )


def test_index_arithmetic_is_hoisted_and_counted_once():
    row = tir.Binary("mul", I, number(12))
    body = loop(
        I,
        4,
        loop(J, 16, tir.If(tir.Binary("lt", tir.Binary("add", row, J), row), copy(J))),
    )
    done = count_operations(function(body), {}).done
    assert done["index"] == 4 + 4 * 16


def test_multiply_add_is_one_operation_and_shared_parts_count_once():
    product = tir.Binary("mul", tir.BufferLoad(X, (I,)), tir.BufferLoad(Y, (I,)))
    total = tir.Binary("add", tir.BufferLoad(X, (number(0),)), product)
    done = count_operations(
        function(loop(I, 6, copy(I, tir.Binary("xor", total, total)))), {}
    ).done
    assert (done["multiply_add"], done["alu"], done["load"]) == (6, 6, 18)
    assert "multiply" not in done


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [(-8, 7, "saturate"), (0, 127, "saturate"), (-5, 5, "clip")],
)
def test_a_clamp_to_an_n_bit_range_is_a_saturation(low, high, kind):
    value = tir.Binary("max", tir.BufferLoad(X, (I,)), tir.IntImm(low, INT8))
    done = count_operations(
        function(loop(I, 6, copy(I, tir.Binary("min", value, tir.IntImm(high, INT8))))),
        {},
    ).done
    assert done[kind] == 6
    assert {"saturate", "clip", "clamp"} & set(done) == {kind}


def test_a_loop_invariant_constant_load_is_hoisted():
    table = tir.Buffer("table", INT8, (4,), scope="const")
    body = loop(I, 6, loop(J, 9, copy(J, tir.BufferLoad(table, (number(2),)))))
    assert count_operations(function(body), {}).done["load"] == 1


def test_instructions_are_the_weighted_sum():
    kernel = function(loop(I, 10, copy(I)))
    weights = CostWeights(
        "test", {"load": 2.0, "store": 3.0, "loop": 4.0, "entry": 5.0, "call": 6.0}
    )
    assert estimate_cost(kernel, {}, weights).instructions == 10 * (2 + 3 + 4) + 5 + 6
    assert estimate_cost(kernel, {}) == estimate_cost(kernel, {}, GENERIC_WEIGHTS)


def test_an_unknown_intrinsic_is_an_error():
    with pytest.raises(InternalError, match="intrinsic nothing is not in the table"):
        count_operations(function(copy(I, tir.IntrinsicCall("nothing", (), INT8))), {})
