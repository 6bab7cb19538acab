"""Quantized sums: every pair of values, and both oracles where rounding matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.errors import NotSupportedError
from firmwright.conformance.case_tables import CaseTensor, ConformanceCase
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.settings import NumericsProfile
from firmwright.ops import rescaled_sum
from firmwright.ops.registry import op_table

Array = NDArray[np.generic]
EVERY = np.arange(-128, 128, dtype=np.int8)
PAIRS = (EVERY.reshape(256, 1), EVERY.reshape(1, 256))
SCALES = (
    # a, b, y with their zero points
    ((0.5, 0), (0.5, 3), (2.0, 22)),
    ((0.4, -128), (0.1, 127), (1.6, 7)),
    ((0.0018069557, -128), (0.0018069557, 127), (0.0072278245, 7)),
    ((1.0, 127), (2e-4, -128), (0.7, 127)),
    ((3e-7, 0), (1.0, 1), (2.0**-18, 5)),
    ((0.03, 4), (0.02, -9), (40000.0, -1)),
)


@pytest.mark.parametrize("op", ["add", "sub"])
@pytest.mark.parametrize(("a", "b", "y"), SCALES)
def test_lowering_equals_reference_for_every_pair_of_values(
    op: str,
    a: tuple[float, int],
    b: tuple[float, int],
    y: tuple[float, int],
    kind: Callable[..., TensorType],
    make_call: Callable[..., OpCall],
    lowered: Callable[[OpCall, Sequence[Array]], Array],
) -> None:
    types = [kind((256, 1), "int8", *a), kind((1, 256), "int8", *b)]
    call = make_call(op, types, kind((256, 256), "int8", *y), activation="none")
    (expected,) = op_table()[op].reference(call, PAIRS)
    np.testing.assert_array_equal(lowered(call, PAIRS), expected)


@pytest.mark.parametrize("numerics", ["litert", "tflm"])
@pytest.mark.parametrize("op", ["add", "sub"])
def test_sums_with_ties_equal_the_oracle(
    op: str,
    numerics: NumericsProfile,
    kind: Callable[..., TensorType],
    make_call: Callable[..., OpCall],
    ask: Callable[[ConformanceCase, Sequence[Array], NumericsProfile], Array],
) -> None:
    tensors = [
        CaseTensor(shape, "int8", (float(np.float32(scale)),), (zero_point,))
        for shape, (scale, zero_point) in zip(
            ((256, 1), (1, 256), (256, 256)), SCALES[2], strict=True
        )
    ]
    options = {"fused_activation_function": "NONE"}
    case = ConformanceCase(
        "ties", op.upper(), tuple(tensors[:2]), (tensors[2],), options
    )
    types = [kind(t.shape, "int8", t.scales[0], t.zero_points[0]) for t in tensors]
    call = make_call(op, types[:2], types[2], numerics=numerics, activation="none")
    (ours,) = op_table()[op].reference(call, PAIRS)
    np.testing.assert_array_equal(ours, ask(case, PAIRS, numerics))


def test_output_scale_that_enlarges_the_sum_is_rejected(
    kind: Callable[..., TensorType], make_call: Callable[..., OpCall]
) -> None:
    x = kind((4,), "int8", 1.0)
    call = make_call("add", [x, x], kind((4,), "int8", 2.0**-20), activation="none")
    with pytest.raises(NotSupportedError) as caught:
        rescaled_sum.check(call)
    assert str(caught.value) == "an output scale too far below the larger input scale"
