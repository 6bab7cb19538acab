"""Concatenation: rejected combinations of inputs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops import concatenation


def test_incompatible_inputs_are_rejected(
    kind: Callable[..., TensorType], make_call: Callable[..., OpCall]
) -> None:
    x, y = kind((2, 3), "int8", 0.5, 1), kind((2, 6), "int8", 0.5, 1)
    for other, axis, why in (
        (
            kind((2, 3), "int8", 0.25, 1),
            1,
            "inputs and output with different quantization",
        ),
        (kind((3, 3), "int8", 0.5, 1), 1, "int8 [3, 3] joined with int8 [2, 3]"),
        (kind((2, 3), "uint8", 0.5, 1), 1, "uint8 [2, 3] joined with int8 [2, 3]"),
        (x, 2, "axis 2 of 2 dimensions"),
        (x, -1, "axis -1 of 2 dimensions"),
    ):
        with pytest.raises(NotSupportedError) as caught:
            concatenation.infer(make_call("concatenation", [x, other], y, axis=axis))
        assert str(caught.value) == why


def test_sizes_along_the_axis_are_summed(
    kind: Callable[..., TensorType], make_call: Callable[..., OpCall]
) -> None:
    x, z = kind((2, 3), "int8", 0.5, 1), kind((2, 1), "int8", 0.5, 1)
    (found,) = concatenation.infer(
        make_call("concatenation", [x, z, x], kind((2, 7), "int8", 0.5, 1), axis=1)
    )
    assert found == kind((2, 7), "int8", 0.5, 1)
