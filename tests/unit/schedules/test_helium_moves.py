"""Copies, flips, gathers and int16 tables on vectors match the references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, INT64, UINT8, DType
from firmwright.base.quant import Quantization
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.attributes.movement import (
    AxisAttrs,
    DynamicGatherAttrs,
    GatherAttrs,
    PadAttrs,
    ReverseSequenceAttrs,
    SplitAttrs,
    TransposeAttrs,
)
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.interpreter import interpret
from firmwright.ir.tir.traversal import walk
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.helium import logistic_tanh, moves
from firmwright.schedules.registry import INTRINSICS
from firmwright.schedules.rvv import moves as riscv_moves
from tests.unit.ir.verified import verify_prim_func

BY_NAME = {
    item.name: item
    for item in (
        *moves.SCHEDULES,
        *logistic_tanh.SCHEDULES,
        *riscv_moves.SCHEDULES,
    )
}
COPIES = {"helium": "mve_copy_uint", "rvv": "rvv_copy_strided_uint"}


def quantized(
    shape: tuple[int, ...], dtype: DType, scale: float, point: int
) -> TensorType:
    return TensorType(shape, dtype, Quantization((scale,), (point,)))


def run(name: str, call: OpCall, *arrays: np.ndarray) -> list[str]:
    """Compare the schedule with the reference; return the kernel's intrinsics."""
    schedule = BY_NAME[name]
    assert schedule.configs(call)
    expected = op_table()[call.op].reference(call, arrays)
    outputs = [np.zeros(kind.shape, kind.dtype.np) for kind in call.outputs]
    kernel = Kernel("kernel", call)
    schedule.build(call, NO_CONFIG, kernel)
    func = kernel.build()
    verify_prim_func(
        func, IRModule("test", {func.name: func}, kernel.constants), INTRINSICS
    )
    memory = dict(
        zip([param.name for param in func.params], [*arrays, *outputs], strict=True)
    )
    interpret(func, memory, INTRINSICS, constants=kernel.constants)
    for ours, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    calls = (part for part in walk(func.body) if isinstance(part, tir.IntrinsicCall))
    return sorted({call.name for call in calls})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("family", COPIES)
@pytest.mark.parametrize("dtype", [INT8, INT16, FLOAT32], ids=lambda dtype: dtype.name)
def test_the_longest_axis_of_a_copy_is_a_vector(dtype: DType, family: str) -> None:
    x = np.random.default_rng(1).integers(-100, 100, (1, 3, 9, 5)).astype(dtype.np)
    kind = TensorType(x.shape, dtype)
    parts = tuple(TensorType((1, 3, 9, size), dtype) for size in (1, 2, 2))
    split = OpCall(
        "split", (kind,), parts, SplitAttrs(axis=3, sizes=(1, 2, 2)), (None,)
    )
    copy = f"{COPIES[family]}{8 * dtype.size_bytes}"
    assert copy in run(f"{family}.split.vectors", split, x)
    joined = OpCall("concatenation", parts, (kind,), AxisAttrs(axis=3), (None,) * 3)
    places = [np.ascontiguousarray(part) for part in np.split(x, (1, 3), axis=3)]
    assert copy in run(f"{family}.concatenation.vectors", joined, *places)


@pytest.mark.parametrize("indices", [(0,), (1, 3, 5), (4, 2, 0), (5, 0, 2, 2)])
def test_slices_are_copied_as_vectors(indices: tuple[int, ...]) -> None:
    x = np.random.default_rng(3).integers(-100, 100, (3, 6, 20)).astype(np.int8)
    y = TensorType((3, len(indices), 20), INT8)
    attrs = GatherAttrs(axis=1, indices=indices, shape=(len(indices),))
    call = OpCall("gather", (TensorType(x.shape, INT8),), (y,), attrs, (None,))
    assert any("copy" in name for name in run("helium.gather.vectors", call, x))


def test_slices_at_regular_places_are_views() -> None:
    kind = TensorType((6, 20), INT8)
    for indices, shape in (((4,), ()), ((2, 3), (2,))):
        attrs = GatherAttrs(axis=0, indices=indices, shape=shape)
        part = TensorType((*shape, 20), INT8)
        call = OpCall("gather", (kind,), (part,), attrs, (None,))
        views = op_table()["gather"].subviews(call)
        assert views is not None
        assert views.offsets == (20 * indices[0],)


def test_sequences_of_constant_lengths_are_gathered() -> None:
    x = np.random.default_rng(4).normal(size=(4, 9)).astype(np.float32)
    lengths = np.array([3, 9, 0, 7], np.int64)
    kinds = TensorType(x.shape, FLOAT32), TensorType((4,), INT64)
    attrs = ReverseSequenceAttrs(batch_dim=0, seq_dim=1)
    constants = (None, Constant.from_array("lengths", lengths, INT64))
    call = OpCall("reverse_sequence", kinds, kinds[:1], attrs, constants)
    schedule = BY_NAME["helium.reverse_sequence.words"]
    assert schedule.configs(call)
    kernel, y = Kernel("kernel", call), np.zeros_like(x)
    schedule.build(call, NO_CONFIG, kernel)
    arrays = {"x": x, "y": y}
    interpret(kernel.build(), arrays, INTRINSICS, constants=kernel.constants)
    (expected,) = op_table()[call.op].reference(call, [x, lengths])
    np.testing.assert_array_equal(y, expected)
    assert not schedule.configs(replace(call, constants=(None, None)))


@pytest.mark.parametrize("family", COPIES)
def test_pads_are_fills_and_copies(family: str) -> None:
    x = np.random.default_rng(2).integers(-100, 100, (1, 5, 7, 12)).astype(np.int8)
    padded = (1, 8, 10, 12)
    kinds = quantized(x.shape, INT8, 0.1, -3), quantized(padded, INT8, 0.1, -3)
    attrs = PadAttrs(paddings=(0, 0, 1, 2, 2, 1, 0, 0))
    call = OpCall("pad", kinds[:1], kinds[1:], attrs, (None,))
    names = run(f"{family}.pad.vectors", call, x)
    assert any("fill" in name for name in names)


def test_words_are_not_copied_as_bytes() -> None:
    x = np.arange(9 * 3 * 4, dtype=np.int8).reshape(9, 3, 4)
    kinds = TensorType(x.shape, INT8), TensorType((3, 9, 4), INT8)
    call = OpCall(
        "transpose", kinds[:1], kinds[1:], TransposeAttrs(perm=(1, 0, 2)), (None,)
    )
    assert run("helium.transpose.vectors", call, x) == ["mve_copy_uint32"]


@pytest.mark.parametrize("count", [5, 16, 67])
def test_sign_bits_are_flipped(count: int) -> None:
    x = np.random.default_rng(count).integers(0, 256, count).astype(np.uint8)
    kinds = quantized((count,), UINT8, 0.5, 130), quantized((count,), INT8, 0.5, 2)
    run(
        "helium.quantize.signs",
        OpCall("quantize", kinds[:1], kinds[1:], NO_ATTRS, (None,)),
        x,
    )


def test_flips_are_not_offered_for_floats() -> None:
    kinds = TensorType((4,), FLOAT32), quantized((4,), INT8, 0.5, 2)
    call = OpCall("quantize", kinds[:1], kinds[1:], NO_ATTRS, (None,))
    assert not BY_NAME["helium.quantize.signs"].configs(call)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [INT32, INT64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("words", [1, 2, 4, 16])
def test_indices_select_slices_and_are_limited(words: int, dtype: DType) -> None:
    x = np.random.default_rng(words).normal(size=(7, words)).astype(np.float32)
    places = np.array([0, 6, -1, -7, 3, 9, -20, 2, 5], dtype.np)
    kinds = TensorType(x.shape, FLOAT32), TensorType(places.shape, dtype)
    y = TensorType((len(places), words), FLOAT32)
    call = OpCall(
        "dynamic_gather",
        kinds,
        (y,),
        DynamicGatherAttrs(mode="along", axis=0),
        (None, None),
    )
    run("helium.dynamic_gather.words", call, x, places)


@pytest.mark.parametrize("scale", [2.0**-12, 0.0003, 1.3, 2.0**-15])
@pytest.mark.parametrize("op", ["logistic", "tanh"])
def test_int16_tables_are_interpolated(op: str, scale: float) -> None:
    x = np.append(np.arange(-32768, 32768, 41), 32767).astype(np.int16)
    kinds = quantized(x.shape, INT16, scale, 0), quantized(x.shape, INT16, 2.0**-15, 0)
    run(f"helium.{op}.int16", OpCall(op, kinds[:1], kinds[1:], NO_ATTRS, (None,)), x)
