"""Statements: registers, windows, loops, intrinsics; by numbers, and some by text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from firmwright.base.dtypes import (
    FLOAT32,
    HANDLE,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT32,
    DType,
)
from firmwright.base.errors import InternalError
from firmwright.codegen.emit_options import EmitOptions
from firmwright.codegen.model_emitter import emit_model
from firmwright.ir import tir
from firmwright.ir.tir.builder import Builder, call_intrinsic, maximum, minimum, select
from firmwright.ir.tir.interpreter import interpret
from firmwright.ir.tir.intrinsic import Intrinsic, Operand


def io(
    b: Builder, dtype: DType, count: int, out: DType | None = None, outputs: int = 0
) -> Any:
    """The kernel's `x` and `y`."""
    y_type = out or dtype
    x = b.buffer_param("x", dtype, (count,), "in", dtype.size_bytes)
    return x, b.buffer_param("y", y_type, (outputs or count,), "out", y_type.size_bytes)


def source(
    module: Any, intrinsics: Any = None, options: EmitOptions | None = None
) -> str:
    return str(
        emit_model(module, intrinsics or {}, options or EmitOptions()).files[
            "model/m.c"
        ]
    )


def body(text: str, kernel: str) -> str:
    """The lines between the braces of a kernel, unindented."""
    start = text.index(f"void m_{kernel}(")
    lines = text[
        text.index("\n{\n", start) + 3 : text.index("\n}\n", start)
    ].splitlines()
    return "\n".join(line[4:] for line in lines) + "\n"


def sum_kernel() -> Builder:
    b = Builder("sums")
    x, y = io(b, INT8, 8, INT32, 2)
    acc = b.reg("acc", INT32, 2)
    b.store(acc, [0], 5)
    with b.for_("i", 8) as i:
        b.store(acc, [0], b.load(acc, [0]) + b.load_i32(x, [i]))
        with b.if_(i.equal(0)):
            b.store(acc, [1], b.load_i32(x, [i]))
        with b.else_():
            b.store(acc, [1], maximum(b.load(acc, [1]), b.load_i32(x, [i])))
    for lane in range(2):
        b.store(y, [lane], b.load(acc, [lane]))
    return b


def test_registers_are_scalars_declared_where_they_are_first_written(module_of) -> None:
    assert body(source(module_of(sum_kernel())), "sums") == (
        "int32_t acc0 = 5;\n"
        "int32_t acc1;\n"
        "for (int64_t i = 0; i < 8; ++i) {\n"
        "    acc0 += x[i];\n"
        "    if (i == 0) {\n"
        "        acc1 = x[i];\n"
        "    } else {\n"
        "        acc1 = m_max_i32(acc1, x[i]);\n"
        "    }\n"
        "}\n"
        "y[0] = acc0;\n"
        "y[1] = acc1;\n"
    )


@pytest.mark.host_c
def test_registers_that_live_through_a_loop_keep_their_values() -> None:
    func = sum_kernel().build()
    y = np.zeros(2, np.int32)
    x = np.array([3, -7, 100, 4, 5, 6, 7, 8], np.int8)
    interpret(func, {"x": x, "y": y}, {})
    assert list(y) == [5 + int(x.sum()), 100]


def words(alignment: int) -> Builder:
    """Reads and writes 32-bit words of bytes at an odd offset when `alignment` is 1."""
    b = Builder("words")
    x, y = io(b, INT8, 17)
    start = 1 if alignment == 1 else 4
    same = {"dtype": UINT32, "alignment": alignment}
    w = b.view("w", x, start, (3,), **same)
    o = b.view("o", y, start, (3,), access="rw", **same)
    with b.for_("i", 3) as i:
        b.store(o, [i], b.load(w, [i]) + 1)
    return b


@pytest.mark.host_c
@pytest.mark.parametrize("alignment", [1, 4])
def test_bytes_may_be_read_as_words_at_any_declared_alignment(
    run_kernel, alignment
) -> None:
    x = np.arange(17, dtype=np.int8)
    got = run_kernel(words(alignment), {"x": x})["y"]
    start = 1 if alignment == 1 else 4
    expected = np.frombuffer(x.tobytes()[start : start + 12], "<u4") + 1
    assert got.tobytes()[start : start + 12] == expected.tobytes()


def test_an_aligned_window_is_a_pointer_to_an_alias_type(module_of) -> None:
    text = source(module_of(words(4)))
    assert "const m_u32 *w = (const void *)(x + 4);" in text
    assert "    o[i] = w[i] + 1u;" in text
    assert "m_load_u32" not in text


def test_an_unaligned_window_is_read_through_a_function(module_of) -> None:
    text = source(module_of(words(1)))
    assert "const uint8_t *w = (const uint8_t *)(x + 1);" in text
    assert "m_store_u32(o + i * 4, m_load_u32(w + i * 4) + 1u);" in text


def test_unused_buffers_are_not_declared(module_of) -> None:
    b = Builder("k")
    x, y = io(b, INT8, 4)
    b.constant("unused", np.zeros(3), INT8)
    b.reg("spare", INT32)
    b.view("view", x, 0, (4,))
    b.let("n", 7)
    b.store(y, [0], 1)
    assert body(source(module_of(b)), "k") == "y[0] = 1;\n(void)x;\n"


@pytest.mark.parametrize(
    ("table", "limited"),
    [
        ([0, 3, 2, 3], "y[table[i]] = x[i];"),
        ([0, 4, 2, 3], "y[m_min_i32(table[i], 3)] = x[i];"),
    ],
)
def test_a_limit_that_no_element_of_a_table_exceeds_is_not_printed(
    table: list[int], limited: str, run_kernel, module_of
) -> None:
    def kernel() -> Builder:
        b = Builder("k")
        x, y = io(b, INT8, 4)
        order = b.constant("table", np.array(table), UINT8)
        with b.for_("i", 4) as i:
            b.store(y, [minimum(b.load(order, [i]).cast(INT32), 3)], b.load(x, [i]))
        return b

    assert limited in source(module_of(kernel()))
    values = np.array([5, 6, 7, 8], np.int8)
    expected = {
        min(place, 3): value
        for place, value in zip(table, values.tolist(), strict=True)
    }
    got = run_kernel(kernel(), {"x": values})["y"]
    assert {place: got[place] for place in expected} == expected


@pytest.mark.parametrize(("mask", "printed"), [(3, "table[i]"), (5, "table[i] & 5")])
def test_a_mask_of_low_bits_that_changes_no_element_is_not_printed(
    mask: int, printed: str, module_of
) -> None:
    b = Builder("k")
    _, y = io(b, INT8, 8)
    order = b.constant("table", np.array([0, 3, 2, 1]), UINT8)
    with b.for_("i", 4) as i:
        b.store(y, [b.load(order, [i]).cast(INT32) & mask], 1)
    assert f"y[{printed}] = 1;" in source(module_of(b))


def test_notes_of_a_schedule_are_lines_of_the_comment_once(module_of) -> None:
    b = Builder("k")
    _, y = io(b, INT8, 4)
    b.store(y, [0], 1)
    comment = "4 -> 4\nthe last block is moved\n4 -> 4"
    assert "/* 4 -> 4\n * the last block is moved\n * x int8[4]" in source(
        module_of(b, comment=comment)
    )


def test_colliding_names_in_a_block_are_numbered(module_of) -> None:
    b = Builder("k")
    x, y = io(b, INT8, 4)
    for name in ("int", "x"):
        value = b.let(name, b.load_i32(x, [0]))
        b.store(y, [0], value.cast(INT8))
    text = body(source(module_of(b)), "k")
    assert "const int32_t int_ = x[0];" in text
    assert "const int32_t x_1 = x[0];" in text


def test_the_bounds_of_a_loop_are_read_once(module_of) -> None:
    b = Builder("k")
    x, y = io(b, INT32, 4)
    limit = b.reg("limit", INT64)
    b.store(limit, [0], b.load(x, [0]).cast(INT64))
    with b.for_("i", b.load(limit, [0])) as i:
        b.store(limit, [0], 0)
        b.store(y, [i], 1)
    text = body(source(module_of(b)), "k")
    assert "const int64_t i_end = limit;\nfor (int64_t i = 0; i < i_end; ++i) {" in text


def test_else_branches_that_only_test_again_are_one_chain(module_of) -> None:
    b = Builder("k")
    x, y = io(b, INT8, 4)
    first = b.load(x, [0])
    with b.if_(first < 0):
        b.store(y, [0], 1)
    with b.else_():
        with b.if_(first.equal(0)):
            b.store(y, [0], 2)
        with b.else_():
            b.store(y, [0], 3)
    assert "} else if (x[0] == 0) {\n    y[0] = 2;\n} else {\n" in body(
        source(module_of(b)), "k"
    )


@pytest.mark.host_c
def test_while_loops_and_lets_compute(run_kernel) -> None:
    b = Builder("collatz")
    x, y = io(b, INT32, 3)
    with b.for_("i", 3) as i:
        n, steps = b.reg("n", INT32), b.reg("steps", INT32)
        b.store(n, [0], b.load(x, [i]))
        b.store(steps, [0], 0)
        with b.while_(b.load(n, [0]) > 1):
            half = b.let("half", b.load(n, [0]) / 2)
            odd = (b.load(n, [0]) % 2).equal(1)
            b.store(n, [0], select(odd, b.load(n, [0]) * 3 + 1, half))
            b.store(steps, [0], b.load(steps, [0]) + 1)
        b.store(y, [i], b.load(steps, [0]))
    got = run_kernel(b, {"x": np.array([1, 7, 27], np.int32)})["y"]
    assert list(got) == [0, 16, 111]


@pytest.mark.host_c
def test_float_kernels_equal_numpy_bit_for_bit(run_kernel) -> None:
    b = Builder("affine")
    x, y = io(b, FLOAT32, 64)
    w = b.constant("w", np.linspace(-3, 3, 64, dtype=np.float32), FLOAT32)
    with b.for_("i", 64) as i:
        value = b.load(x, [i]) * b.load(w, [i]) + 0.1
        b.store(y, [i], maximum(minimum(value, 6.0), 0.0))
    data = np.random.default_rng(3).normal(size=64).astype(np.float32)
    weights = np.linspace(-3, 3, 64, dtype=np.float32)
    expected = np.clip(data * weights + np.float32(0.1), np.float32(0), np.float32(6))
    np.testing.assert_array_equal(run_kernel(b, {"x": data})["y"], expected)


@pytest.mark.host_c
@pytest.mark.parametrize("kind", [INT8, UINT8, INT16])
@pytest.mark.parametrize("shift", [0, 3])
def test_a_clamp_to_a_whole_type_saturates(run_kernel, kind: DType, shift: int) -> None:
    b = Builder("narrow")
    x, y = io(b, INT32, 8, kind)
    with b.for_("i", 8) as i:
        value = b.load(x, [i]) >> shift
        b.store(y, [i], minimum(maximum(value, kind.min), kind.max).cast(kind))
    data = np.array([0, -1, 127, 128, -129, 40000, -(2**31), 2**31 - 1], np.int32)
    expected = np.clip(data >> shift, kind.min, kind.max).astype(kind.np)
    np.testing.assert_array_equal(run_kernel(b, {"x": data})["y"], expected)


# ---- intrinsics ----------------------------------------------------------------------

MAC = Intrinsic(
    "mac4",
    (
        Operand("acc", "inout", INT32),
        Operand("high", "out", INT32),
        Operand("p", "ptr", INT8, "r", 4),
        Operand("q", "ptr", INT32, "r", 4),
    ),
    lambda *_: None,
    portable="""\
for (int32_t i = 0; i < 4; ++i) {
    acc += p[i] * q[i];
}
high = acc;""",
    doc="acc += p . q; high = acc.",
)
DOUBLE = Intrinsic(
    "twice",
    (Operand("x", "in", INT32),),
    lambda x: x * 2,
    portable="return x * 2;",
    doc="x * 2.",
    requires="dsp",
    text={
        "gnu": 'int32_t y;\n__asm__("qadd %0, %1, %1" : "=r"(y) : "r"(x));\nreturn y;'
    },
    result=INT32,
)


def mac_kernel() -> Builder:
    b = Builder("mac")
    x, y = io(b, INT8, 8, INT32, 2)
    w = b.constant("w", np.arange(8) * 1000, INT32)
    acc, high = b.reg("acc", INT32), b.reg("high", INT32)
    b.store(acc, [0], 1)
    with b.for_("i", 2) as i:
        registers = tuple(
            tir.BufferLoad(r, (tir.IntImm(0, INT32),)) for r in (acc, high)
        )
        pointers = (b.pointer(x, i * 4, 4), b.pointer(w, i * 4, 4))
        b.append(
            tir.Evaluate(tir.IntrinsicCall("mac4", (*registers, *pointers), HANDLE))
        )
    b.store(y, [0], b.load(acc, [0]))
    b.store(y, [1], call_intrinsic("twice", [b.load(high, [0])], INT32))
    return b


@pytest.mark.host_c
@pytest.mark.parametrize("inline_asm", [True, False])
def test_intrinsics_write_registers_and_read_through_pointers(
    run_kernel, inline_asm
) -> None:
    table = {"mac4": MAC, "twice": DOUBLE}
    x = np.arange(-4, 4, dtype=np.int8)
    expected = 1 + int((x.astype(int) * np.arange(8) * 1000).sum())
    got = run_kernel(mac_kernel(), {"x": x}, table, EmitOptions(inline_asm=inline_asm))[
        "y"
    ]
    assert list(got) == [expected, 2 * expected]


def test_assembly_is_selected_by_one_macro_per_feature(module_of) -> None:
    table = {"mac4": MAC, "twice": DOUBLE}
    text = source(module_of(mac_kernel()), table)
    assert (
        "#if defined(__GNUC__) && defined(__OPTIMIZE__) && !defined(M_NO_INLINE_ASM)"
        in text
    )
    assert "#if M_INLINE_ASM && defined(__ARM_FEATURE_DSP)\n#define M_ASM_DSP 1" in text
    plain = source(module_of(mac_kernel()), table, EmitOptions(inline_asm=False))
    assert "__asm__" not in plain
    assert "M_ASM_DSP" not in plain


def test_only_intrinsics_that_are_called_are_printed(module_of) -> None:
    assert "m_twice" not in source(
        module_of(sum_kernel()), {"mac4": MAC, "twice": DOUBLE}
    )


def test_registers_indexed_by_a_variable_are_a_bug_with_their_name(module_of) -> None:
    b = Builder("k")
    _, y = io(b, INT8, 4)
    acc = b.reg("acc", INT8, 4)
    with b.for_("i", 4) as i:
        b.store(acc, [i], 0)
        b.store(y, [i], b.load(acc, [i]))
    with pytest.raises(
        InternalError, match="the registers acc are indexed by a variable"
    ):
        emit_model(module_of(b), {})
