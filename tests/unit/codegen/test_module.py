"""Emitted models compile without a warning, compute what numpy does, and read well."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.codegen.module import emit, model_id
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
    with b.for_("o", rows) as o, b.window("row", w, o * depth, (depth,)) as row:
        acc = b.reg("acc", INT32)
        b.store(acc, [0], b.load(bias, [o]))
        with b.for_("k", depth) as k:
            product = b.load_i32(row, [k]) * (b.load_i32(x, [k]) + 3)
            b.store(acc, [0], b.load(acc, [0]) + product)
        scaled = b.load(acc, [0]) >> 4
        b.store(y, [o], minimum(maximum(scaled, -128), 127).cast(INT8))
    return b


def dense_reference(b: Builder, x: np.ndarray) -> np.ndarray:
    w, bias = (b.constants[f"{b.name}.{n}"].array().astype(np.int64) for n in ("w", "bias"))
    return np.clip((w @ (x.astype(np.int64) + 3) + bias) >> 4, -128, 127).astype(np.int8)


@pytest.mark.host_c
def test_a_dense_layer_equals_numpy_under_both_compilers(run_kernel) -> None:
    b = dense()
    x = np.random.default_rng(2).integers(-128, 128, 8).astype(np.int8)
    np.testing.assert_array_equal(run_kernel(b, {"x": x})["y"], dense_reference(b, x))


def test_the_text_of_a_small_model_reads_as_written_by_hand(golden, module_of) -> None:
    tree = emit(module_of(dense(), schedule="rows", zero_point=-3), {})
    golden(str(tree.files["model/m.c"]), ".c")


def test_header_weights_and_glue_read_as_written_by_hand(golden, module_of) -> None:
    tree = emit(module_of(dense(), zero_point=-3), {})
    for path, suffix in (("model/m.h", ".h"), ("model/m_weights.h", "_weights.h")):
        golden(str(tree.files[path]), suffix)
    golden(str(tree.files["firmware/fwr_app.c"]), "_app.c")


def test_the_same_module_gives_the_same_bytes(module_of) -> None:
    first, second = (emit(module_of(dense()), {}) for _ in range(2))
    assert first == second
    assert model_id(first) == model_id(second)


def test_another_weight_gives_another_model_id(module_of) -> None:
    assert model_id(emit(module_of(dense()), {})) != model_id(emit(module_of(dense(4)), {}))
