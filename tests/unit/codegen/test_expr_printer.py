"""Expressions in C match the interpreter, without undefined behaviour or a warning."""

from __future__ import annotations

from collections.abc import Mapping

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
    UINT64,
    DType,
)
from firmwright.base.errors import InternalError
from firmwright.codegen.c_expr import float_literal
from firmwright.codegen.c_names import ModelNames, PointerBinding
from firmwright.codegen.expr_printer import ExprPrinter
from firmwright.codegen.used_helpers import UsedHelpers
from firmwright.ir import tir
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.flat_index import flat_index
from firmwright.ir.tir.interpreter import interpret
from firmwright.ir.tir.traversal import walk

INTS = (INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64)
SIZE = 6
INPUTS = {
    kind.name: tir.Buffer(kind.short, kind, (SIZE,), alignment=kind.size_bytes)
    for kind in INTS
}


class Writer:
    """Random expressions of any integer dtype, from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def pick(self, count: int) -> int:
        return int(self.rng.integers(count))

    def value(self, dtype: DType, depth: int) -> tir.Expr:
        if depth == 0 or self.pick(8) == 0:
            return self.leaf(dtype)
        kind = self.pick(10)
        if kind < 5:
            ops = ("add", "sub", "mul", "min", "max", "and", "or", "xor")
            op = ops[self.pick(len(ops))]
            return tir.Binary(
                op, self.value(dtype, depth - 1), self.value(dtype, depth - 1)
            )
        if kind < 6:
            op = ("div", "mod")[self.pick(2)]
            return tir.Binary(
                op, self.value(dtype, depth - 1), tir.IntImm(1 + self.pick(100), dtype)
            )
        if kind < 8:
            op = ("shl", "shr")[self.pick(2)]
            amount: tir.Expr = tir.IntImm(self.pick(min(dtype.bits, 32) - 1), dtype)
            if self.pick(3) == 0:
                amount = tir.Binary("and", self.leaf(dtype), tir.IntImm(7, dtype))
            return tir.Binary(op, self.value(dtype, depth - 1), amount)
        if kind < 9:
            cond = self.condition(depth - 1)
            return tir.Select(
                cond, self.value(dtype, depth - 1), self.value(dtype, depth - 1)
            )
        return tir.Cast(dtype, self.value(INTS[self.pick(len(INTS))], depth - 1))

    def condition(self, depth: int) -> tir.Expr:
        kind = self.pick(6)
        if depth > 0 and kind < 2:
            op = ("and", "or", "xor")[self.pick(3)]
            return tir.Binary(op, self.condition(depth - 1), self.condition(depth - 1))
        if depth > 0 and kind == 2:
            return tir.Not(self.condition(depth - 1))
        dtype = INTS[self.pick(len(INTS))]
        op = ("lt", "le", "gt", "ge", "eq", "ne")[self.pick(6)]
        depth = max(depth - 1, 0)
        a, b = self.value(dtype, depth), self.value(dtype, depth)
        return (
            tir.Binary(op, a, b) if a != b else self.condition(depth)
        )  # compilers warn of x < x

    def leaf(self, dtype: DType) -> tir.Expr:
        kind = self.pick(8)
        if kind < 5:
            return tir.BufferLoad(
                INPUTS[dtype.name], (tir.IntImm(self.pick(SIZE), INT32),)
            )
        if kind < 7:
            return tir.IntImm(
                self.pick(100) if not dtype.signed else self.pick(100) - 50, dtype
            )
        return tir.IntImm((dtype.min, dtype.max)[self.pick(2)], dtype)


def kernel(stores: list[tuple[DType, tir.Expr]]) -> Builder:
    """One kernel that stores each expression in the next element of its dtype's output.

    The runtime knows no uint64 tensors, so those are windows of int64 ones.
    """
    b = Builder("k")
    counts = {d.name: sum(d is e for e, _ in stores) for d in (*INTS, BOOL)}
    outs: dict[str, tir.Buffer] = {}
    for d in (*INTS, BOOL):
        carrier = INT64 if d is UINT64 else d
        suffix = "_raw" if d is UINT64 else ""
        count, size = max(1, counts[d.name]), d.size_bytes
        y = b.buffer_param(f"o_{d.short}{suffix}", carrier, (count,), "out", size)
        x = None
        if d is not BOOL:
            x = b.buffer_param(f"{d.short}{suffix}", carrier, (SIZE,), "in", size)
        if d is UINT64 and x is not None:
            x = b.view("u64", x, 0, (SIZE,), dtype=d, alignment=8)
            y = b.view("o_u64", y, 0, (count,), dtype=d, access="rw", alignment=8)
        assert x is None or x == INPUTS[d.name]
        outs[d.name] = y
    next_index = dict.fromkeys(counts, 0)
    for dtype, node in stores:
        b.store(outs[dtype.name], [tir.IntImm(next_index[dtype.name], INT32)], node)
        next_index[dtype.name] += 1
    return b


def interpreted(b: Builder, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    func = b.build()
    args: dict[str, np.ndarray] = dict(inputs)
    for param in func.params:
        if param.role == "out":
            assert isinstance(param.value, tir.Buffer)
            args[param.name] = np.zeros(param.value.shape, param.value.dtype.np)
    interpret(func, args, {})
    return {name: value for name, value in args.items() if name.startswith("o_")}


def _literals_alone(node: tir.Expr) -> bool:
    """Whether some operation has only literals, which `simplify` would have folded."""
    return any(
        isinstance(part, tir.Binary | tir.Cast | tir.Select | tir.Not)
        and not any(isinstance(below, tir.BufferLoad) for below in walk(part))
        for part in walk(node)
    )


def defined(dtype: DType, node: tir.Expr, inputs: Mapping[str, np.ndarray]) -> bool:
    """Whether TIR gives the expression a meaning: nothing in it overflows."""
    try:
        interpreted(kernel([(dtype, node)]), inputs)
    except InternalError:
        return False
    return True


def numbers(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = {}
    for dtype in INTS:
        small = rng.integers(0 if not dtype.signed else -20, 20, SIZE).astype(dtype.np)
        small[:2] = (dtype.min, dtype.max)
        raw = dtype is UINT64
        values["u64_raw" if raw else dtype.short] = (
            small.view(np.int64) if raw else small
        )
    return values


@pytest.mark.sampled(2)
@pytest.mark.host_c
@pytest.mark.parametrize("seed", [0, 1])
def test_random_integer_expressions_equal_the_interpreter(
    run_kernel, seed: int
) -> None:
    writer, inputs = Writer(seed), numbers(seed)
    stores: list[tuple[DType, tir.Expr]] = []
    while len(stores) < 160:
        dtype = (*INTS, BOOL)[len(stores) % 9]
        depth = 1 + writer.pick(4)
        node = writer.condition(depth) if dtype is BOOL else writer.value(dtype, depth)
        if not _literals_alone(node) and defined(dtype, node, inputs):
            stores.append((dtype, node))
    expected = interpreted(kernel(stores), inputs)
    for name, value in run_kernel(kernel(stores), inputs).items():
        np.testing.assert_array_equal(value, expected[name].view(value.dtype))


# ---- text ----------------------------------------------------------------------------


def printed(node: tir.Expr) -> str:
    printer = ExprPrinter(ModelNames("m"), {}, UsedHelpers())
    for name, dtype in (("x", INT8), ("w", INT32), ("u", UINT32), ("wide", INT64)):
        buffer = tir.Buffer(name, dtype, (9,), alignment=dtype.size_bytes)
        printer.places[name] = PointerBinding(name, buffer)
    printer.variables.update({name: name for name in ("i", "j", "n")})
    return printer.text(node)


VI, VJ = tir.Var("i", INT32), tir.Var("j", INT32)
X = tir.BufferLoad(tir.Buffer("x", INT8, (9,)), (VI,))


def imm(value: int, dtype: DType = INT32) -> tir.IntImm:
    return tir.IntImm(value, dtype)


def plus(a: tir.Expr, b: tir.Expr) -> tir.Expr:
    return tir.Binary("add", a, b)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (plus(tir.Cast(INT32, X), imm(-3)), "x[i] - 3"),
        (tir.Binary("sub", tir.Cast(INT32, X), imm(-128)), "x[i] + 128"),
        (tir.Binary("sub", imm(0), VI), "-i"),
        (tir.Binary("mul", plus(VI, VJ), imm(5)), "(i + j) * 5"),
        (tir.Binary("sub", VI, tir.Binary("sub", VJ, imm(1))), "i - (j - 1)"),
        (tir.Binary("shl", VI, imm(4)), "(int32_t)((uint32_t)i << 4)"),
        (tir.Binary("shl", VI, VJ), "(int32_t)((uint32_t)i << j)"),
        (tir.Binary("shr", plus(VI, VJ), imm(2)), "(i + j) >> 2"),
        (tir.Binary("mul", tir.Cast(INT64, VI), tir.Cast(INT64, VJ)), "(int64_t)i * j"),
        (tir.Binary("or", tir.Binary("and", VI, imm(1)), VJ), "(i & 1) | j"),
        (
            tir.Binary(
                "and", tir.Binary("ge", VI, imm(0)), tir.Binary("lt", VI, imm(5))
            ),
            "i >= 0 && i < 5",
        ),
        (tir.Not(tir.Binary("eq", VI, VJ)), "!(i == j)"),
        (
            tir.Select(tir.Binary("lt", VI, VJ), imm(1), plus(VI, imm(1))),
            "i < j ? 1 : i + 1",
        ),
        (tir.Cast(INT8, plus(VI, imm(1))), "(int8_t)(i + 1)"),
        (tir.Cast(FLOAT32, tir.Cast(INT32, X)), "(float)x[i]"),
        (tir.Binary("min", VI, tir.Cast(INT32, X)), "m_min_i32(i, x[i])"),
        (imm(-(1 << 31)), "INT32_MIN"),
        (imm(1 << 40, INT64), "INT64_C(1099511627776)"),
    ],
)
def test_text_has_no_redundant_casts_or_parentheses(node: tir.Expr, text: str) -> None:
    assert printed(node) == text


def test_indices_are_row_major_with_constants_folded() -> None:
    buffer = tir.Buffer("x", INT8, (1, 5, 6, 64))
    index = (imm(0), VI, VJ, imm(3))
    assert printed(flat_index(buffer, index)) == "(i * 6 + j) * 64 + 3"
    strided = tir.Buffer("x", INT8, (5, 6), strides=(320, 64))
    assert printed(flat_index(strided, (VI, VJ))) == "i * 320 + j * 64"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.0f"), (0.1, "0.1f"), (-2.5e-30, "-2.5e-30f"), (1e20, "1e+20f")],
)
def test_floats_are_the_shortest_text_that_reads_back(value: float, text: str) -> None:
    assert float_literal(value, FLOAT32).text == text
    assert np.float32(text.rstrip("f")) == np.float32(value)


def test_an_unknown_intrinsic_is_a_bug_with_its_name() -> None:
    with pytest.raises(InternalError, match="the target has no intrinsic smlad"):
        printed(tir.IntrinsicCall("smlad", (), INT32))
