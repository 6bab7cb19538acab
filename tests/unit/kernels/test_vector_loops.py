"""Loops over vectors: which loops have them, and their C."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest

from firmwright.base.dtypes import (
    FLOAT16,
    FLOAT32,
    INT4,
    INT16,
    INT32,
    INT64,
    UINT4,
    UINT32,
    UINT64,
    DType,
)
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr, Builder
from firmwright.ir.tir.traversal import statements
from firmwright.kernels.mve_loops import HELIUM, reciprocal
from firmwright.kernels.rvv_loops import RISCV
from firmwright.kernels.vector_loops import (
    ScalarText,
    VectorTarget,
    has_vectors,
    vector_lines,
)
from firmwright.passes.tir.narrow_index import narrow_indices
from firmwright.schedules.vector_loops import mark_vector_loops

TEXT = ScalarText(lambda *_: "number", lambda buffer, *_: buffer.name)
Element: TypeAlias = Callable[[Builder, tir.Buffer, ArithExpr], ArithExpr]


def function(
    element: Element, x_type: DType = INT16, y_type: DType = INT16, size: int = 10
) -> tir.PrimFunc:
    """Return a kernel that computes `element` of x at each place of y."""
    b = Builder("kernel")
    x = b.buffer_param("x", x_type, (2 * size,), "in", 4)
    y = b.buffer_param("y", y_type, (size,), "out", 4)
    with b.for_("i", size) as i:
        b.store(y, [i], element(b, x, i).cast(y_type))
    return b.build()


def only_loop(func: tir.PrimFunc) -> tir.For:
    (loop,) = (node for node in statements(func.body) if isinstance(node, tir.For))
    return loop


def doubled(b: Builder, x: tir.Buffer, i: ArithExpr) -> ArithExpr:
    return b.load_i32(x, [i]) * 2


def shifted_product(b: Builder, x: tir.Buffer, i: ArithExpr) -> ArithExpr:
    value = b.load(x, [i]).cast(INT64)
    return value * value >> 12


@pytest.mark.parametrize("target", [HELIUM, RISCV], ids=lambda each: each.feature)
def test_loops_of_integers_have_vectors(target: VectorTarget) -> None:
    for element in (doubled, shifted_product):
        func = mark_vector_loops(function(element, INT32, INT32), target)
        assert only_loop(func).kind == "vectorized"


def test_a_store_narrows_without_an_instruction() -> None:
    lines = vector_lines(only_loop(function(doubled)), HELIUM, TEXT)
    assert lines == [
        "const int32x4_t v0 = vldrhq_s32(x);",
        "const int32x4_t v1 = vmulq_n_s32(v0, 2);",
        "vstrhq_s32(y, v1);",
    ]


def test_the_last_vector_is_predicated() -> None:
    lines = vector_lines(only_loop(function(doubled)), HELIUM, TEXT, "inside")
    assert "vldrhq_z_s32(x, inside)" in lines[0]
    assert lines[-2].startswith('__asm__ volatile("" : : "m"')
    assert lines[-1] == "vstrhq_p_s32(y, v1, inside);"


def test_products_of_64_bits_are_halves() -> None:
    func = function(shifted_product, INT32, INT32)
    text = "\n".join(vector_lines(only_loop(func), RISCV, TEXT))
    assert "vmul_vv_i32m2" in text
    assert "vmulh_vv_i32m2" in text


@pytest.mark.parametrize("is_narrow", [False, True], ids=["wide", "narrow"])
def test_variables_of_64_bits_are_halves(is_narrow: bool) -> None:
    def rounded(b: Builder, x: tir.Buffer, i: ArithExpr) -> ArithExpr:
        wide = b.load(x, [i]).cast(INT64)
        product = b.let("product", wide * wide)
        return (product + (1 << 20)) >> 21

    func = function(rounded, INT32, INT32)
    func = narrow_indices(func) if is_narrow else func
    text = "\n".join(vector_lines(only_loop(func), HELIUM, TEXT))
    assert "vmulhq_s32" in text
    assert "vorrq_u32" in text


def test_variables_of_64_bits_in_indices_are_halves() -> None:
    def looked_up(b: Builder, x: tir.Buffer, i: ArithExpr) -> ArithExpr:
        wide = b.load(x, [i]).cast(INT64)
        product = b.let("product", wide * wide)
        return b.load(x, [product >> 30])

    loop = only_loop(function(looked_up, INT32, INT32))
    assert "vmulhq_s32" in "\n".join(vector_lines(loop, HELIUM, TEXT))


def test_factors_of_different_signs_have_no_vectors() -> None:
    def product(b: Builder, x: tir.Buffer, i: ArithExpr) -> ArithExpr:
        value = b.load(x, [i]).cast(UINT64)
        return (value * (INT32.max + 1) >> 32).cast(UINT32)

    assert has_vectors(only_loop(function(product, UINT32, UINT32)), HELIUM)
    assert not has_vectors(only_loop(function(product, INT32, UINT32)), HELIUM)


@pytest.mark.parametrize("target", [HELIUM, RISCV], ids=lambda each: each.feature)
def test_stores_of_64_bits_have_no_vectors(target: VectorTarget) -> None:
    def place(b: Builder, x: tir.Buffer, i: ArithExpr) -> ArithExpr:
        return i * 2 + 1

    assert not has_vectors(only_loop(function(place, INT32, INT64)), target)


@pytest.mark.parametrize("dtype", [FLOAT16, INT4, UINT4], ids=str)
def test_loops_of_storage_types_have_no_vectors(dtype: DType) -> None:
    def element(b: Builder, x: tir.Buffer, i: ArithExpr) -> ArithExpr:
        return b.load(x, [i]).cast(INT32)

    assert not has_vectors(only_loop(function(element, dtype, INT32)), HELIUM)


@pytest.mark.parametrize("target", [HELIUM, RISCV], ids=lambda each: each.feature)
def test_elements_of_a_table_are_gathered(target: VectorTarget) -> None:
    def looked_up(b: Builder, x: tir.Buffer, i: ArithExpr) -> ArithExpr:
        return b.load(x, [(b.load_i32(x, [i]) & 7).cast(INT64)])

    lines = vector_lines(only_loop(function(looked_up)), target, TEXT)
    assert any("gather" in line or "vluxei32" in line for line in lines)


def test_loops_of_floats_have_no_vectors() -> None:
    def half(b: Builder, x: tir.Buffer, i: ArithExpr) -> ArithExpr:
        return b.load(x, [i]) * 0.5

    assert not has_vectors(only_loop(function(half, FLOAT32, FLOAT32)), HELIUM)


def test_dependent_iterations_have_no_vectors() -> None:
    b = Builder("kernel")
    y = b.buffer_param("y", UINT32, (9,), "inout", 4)
    with b.for_("i", 8) as i:
        b.store(y, [i + 1], b.load(y, [i]) + 1)
    func = b.build()
    assert has_vectors(only_loop(func), HELIUM)
    assert only_loop(mark_vector_loops(func, HELIUM)).kind == "serial"


def test_quotients_are_products() -> None:
    rng = np.random.default_rng(1)
    divisors = [2, 3, 5, 7, 641, 1 << 16, INT32.max, *rng.integers(2, 1 << 31, 50)]
    for divisor in map(int, divisors):
        multiples = divisor * np.arange(-3, 4)
        near = np.concatenate([multiples - 1, multiples, multiples + 1])
        ends = np.array([INT32.min, INT32.min + 1, INT32.max])
        drawn = rng.integers(INT32.min, INT32.max, 200)
        n = np.clip(np.concatenate([near, ends, drawn]), INT32.min, INT32.max)
        factor, amount = reciprocal(divisor)
        assert factor < 1 << 32
        high = (n.astype(object) * factor >> 32).astype(np.int64)
        expected = np.sign(n) * (np.abs(n) // divisor)
        np.testing.assert_array_equal((high >> amount) + (n < 0), expected)
