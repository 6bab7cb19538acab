"""Sums in kernels: of what they store, and of products; where they cannot be added."""

from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.errors import InternalError
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.samples.reference_outputs import (
    run_interpreter,
    run_numpy_reference,
)
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.module import IRModule
from firmwright.ir.parser import parse_module
from firmwright.ir.tir.interpreter import interpret
from firmwright.ir.tir.traversal import used_constants
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.passes.tir.store_sums import with_store_sum
from firmwright.pipeline import Compilation

KERNEL = """firmwright ir 2
func @f(in x: i8[8], {output}) {{
  {body}
}}
"""
SUMMED = {
    "bytes": ("out y: i8[8]", "for i in 0..8 { y[i] = max(x[i], 3) }"),
    "words": (
        "out y: i32[8] align(4)",
        "for i in 0..8 { y[i] = cast(i32, x[i]) * -70001 }",
    ),
    "floats": (
        "out y: f32[8] align(4)",
        "for i in 0..8 { y[i] = cast(f32, x[i]) }",
    ),
    "a view": (
        "out y: i8[8]",
        "decl w: i8[4] = ptr(y, 4, 4, w)\n"
        "for i in 0..4 { w[i] = x[i] } for i in 0..4 { y[i] = x[i + 4] }",
    ),
    "results of accumulators, one twice": (
        "out y: i8[8]",
        "for i in 0..3 { allocate acc: i32[1] scope(reg) as reg for j in 0..3 {\n"
        "acc[0] = cast(i32, x[min(i * 3, 5) + j]) * 3\n"
        "y[min(i * 3, 5) + j] = cast(i8, acc[0] & 127) } }",
    ),
}
NOT_SUMMED = {
    "stored twice": ("out y: i8[8]", "for i in 0..8 { y[i] = x[i] } y[2] = 1"),
    "not stored": ("out y: i8[8]", "for i in 0..7 { y[i] = x[i] }"),
    "read": ("out y: i8[8]", "y[0] = 1 for i in 1..7 { y[i] = y[i - 1] }"),
    "inout": ("inout y: i8[8]", "for i in 0..8 { y[i] = x[i] }"),
    "vectors": ("out y: i8[8]", "vectorized for i in 0..8 { y[i] = x[i] }"),
    "long numbers": ("out y: i64[8]", "for i in 0..8 { y[i] = cast(i64, x[i]) }"),
    "two outputs": (
        "out y: i8[8], out z: i8[8]",
        "for i in 0..8 { y[i] = x[i] z[i] = x[i] }",
    ),
}


def kernel_of(output: str, body: str) -> IRModule:
    return parse_module(KERNEL.format(output=output, body=body))


@pytest.mark.parametrize("case", SUMMED)
def test_a_kernel_adds_up_the_bytes_that_it_stores(case: str) -> None:
    kernel = kernel_of(*SUMMED[case]).kernel("f")
    summing = with_store_sum(kernel)
    assert summing is not None
    x = np.array([1, -2, 100, -128, 127, 0, 5, -7], np.int8)
    y = np.zeros(8, kernel.params[1].value.dtype.np)
    total = np.zeros(1, np.uint32)
    args = {"x": x, "y": y, "tag": 1000, "sum": total}
    interpret(summing, args, BASE_INTRINSICS)
    assert int(total[0]) == 1000 + int(y.view(np.uint8).sum())
    assert y.any()


@pytest.mark.parametrize("case", NOT_SUMMED)
def test_a_kernel_whose_stores_are_not_followed_stays(case: str) -> None:
    assert with_store_sum(kernel_of(*NOT_SUMMED[case]).kernel("f")) is None


@pytest.fixture(scope="module")
def dense() -> Compilation:
    """A hardened layer whose kernel packs two weights, for a Cortex-M4."""
    rng = np.random.default_rng(3)
    g = GraphBuilder("dense")
    x = g.input("x", (1, 64), scale=0.1, zero_point=-5)
    weights = rng.integers(-127, 128, (16, 64)).astype(np.int8)
    bias = rng.integers(-9000, 9000, 16).astype(np.int32)
    parameters = (
        g.constant(weights, name="weights", scale=0.02),
        g.constant(bias, name="bias", scale=0.002),
    )
    y = g.call(
        "fully_connected",
        x,
        *parameters,
        name="y",
        shape=(1, 16),
        scale=0.5,
        zero_point=3,
        activation="none",
        keep_dims=False,
    )
    return compile_for(g.model(y), "mps2-an386", harden=True)


X = np.arange(1, 65, dtype=np.int8).reshape(1, 64)


def test_a_hardened_layer_computes_the_same(dense: Compilation) -> None:
    ours = run_interpreter(dense.module, [{"x": X}]).outputs
    reference = run_numpy_reference(dense.imported, [{"x": X}]).outputs
    assert np.array_equal(ours[0]["y"], reference[0]["y"])


def test_weights_that_are_used_once_are_checked_by_their_products(
    dense: Compilation,
) -> None:
    names = {name for name in dense.module.constants if ".weights" in name}
    (weights,) = names
    summed = [f for f in dense.module.functions.values() if "sum_constant" in f.name]
    read = {
        name
        for f in summed
        for name in used_constants(dense.module.kernel(f.name).body)
    }
    assert weights not in read
    assert len(read) > 1


def test_a_flipped_weight_changes_the_sum_of_products(dense: Compilation) -> None:
    (name,) = (name for name in dense.module.constants if ".weights" in name)
    constant = dense.module.constants[name]
    for at in range(0, constant.size_bytes, 37):
        data = bytearray(constant.data)
        data[at] ^= 1 << at % 8
        constants = {
            **dense.module.constants,
            name: replace(constant, data=bytes(data)),
        }
        with pytest.raises(InternalError, match="memory has changed during a run"):
            run_interpreter(replace(dense.module, constants=constants), [{"x": X}])
