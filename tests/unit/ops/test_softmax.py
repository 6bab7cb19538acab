"""Fixed-point softmax: its table, its limits and rows longer than it allows for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops import softmax

Array = NDArray[np.generic]


@pytest.fixture
def softmax_call(
    kind: Callable[..., TensorType], make_call: Callable[..., OpCall]
) -> Callable[..., OpCall]:
    def make(
        shape: Sequence[int], scale: float, y: tuple[float, int] = (1 / 256, -128)
    ) -> OpCall:
        types = kind(shape, "int8", scale), kind(shape, "int8", *y)
        return make_call("softmax", [types[0]], types[1], beta=1.0)

    return make


@pytest.mark.parametrize("scale", [0.004, 0.07, 1.5])
def test_table_holds_the_exponentials(
    scale: float, softmax_call: Callable[..., OpCall]
) -> None:
    table = softmax.exponential_table(softmax_call((1, 4), scale)) / 2.0**31
    exact = np.exp(-scale * np.arange(256))
    exact[scale * np.arange(256) > 31] = 0.0
    np.testing.assert_allclose(table, exact, atol=2e-7)


@pytest.mark.parametrize("count", [511, 512, 513, 1000, 4095])
def test_rows_of_equal_elements_have_the_nearest_output(
    count: int,
    softmax_call: Callable[..., OpCall],
    lowered: Callable[[OpCall, Sequence[Array]], Array],
) -> None:
    call = softmax_call((1, count), 0.1)
    x = np.full((1, count), 17, np.int8)
    (y,) = softmax.reference(call, [x])
    assert set(np.unique(y)) == {-127 if count < 512 else -128}
    np.testing.assert_array_equal(lowered(call, [x]), y)


def test_peak_of_a_long_row_is_preserved(
    softmax_call: Callable[..., OpCall],
    lowered: Callable[[OpCall, Sequence[Array]], Array],
) -> None:
    call = softmax_call((2, 1001), 0.2)
    x = np.full((2, 1001), -100, np.int8)
    x[0, 3], x[1, 1000] = 127, 127
    (y,) = softmax.reference(call, [x])
    assert y.argmax(axis=1).tolist() == [3, 1000]
    np.testing.assert_array_equal(lowered(call, [x]), y)


def test_values_beyond_the_fixed_point_range_are_rejected(
    softmax_call: Callable[..., OpCall],
) -> None:
    for call, why in (
        (softmax_call((1, 4096), 0.1), "an int8 softmax over more than 4095 elements"),
        (
            softmax_call((), 0.1),
            "a scalar or an empty tensor has no last axis to sum over",
        ),
        (
            softmax_call((3, 0), 0.1),
            "a scalar or an empty tensor has no last axis to sum over",
        ),
        (
            softmax_call((1, 4), 0.1, (1 / 255, -128)),
            "an int8 result of int8 must have scale 1/256 and zero point -128",
        ),
    ):
        with pytest.raises(NotSupportedError) as caught:
            softmax.infer(call)
        assert str(caught.value) == why
