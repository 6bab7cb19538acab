"""Verifier tests that text cannot express: trees invalid in themselves, and limits."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT32, INT64
from firmwright.base.errors import ModelError
from firmwright.ir import tir
from firmwright.ir.core import Constant, Span
from firmwright.ir.graph.attributes.movement import AxisAttrs
from firmwright.ir.graph.nodes import Call as OpCall
from firmwright.ir.graph.nodes import Function, TensorType, Value
from firmwright.ir.graph.verify import verify_graph
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.builder import Builder, logical_and
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.ir.tir.verify import verify_module
from firmwright.ops.registry import op_table
from tests.unit.ir.verified import verify_prim_func

Y = tir.Buffer("y", INT8, (4,))
ZERO = tir.IntImm(0, INT64)


def problems(body: tir.Stmt, *params: tir.Param) -> list[str]:
    func = tir.PrimFunc(
        "f", (tir.Param(Y, "out"), *params), body, {}, Span("m.tflite", 0, 3, "t")
    )
    with pytest.raises(ModelError) as caught:
        verify_prim_func(func, IRModule("m", {"f": func}), {})
    assert caught.value.where == "m"
    return caught.value.what.splitlines()


def test_names_used_without_declaration_are_reported_with_the_function_and_its_span() -> (
    None
):
    other = tir.Buffer("z", INT8, (4,))
    stores = (
        tir.BufferStore(other, (ZERO,), tir.IntImm(1, INT8)),
        tir.BufferStore(replace(Y, alignment=4), (ZERO,), tir.IntImm(1, INT8)),
        tir.BufferStore(Y, (tir.Var("i", INT64),), tir.IntImm(1, INT8)),
    )
    place = "@f (m.tflite: subgraph 0, node 3 (t)): "
    assert problems(tir.Seq(stores))[:3] == [
        place + "buffer z is not declared here",
        place + "buffer y is not declared here",
        place + "variable i: i64 is not declared here",
    ]


def test_a_name_is_undefined_after_its_scope() -> None:
    text = "func @f(out y: i8[4]) { for i in 0..4 { let k = i y[k] = 0 } y[0] = 1 }"
    func = parse_module(text, fragment=True).functions["f"]
    assert isinstance(func, tir.PrimFunc)
    again = tir.BufferStore(Y, (tir.Var("k", INT64),), tir.IntImm(1, INT8))
    late = replace(func, body=tir.Seq((func.body, again)))
    with pytest.raises(ModelError, match="variable k: i64 is not declared here"):
        verify_prim_func(late, IRModule("m"), {})


def test_a_pointer_covers_its_region_as_often_as_it_is_accessed() -> None:
    operands = (
        Operand("x", "ptr", INT8, "r", 2, times="count"),
        Operand("count", "in", INT32),
    )
    table = {"sum": Intrinsic("sum", operands, lambda x, count: None, "", "")}
    for count in (2, 3):
        b = Builder("f")
        b.evaluate(
            "sum", [b.pointer(b.buffer_param("x", INT8, (4,), "in"), 0, 4), count]
        )
        func = b.build()
        if count == 2:
            verify_prim_func(func, IRModule("m", {"f": func}), table)
            continue
        with pytest.raises(
            ModelError, match="covers 4 elements, 3:i32 times 2 are needed"
        ):
            verify_prim_func(func, IRModule("m", {"f": func}), table)


def test_long_reports_are_truncated() -> None:
    stores = tuple(
        tir.BufferStore(Y, (tir.IntImm(4 + i, INT64),), ZERO) for i in range(30)
    )
    lines = problems(tir.Seq(stores))
    assert len(lines) == 21
    assert lines[-1] == "and 11 more"


def test_a_deeply_nested_index_is_an_error() -> None:
    index: tir.Expr = tir.Var("n", INT64)
    for _ in range(150):
        index = tir.Binary("max", index, ZERO)
    lines = problems(
        tir.BufferStore(Y, (index,), tir.IntImm(0, INT8)),
        tir.Param(tir.Var("n", INT64), "scalar"),
    )
    assert "deeper than 100 operators: bind parts of it by let" in lines[0]


def test_nested_conditions_are_verified_in_bounded_time() -> None:
    n: tir.Expr = tir.Var("n", INT64)
    for _ in range(40):
        n = tir.Select(
            tir.Binary("lt", n, tir.IntImm(3, INT64)), ZERO, tir.IntImm(2, INT64)
        )
    body = tir.BufferStore(Y, (n,), tir.IntImm(0, INT8))
    func = tir.PrimFunc(
        "f", (tir.Param(Y, "out"), tir.Param(tir.Var("n", INT64), "scalar")), body
    )
    verify_prim_func(func, IRModule("m"), {})


def padded_conv(size: int) -> tir.PrimFunc:
    """Return a convolution with padding, as it occurs 31 times in a vision model."""
    b = Builder("conv")
    x = b.buffer_param("x", INT8, (1, size, size, 8), "in")
    y = b.buffer_param("y", INT8, (1, size, size, 8), "out")
    w = b.constant("w", np.ones((8, 3, 3, 8)), INT8)
    with b.for_("oy", size) as oy, b.for_("ox", size) as ox, b.for_("oc", 8) as oc:
        acc = b.reg("acc", INT32)
        b.store(acc, [0], 0)
        with b.for_("ky", 3) as ky, b.for_("kx", 3) as kx:
            iy, ix = oy + ky - 1, ox + kx - 1
            inside = logical_and(iy >= 0, iy < size, ix >= 0, ix < size)
            with b.if_(inside), b.for_("c", 8) as c:
                product = b.load_i32(x, [0, iy, ix, c]) * b.load_i32(w, [oc, ky, kx, c])
                b.store(acc, [0], b.load(acc, [0]) + product)
        b.store(y, [0, oy, ox, oc], b.load(acc, [0]).cast(INT8))
    return b.build()


def test_a_padded_convolution_is_in_bounds_and_one_without_its_guard_is_not() -> None:
    func = padded_conv(12)
    constant = Constant.from_array("conv.w", np.ones((8, 3, 3, 8)), INT8)
    module = IRModule("m", {"conv": func}, {"conv.w": constant})
    verify_module(module, {}, {})
    with pytest.raises(
        ModelError, match=r"x.0, oy . ky - 1, ox . kx - 1, c.: index 1 is in"
    ):
        verify_module(module.with_function(without_guards(func)), {}, {})


def without_guards(func: tir.PrimFunc) -> tir.PrimFunc:
    text = print_module(IRModule("", {func.name: func}), fragment=True)
    loose = parse_module(re.sub(r"if oy [^{]*", "if true ", text), fragment=True)
    result = loose.functions[func.name]
    assert isinstance(result, tir.PrimFunc)
    return result


def test_table_entries_must_match_their_names_and_sizes() -> None:
    func = tir.PrimFunc("f", (), tir.Seq(()))
    wrong = Constant("c", INT8, (4,), b"abc")
    module = IRModule("m", {"g": func}, {"c": wrong}, entry_name="main")
    with pytest.raises(ModelError) as caught:
        verify_module(module, {}, {})
    assert caught.value.what.splitlines() == [
        "function 'f' is stored under the name 'g'",
        "constant c has 3 bytes",
        "the entry 'main' is not a function of the module",
    ]


def test_attributes_of_another_operator_are_a_diagnostic() -> None:
    x = Value("x", TensorType((1,), INT8))
    call = OpCall("pad", (x,), (replace(x, name="y"),), AxisAttrs(axis=0))
    with pytest.raises(
        ModelError, match="pad: the attributes are AxisAttrs, expected PadAttrs"
    ):
        verify_graph(Function("main", (x,), (call,), ()), IRModule("m"), op_table())
