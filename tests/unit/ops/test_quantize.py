"""Quantize: saturation, ties and accepted dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops import quantize

Array = NDArray[np.generic]


def test_floats_round_half_away_from_zero_and_saturate(
    kind: Callable[..., TensorType],
    make_call: Callable[..., OpCall],
    lowered: Callable[[OpCall, Sequence[Array]], Array],
) -> None:
    far = [1e9, -1e9, 3e38, -np.inf, np.inf]
    below_half = np.nextafter(np.float32(0.25), np.float32(0))
    x = np.array([0.25, -0.25, 0.75, -0.75, *far, -0.0, below_half], np.float32)
    call = make_call(
        "quantize", [kind(x.shape, "float32")], kind(x.shape, "int8", 0.5, 5)
    )
    expected = [6, 4, 7, 3, 127, -128, 127, -128, 127, 5, 5]
    assert quantize.reference(call, [x])[0].tolist() == expected
    assert lowered(call, [x]).tolist() == expected


def test_equal_scales_change_only_the_zero_point(
    kind: Callable[..., TensorType],
    make_call: Callable[..., OpCall],
    lowered: Callable[[OpCall, Sequence[Array]], Array],
) -> None:
    x = np.arange(256, dtype=np.uint8)
    call = make_call(
        "quantize", [kind((256,), "uint8", 0.02, 128)], kind((256,), "int8", 0.02, 0)
    )
    np.testing.assert_array_equal(lowered(call, [x]), x.astype(np.int16) - 128)


@pytest.mark.parametrize(
    ("before", "after"), [("float32", "int32"), ("int32", "uint8"), ("uint8", "int32")]
)
def test_other_dtypes_are_rejected(
    before: str,
    after: str,
    kind: Callable[..., TensorType],
    make_call: Callable[..., OpCall],
) -> None:
    call = make_call("quantize", [kind((2,), before, 0.5)], kind((2,), after, 0.5))
    with pytest.raises(NotSupportedError) as caught:
        quantize.infer(call)
    assert str(caught.value) == f"{before} quantized to {after}"
