"""Padding: rejected paddings and the padding value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops import pad


def test_padding_is_the_zero_point_by_default(
    kind: Callable[..., TensorType], make_call: Callable[..., OpCall]
) -> None:
    x, y = kind((2,), "int8", 0.5, -7), kind((4,), "int8", 0.5, -7)
    plain = make_call("pad", [x], y, paddings=(1, 1))
    assert pad.pad_value(plain) == -7
    one = kind((1,), "int8", 0.5, -7)
    explicit = make_call("pad", [x, one], y, {1: np.array([9])}, paddings=(1, 1))
    assert pad.pad_value(explicit) == 9


def test_invalid_paddings_are_rejected(
    kind: Callable[..., TensorType], make_call: Callable[..., OpCall]
) -> None:
    x, real = kind((2,), "float32"), kind((1,), "float32")
    for call, why in (
        (
            make_call("pad", [x], x, paddings=(1, 1, 1, 1)),
            "paddings that do not match 1 axes",
        ),
        (make_call("pad", [x], x, paddings=(2, -1)), "negative paddings"),
        (
            make_call("pad", [x, real], x, paddings=(1, 1)),
            "a pad value that is not one constant float32",
        ),
    ):
        with pytest.raises(NotSupportedError) as caught:
            pad.infer(call)
        assert str(caught.value) == why
