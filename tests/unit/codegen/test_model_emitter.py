"""Emitted models compile without a warning, compute what numpy does, and read well."""

from __future__ import annotations

import re

import numpy as np
import pytest

from firmwright.base import dtypes
from firmwright.base.dtypes import INT8, INT32
from firmwright.base.errors import InternalError
from firmwright.base.resources import runtime_dir
from firmwright.codegen.emit_options import EmitOptions
from firmwright.codegen.model_emitter import RUNTIME_ABI, RUNTIME_DTYPES, emit_model
from firmwright.codegen.model_identity import model_id
from firmwright.ir.core import Span
from firmwright.ir.tir.builder import Builder, maximum, minimum


def dense(rows: int = 3, depth: int = 8) -> Builder:
    """y = clamp((W x + b) >> 4), with two accumulators."""
    b = Builder("fully_connected_0", Span("m.tflite", 0, 0, "t/y"))
    x = b.buffer_param("x", INT8, (depth,), "in")
    y = b.buffer_param("y", INT8, (rows,), "out")
    rng = np.random.default_rng(1)
    w = b.constant("w", rng.integers(-128, 128, (rows, depth)), INT8, 4)
    bias = b.constant("bias", rng.integers(-99, 99, rows), INT32)
    with b.for_("o", rows) as o:
        row = b.view("row", w, o * depth, (depth,))
        acc = b.reg("acc", INT32)
        b.store(acc, [0], b.load(bias, [o]))
        with b.for_("k", depth) as k:
            product = b.load_i32(row, [k]) * (b.load_i32(x, [k]) + 3)
            b.store(acc, [0], b.load(acc, [0]) + product)
        scaled = b.load(acc, [0]) >> 4
        b.store(y, [o], minimum(maximum(scaled, -128), 127).cast(INT8))
    return b


def dense_reference(b: Builder, x: np.ndarray) -> np.ndarray:
    w, bias = (
        b.constants[f"{b.name}.{n}"].array().astype(np.int64) for n in ("w", "bias")
    )
    return np.clip((w @ (x.astype(np.int64) + 3) + bias) >> 4, -128, 127).astype(
        np.int8
    )


@pytest.mark.host_c
def test_a_dense_layer_equals_numpy_under_both_compilers(run_kernel) -> None:
    b = dense()
    x = np.random.default_rng(2).integers(-128, 128, 8).astype(np.int8)
    np.testing.assert_array_equal(run_kernel(b, {"x": x})["y"], dense_reference(b, x))


def test_the_text_of_a_small_model_reads_as_written_by_hand(golden, module_of) -> None:
    tree = emit_model(module_of(dense(), schedule="rows", zero_point=-3), {})
    text = str(tree.files["model/m.c"])
    golden(text[text.index("#include") : text.index("const uint8_t m_id")], ".c")
    golden(text[text.index("int32_t m_map_io") :], "_functions.c")


def test_header_weights_and_glue_read_as_written_by_hand(golden, module_of) -> None:
    tree = emit_model(module_of(dense(), zero_point=-3), {})
    for path, suffix in (("model/m.h", ".h"), ("model/m_weights.h", "_weights.h")):
        golden(str(tree.files[path]), suffix)
    glue = str(tree.files["firmware/fwr_app.c"])
    golden(re.sub(r"(0x[0-9a-f]{2}, ){7}0x[0-9a-f]{2}", "...", glue), "_app.c")


def test_the_same_module_gives_the_same_bytes(module_of) -> None:
    first, second = (emit_model(module_of(dense()), {}) for _ in range(2))
    assert first == second
    assert model_id(first) == model_id(second)


def test_another_weight_gives_another_model_id(module_of) -> None:
    assert model_id(emit_model(module_of(dense()), {})) != model_id(
        emit_model(module_of(dense(4)), {})
    )


def test_the_model_carries_its_id_and_version(module_of) -> None:
    tree = emit_model(module_of(dense()), {}, EmitOptions(tool_version="1.2"))
    text = str(tree.files["model/m.c"])
    rows = text[text.index("m_id[16] = {") : text.index("const char m_version")]
    assert "".join(re.findall(r"0x([0-9a-f]{2})", rows)) == model_id(tree)
    assert 'const char m_version[] = "m, firmwright 1.2";' in text


def test_the_glue_carries_the_model_id_and_the_runtimes_version(module_of) -> None:
    tree = emit_model(module_of(dense()), {})
    glue = str(tree.files["firmware/fwr_app.c"])
    digits = re.findall(r"0x([0-9a-f]{2})", glue)
    assert "".join(digits) == model_id(tree)
    header = (runtime_dir() / "fwr.h").read_text()
    assert f"#define FWR_ABI {RUNTIME_ABI}" in header


def test_no_line_is_longer_than_100_columns(module_of) -> None:
    tree = emit_model(module_of(dense(), name="person_detect_96x96_int8"), {})
    for path, text in tree.files.items():
        for line in str(text).splitlines():
            assert len(line) <= 100, (path, line)


def test_hostile_names_cannot_leave_their_comments_and_strings(module_of) -> None:
    b = dense()
    b.span = Span("*/ int evil; /*", 0, 0, 'a"\\??/\n*/')
    module = module_of(b, comment="*/ #error no\n*/")
    tree = emit_model(module, {}, EmitOptions(notes=("*/ /* \\",)))
    for path, text in tree.files.items():
        assert "*/ int" not in str(text), path
        assert "*/ #error" not in str(text), path


def test_a_prefix_names_everything(module_of) -> None:
    tree = emit_model(module_of(dense()), {}, EmitOptions(prefix="ears"))
    assert set(tree.files) == {
        "model/ears.c",
        "model/ears.h",
        "model/ears_weights.h",
        "firmware/fwr_app.c",
    }
    assert "int32_t ears_run(" in str(tree.files["model/ears.h"])


def test_the_runtime_names_every_type_that_a_tensor_may_have() -> None:
    kinds = {
        item.name for item in vars(dtypes).values() if isinstance(item, dtypes.DType)
    }
    assert set(RUNTIME_DTYPES) == kinds - {"handle"}


def test_memory_that_is_not_planned_is_a_bug_with_its_name(module_of) -> None:
    b = Builder("k")
    y = b.buffer_param("y", INT8, (1,), "out")
    column = b.allocate("column", INT8, (4,))
    b.store(column, [0], 1)
    b.store(y, [0], b.load(column, [0]))
    with pytest.raises(InternalError, match="the memory of column is not planned"):
        emit_model(module_of(b), {})
