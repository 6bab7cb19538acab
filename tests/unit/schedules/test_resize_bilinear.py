"""Schedules of resize_bilinear match the reference, for few and many weight bits."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, INT16, DType
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.resize import HALF_BITS, share_bits
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.dsp_and_scalar import resize_bilinear as rows
from firmwright.schedules.helium import resize_bilinear as helium
from firmwright.schedules.registry import INTRINSICS
from tests.unit.ir.verified import verify_prim_func

SCHEDULES = (*rows.SCHEDULES[:2], *helium.SCHEDULES)
QUANTS = {
    INT8: Quantization((0.5,), (3,)),
    INT16: Quantization((0.5,), (0,)),
    FLOAT32: None,
}


def resize(
    dtype: DType,
    size: tuple[int, int],
    depth: int,
    *,
    corners: bool = False,
    centers: bool = False,
) -> OpCall:
    kinds = [TensorType((1, *hw, depth), dtype, QUANTS[dtype]) for hw in ((3, 4), size)]
    attrs = {"size": size, "align_corners": corners, "half_pixel_centers": centers}
    return OpCall(
        "resize_bilinear",
        (kinds[0],),
        (kinds[1],),
        attrs_from_mapping("resize_bilinear", attrs),
        (None,),
    )


def run(schedule, call: OpCall, x: np.ndarray) -> None:
    kernel = Kernel("kernel", call)
    schedule.build(call, NO_CONFIG, kernel)
    func = kernel.build()
    verify_prim_func(
        func, IRModule("test", {func.name: func}, kernel.constants), INTRINSICS
    )
    y = np.zeros(call.output.shape, call.output.dtype.np)
    memory = dict(zip([param.name for param in func.params], [x, y], strict=True))
    interpret(func, memory, INTRINSICS, constants=kernel.constants)
    np.testing.assert_array_equal(y, op_table()[call.op].reference(call, [x])[0])


def samples(call: OpCall) -> list[np.ndarray]:
    """Random values, or those of which sums are extreme or halves."""
    kind, rng = call.input(0), np.random.default_rng(call.input(0).elements)
    if kind.dtype == FLOAT32:
        return [rng.normal(size=kind.shape).astype(np.float32)]
    low, high = kind.dtype.min, kind.dtype.max
    least, ends = np.full(kind.shape, low), rng.choice([low, high], kind.shape)
    return [
        x.astype(kind.dtype.np) for x in (least, ends, rng.integers(-1, 2, kind.shape))
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.name)
@pytest.mark.parametrize("dtype", [INT8, INT16, FLOAT32], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("depth", [3, 12])
def test_images_match_the_reference(schedule, dtype: DType, depth: int) -> None:
    for size, flags in (
        ((6, 8), {"centers": True}),
        ((24, 32), {"centers": True}),
        ((8, 11), {"corners": True}),
        ((2, 7), {"centers": True}),
        ((3, 4), {}),
    ):
        call = resize(dtype, size, depth, **flags)
        for _ in schedule.configs(call):
            for x in samples(call):
                run(schedule, call, x)


def test_doubled_sizes_have_weights_of_few_bits() -> None:
    doubled = resize(INT8, (6, 8), 4, centers=True)
    assert (share_bits(doubled, 0), share_bits(doubled, 1)) == (2, 2)
    assert share_bits(resize(INT8, (6, 8), 4), 0, 1) == 2
    assert share_bits(resize(INT8, (24, 32), 4, centers=True), 0, 1) == HALF_BITS
    assert share_bits(resize(INT8, (8, 11), 4, corners=True), 0, 1) > HALF_BITS
    assert share_bits(resize(FLOAT32, (6, 8), 4), 0, 1) == 0


def test_vectors_need_sums_of_32_bits() -> None:
    (schedule,) = helium.SCHEDULES
    assert schedule.configs(resize(INT16, (6, 8), 4))
    assert not schedule.configs(resize(INT16, (8, 11), 4, corners=True))
