"""Tests of the interpreter's error messages."""

from typing import Any

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, INT64, UINT32
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.core import Constant, Span
from firmwright.ir.tir.builder import Builder, binary_expr, call_intrinsic, logical_and
from firmwright.ir.tir.interpreter import interpret
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from tests.unit.ir.interpreted import TABLE, doubling, run


def failing(b: Builder, **args: Any) -> str:
    func = b.build()
    with pytest.raises(InternalError) as caught:
        interpret(func, args, TABLE, constants=b.constants)
    return str(caught.value)


def test_an_index_out_of_bounds_names_function_buffer_and_index() -> None:
    b = Builder("f", Span("m.tflite", 0, 3, "t"))
    x, y = (
        b.buffer_param("x", INT8, (4, 3), "in"),
        b.buffer_param("y", INT8, (3,), "out"),
    )
    with b.for_("i", 3) as i:
        b.store(y, [i], b.load(x, [0, i + 1]))
    assert failing(b, x=np.zeros((4, 3), np.int8), y=np.zeros(3, np.int8)) == (
        "@f (m.tflite: subgraph 0, node 3 (t)): index 3 of x is outside of dimension 1, "
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


def test_an_off_by_one_guard_is_detected() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT8, (3,), "in"), b.buffer_param("y", INT8, (5,), "out")
    with b.for_("i", 5) as i, b.if_(logical_and(i >= 1, i <= 4)):
        b.store(y, [i], b.load(x, [i - 1]))
    message = failing(b, x=np.zeros(3, np.int8), y=np.zeros(5, np.int8))
    assert message.startswith("@f: index 3 of x is outside of dimension 0")


def overflow_case(op: str, in_lanes: bool) -> str:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT32, (2,), "in"),
        b.buffer_param("y", INT32, (2,), "out"),
    )
    if in_lanes:
        with b.for_("i", 2) as i:
            b.store(y, [i], binary_expr(op, b.load(x, [i]), 70000))  # type: ignore[arg-type]  # a literal
    else:
        b.store(y, [1], binary_expr(op, b.load(x, [1]), 70000))  # type: ignore[arg-type]  # a literal
    return failing(b, x=np.array([1, 2**31 - 1], np.int32), y=np.zeros(2, np.int32))


@pytest.mark.parametrize("in_lanes", [True, False])
@pytest.mark.parametrize("op", ["add", "mul"])
def test_integer_overflow_is_an_error(op: str, in_lanes: bool) -> None:
    assert f"@f: {op} overflows int32" in overflow_case(op, in_lanes)


def test_overflow_wraps_when_it_is_not_checked() -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT32, (2,), "in"),
        b.buffer_param("y", INT32, (2,), "out"),
    )
    with b.for_("i", 2) as i:
        b.store(y, [i], b.load(x, [i]) + 1)
    out = np.zeros(2, np.int32)
    args = {"x": np.array([2**31 - 1, 5], np.int32), "y": out}
    interpret(b.build(), args, {}, check_overflow=False)
    assert out.tolist() == [-(2**31), 6]


def test_64_bit_overflow_is_an_error() -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT64, (2,), "in"),
        b.buffer_param("y", INT64, (2,), "out"),
    )
    with b.for_("i", 2) as i:
        b.store(y, [i], b.load(x, [i]) * b.load(x, [i]))
    message = failing(b, x=np.array([3, 2**40], np.int64), y=np.zeros(2, np.int64))
    assert "mul overflows int64" in message


def test_division_by_zero_is_an_error() -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT32, (2,), "in"),
        b.buffer_param("y", INT32, (2,), "out"),
    )
    with b.for_("i", 2) as i:
        b.store(y, [i], binary_expr("div", 10, b.load(x, [i])))
    assert (
        failing(b, x=np.array([5, 0], np.int32), y=np.zeros(2, np.int32))
        == "@f: div by zero"
    )


def test_shifts_out_of_range_are_errors() -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", UINT32, (2,), "in"),
        b.buffer_param("y", UINT32, (2,), "out"),
    )
    with b.for_("i", 2) as i:
        b.store(y, [i], binary_expr("shl", 1, b.load(x, [i])))
    message = failing(b, x=np.array([5, 32], np.uint32), y=np.zeros(2, np.uint32))
    assert message.startswith("@f: shl by")


def test_a_float_beyond_the_integers_is_an_error() -> None:
    b = Builder("f")
    x, y = (
        b.buffer_param("x", FLOAT32, (2,), "in"),
        b.buffer_param("y", INT8, (2,), "out"),
    )
    with b.for_("i", 2) as i:
        b.store(y, [i], b.load(x, [i]).cast(INT8))
    out = np.zeros(2, np.int8)
    run(b, x=np.array([-128.9, 127.9], np.float32), y=out)
    assert out.tolist() == [-128, 127]
    func = b.build()
    with pytest.raises(InternalError, match="a float does not fit int8"):
        interpret(
            tir.PrimFunc("f", func.params, float_body(func)),
            {"x": np.array([128.0, np.nan], np.float32), "y": out},
            {},
        )


def float_body(func: tir.PrimFunc) -> Any:
    x, y = (param.value for param in func.params)
    assert isinstance(x, tir.Buffer)
    assert isinstance(y, tir.Buffer)
    i = tir.Var("i", INT64)
    store = tir.BufferStore(y, (i,), tir.Cast(INT8, tir.BufferLoad(x, (i,))))
    return tir.For(i, tir.IntImm(0, INT64), tir.IntImm(2, INT64), store)


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
    t = b.allocate("t", INT8, (4,))
    with b.for_("i", 4) as i:
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
    v = c.view("v", w, 0, (2,), access="w")
    c.store(v, [0], 1)
    assert failing(c) == "@g: w is read-only and a pointer would write it"


def test_pointers_stay_inside_their_buffer() -> None:
    b = Builder("f")
    x, y = b.buffer_param("x", INT8, (8,), "in"), b.buffer_param("y", INT8, (2,), "out")
    with b.for_("i", 2) as i:
        v = b.view("v", x, i * 5, (4,))
        b.store(y, [i], b.load(v, [3]))
    message = failing(b, x=np.zeros(8, np.int8), y=np.zeros(2, np.int8))
    assert "are not inside x, which has 8." in message


def test_a_view_must_fit_in_its_source() -> None:
    x, v = tir.Buffer("x", INT8, (8,)), tir.Buffer("v", INT32, (2,))
    pointer = tir.AccessPtr(x, tir.IntImm(0, INT64), 7, "r")
    func = tir.PrimFunc(
        "f", (tir.Param(x, "in"),), tir.DeclBuffer(v, pointer, tir.Seq(()))
    )
    with pytest.raises(InternalError, match="the view v needs 8 bytes of 7"):
        interpret(func, {"x": np.zeros(8, np.int8)}, {})


def test_calls_pass_enough_memory() -> None:
    z = tir.Buffer("z", INT8, (4,))
    pointer = tir.AccessPtr(z, tir.IntImm(0, INT64), 4, "rw")
    main = tir.PrimFunc(
        "run", (tir.Param(z, "inout"),), tir.PrimFuncCall("double", (pointer, pointer))
    )
    with pytest.raises(
        InternalError, match="@double, parameter x: needs 8 bytes, gets 4"
    ):
        interpret(
            main, {"z": np.zeros(4, np.int8)}, {}, functions={"double": doubling()}
        )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"x": np.zeros(8, np.int8)}, "parameters are"),
        ({"x": np.zeros(8, np.int16), "y": np.zeros(8, np.int8)}, "is int16, not int8"),
        (
            {"x": np.zeros(4, np.int8), "y": np.zeros(8, np.int8)},
            "needs 8 bytes, gets 4",
        ),
        ({"x": 3, "y": np.zeros(8, np.int8)}, "an array is expected"),
        (
            {"x": np.zeros(8, np.int8), "y": np.zeros(16, np.int8)[::2]},
            "is not contiguous",
        ),
    ],
)
def test_arguments_must_fit_the_parameters(args: dict[str, Any], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        interpret(doubling(), args, {})


def test_unknown_names_are_errors() -> None:
    with pytest.raises(
        InternalError, match="the function missing is not in the module"
    ):
        interpret(tir.PrimFunc("f", (), tir.PrimFuncCall("missing", ())), {}, {})
    with pytest.raises(
        InternalError, match="the intrinsic missing is not in the table"
    ):
        interpret(
            tir.PrimFunc(
                "f", (), tir.Evaluate(tir.IntrinsicCall("missing", (), INT32))
            ),
            {},
            {},
        )
    b = Builder("f")
    b.constant("w", np.zeros(2), INT8)
    with pytest.raises(InternalError, match=r"the constant f\.w is not in the table"):
        interpret(b.build(), {}, {})


def test_a_result_that_does_not_fit_is_an_error() -> None:
    wide = Intrinsic(
        "wide",
        (Operand("x", "in", INT32),),
        lambda x: x.astype(np.int64) << 20,
        "",
        "",
        INT32,
    )
    b = Builder("f")
    x, y = (
        b.buffer_param("x", INT32, (2,), "in"),
        b.buffer_param("y", INT32, (2,), "out"),
    )
    with b.for_("i", 2) as i:
        b.store(y, [i], call_intrinsic("wide", [b.load(x, [i])], INT32))
    args = {"x": np.array([1, 4096], np.int32), "y": np.zeros(2, np.int32)}
    with pytest.raises(InternalError, match="the result of wide does not fit int32"):
        interpret(b.build(), args, {"wide": wide})


def test_constants_must_match_their_buffer() -> None:
    b = Builder("f")
    b.constant("w", np.zeros(2), INT8)
    wrong = {"f.w": Constant.from_array("f.w", np.zeros(2), INT16)}
    with pytest.raises(
        InternalError, match=r"the constant f\.w does not match the declaration of w"
    ):
        interpret(b.build(), {}, {}, constants=wrong)


def test_kernels_allocate_activations_too() -> None:
    t = tir.Buffer("t", INT8, (8,))
    x, y = tir.Buffer("x", INT8, (8,)), tir.Buffer("y", INT8, (8,))

    def step(source: tir.Buffer, target: tir.Buffer) -> tir.PrimFuncCall:
        zero = tir.IntImm(0, INT64)
        return tir.PrimFuncCall(
            "double",
            (tir.AccessPtr(source, zero, 8, "r"), tir.AccessPtr(target, zero, 8, "w")),
        )

    body = tir.Allocate(t, tir.Seq((step(x, t), step(t, y))), "activation")
    main = tir.PrimFunc("run", (tir.Param(x, "in"), tir.Param(y, "out")), body)
    out = np.zeros(8, np.int8)
    values = np.arange(8, dtype=np.int8)
    interpret(main, {"x": values, "y": out}, {}, functions={"double": doubling()})
    assert out.tolist() == (values * 4).tolist()
