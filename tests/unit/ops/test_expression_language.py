"""Formulas: parsing, substitution, composition, and agreement of numpy and TIR."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import BOOL, FLOAT32, INT32, UINT8
from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.graph.attributes.values import ExpressionAttrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.interpreter import Interpreter
from firmwright.ops.expression_language import (
    evaluate_in_numpy,
    parse,
    result_dtype,
)
from firmwright.ops.formula_texts import compose_expressions, substitute_names
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table

FLOATS = np.array([-3.5, -1.0, -0.0, 0.25, 1.0, 7.0], np.float32)
WHOLE = np.array([-7, -1, 0, 3, 5, 100], np.int32)
LEAST = np.array([-(1 << 31), -7, -1, 0, 1, (1 << 31) - 1], np.int32)


@pytest.mark.parametrize(
    ("formula", "inputs"),
    [
        ("a / (1.0 + abs(a))", [FLOATS]),
        ("t = exp(-abs(a)); log1p(t) + max(a, 0.0)", [FLOATS]),
        ("where(a < 0.0, b * expm1(a), a)", [FLOATS, np.float32(0.5)]),
        ("int8(min(max(rint(a / 0.1) + 3.0, -128.0), 127.0))", [FLOATS]),
        (
            "rest = a % b; where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)",
            [WHOLE, np.full(6, 4, np.int32)],
        ),
        ("(a / b) << 1 | ~b", [WHOLE, np.full(6, 3, np.int32)]),
        ("not (a == b) and a > 0", [WHOLE, WHOLE[::-1].copy()]),
        ("(a != a) | (a == inf) | (a == -inf)", [FLOATS]),
        ("pow(abs(a), 0.5) - sqrt(abs(a))", [FLOATS]),
        ("a / 0 - a % 0", [LEAST]),
        ("a / -1 ^ a % -1", [LEAST]),
        ("t = a * b; (t + a) / b - -t", [LEAST, LEAST[::-1].copy()]),
        ("a << 3 | abs(a) * -5", [LEAST]),
    ],
)
def test_kernel_equals_reference(formula: str, inputs: list[np.ndarray]) -> None:
    arrays = [np.broadcast_to(x, (6,)).copy() for x in inputs]
    kinds = {"float32": FLOAT32, "int32": INT32}
    types = tuple(TensorType((6,), kinds[x.dtype.name]) for x in arrays)
    opdef = op_table()["expression"]
    call = OpCall("expression", types, (types[0],), ExpressionAttrs(formula=formula))
    call = OpCall(
        "expression", types, opdef.infer(call), ExpressionAttrs(formula=formula)
    )
    (expected,) = opdef.reference(call, arrays)
    kernel = Kernel("kernel", call)
    opdef.lower(call, kernel)
    func = kernel.build(op="expression")
    names = [param.name for param in func.params]
    result = np.zeros(call.output.shape, call.output.dtype.np)
    interpreter = Interpreter({func.name: func}, BASE_INTRINSICS, kernel.constants)
    interpreter.run(func.name, dict(zip(names, [*arrays, result], strict=True)))
    np.testing.assert_array_equal(result, expected)


def test_result_type_follows_from_the_formula() -> None:
    a = ArithExpr(tir.Var("a", FLOAT32))
    assert result_dtype("a + 1.0", [a]) == FLOAT32
    assert result_dtype("a > 1.0", [a]) == BOOL
    assert result_dtype("uint8(a)", [a]) == UINT8


def test_substitution_replaces_names_but_not_functions() -> None:
    assert substitute_names("max(a, b) + exp(b)", {"a": "c", "b": "(c * 2.0)"}) == (
        "max(c, c * 2.0) + exp(c * 2.0)"
    )


def test_composed_formula_is_inlined_or_bound_to_a_name() -> None:
    assert (
        compose_expressions("a + b", {"a": "a", "b": "c"}, "max(a, 0.0)", {}, "a")
        == "max(a + c, 0.0)"
    )
    text = compose_expressions("a + b", {"a": "a", "b": "c"}, "b * tanh(b)", {}, "b")
    assert text == "part = a + c; part * tanh(part)"
    inner = compose_expressions(
        "t = exp(a); t / (t + 1.0)", {"a": "b"}, "t = a * 2.0; t + c", {"c": "c"}, "a"
    )
    values = np.float32(0.3), np.float32(0.7), np.float32(-2)
    first = np.exp(values[1]) / (np.exp(values[1]) + 1)
    np.testing.assert_allclose(
        evaluate_in_numpy(inner, values), 2 * first + values[2], rtol=1e-6
    )


@pytest.mark.parametrize(
    "text", ["a +", "import os", "a = 1", "a.b", "unknown(a)", "[a]"]
)
def test_invalid_formulas_are_rejected(text: str) -> None:
    with pytest.raises(InternalError):
        result_dtype(text, [ArithExpr(tir.Var("a", FLOAT32))])


def test_integer_division_truncates_toward_zero() -> None:
    found = evaluate_in_numpy(
        "a / b", [np.array([-7, 7, -6], np.int32), np.array([2, -2, 3], np.int32)]
    )
    np.testing.assert_array_equal(found, [-3, -3, -2])


def test_parsing_keeps_the_order_of_assignments() -> None:
    assigned, _ = parse("p = a; q = p + p; q * p")
    assert [name for name, _ in assigned] == ["p", "q"]
