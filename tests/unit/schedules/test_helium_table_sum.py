"""table_sum on Helium: every pair of bytes against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.quant import Quantization
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.fitted_arithmetic import table_sum
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.helium.table_sum import SCHEDULES
from firmwright.schedules.registry import INTRINSICS

WINDOWS = (0, 1, -3)


def table_sum_call(window: int, shape: tuple[int, ...]) -> OpCall:
    kind = TensorType(shape, INT8, Quantization((1.0,), (0,)))
    summands = np.random.default_rng(window + 8).integers(-(1 << 22), 1 << 22, 256)
    attrs = {"multiplier": 43801, "shift": 15, "window": window, "low": -100}
    attrs |= {"high": 127, "table": tuple(map(int, summands))}
    fitted = attrs_from_mapping("table_sum", attrs)
    return OpCall("table_sum", (kind, kind), (kind,), fitted, (None, None))


@pytest.mark.parametrize("window", WINDOWS)
def test_sums_of_all_pairs_match_the_reference(window: int) -> None:
    (schedule,) = SCHEDULES
    call = table_sum_call(window, (256, 256))
    assert schedule.configs(call) == (NO_CONFIG,)
    a, b = np.mgrid[-128:128, -128:128].astype(np.int8)
    kernel, y = Kernel("kernel", call), np.zeros((256, 256), np.int8)
    schedule.build(call, NO_CONFIG, kernel)
    arrays = {"x": a, "x_1": b, "y": y}
    interpret(kernel.build(), arrays, INTRINSICS, constants=kernel.constants)
    np.testing.assert_array_equal(y, table_sum(call, [a, b])[0])
