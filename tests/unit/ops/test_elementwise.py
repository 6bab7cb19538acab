"""Broadcasting: result shapes and the minimum number of loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.elementwise import broadcast_loops, broadcast_shape, constant_scalar
from firmwright.ops.registry import op_table


def test_shapes_are_aligned_at_their_last_axis() -> None:
    assert broadcast_shape((2, 3, 4), (3, 1)) == (2, 3, 4)
    assert broadcast_shape((4, 1), (1, 5)) == (4, 5)
    assert broadcast_shape((), (2,)) == (2,)


def test_an_empty_axis_stays_empty() -> None:
    assert broadcast_shape((0, 3), (1, 3)) == (0, 3)


def test_incompatible_shapes_are_rejected() -> None:
    with pytest.raises(NotSupportedError) as caught:
        broadcast_shape((2, 3), (2,))
    assert str(caught.value) == "incompatible shapes [2, 3] and [2]"


@pytest.mark.parametrize(
    ("shapes", "loops"),
    [
        (((1, 4, 5), (1, 4, 5)), [(20, {0, 1})]),
        (((2, 4, 5), (5,)), [(8, {0}), (5, {0, 1})]),
        (((4, 1, 3), (1, 6, 1)), [(4, {0}), (6, {1}), (3, {0})]),
        (((7, 2), (1,)), [(14, {0})]),
        (((1, 1), (1,)), [(1, {0, 1})]),
    ],
)
def test_adjacent_axes_with_equal_broadcasting_share_a_loop(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], loops: list[tuple[int, set[int]]]
) -> None:
    assert broadcast_loops(shapes, broadcast_shape(*shapes)) == loops


def test_both_inputs_and_the_output_must_have_one_dtype(
    kind: Callable[..., TensorType], make_call: Callable[..., OpCall]
) -> None:
    real, small = kind((2,), "float32"), kind((2,), "int8", 0.5, 0)
    with pytest.raises(NotSupportedError) as caught:
        op_table()["add"].infer(
            make_call("add", [real, small], real, activation="none")
        )
    assert str(caught.value) == "float32 and int8 giving float32"


def test_int8_without_quantization_is_rejected(
    kind: Callable[..., TensorType], make_call: Callable[..., OpCall]
) -> None:
    bare = kind((2,), "int8")
    with pytest.raises(NotSupportedError) as caught:
        op_table()["mul"].infer(make_call("mul", [bare, bare], bare, activation="none"))
    assert str(caught.value) == "an int8 tensor without quantization"


def test_only_constants_of_one_element_have_a_scalar_value(
    kind: Callable[..., TensorType], make_call: Callable[..., OpCall]
) -> None:
    x, one = kind((3,), "float32"), kind((1,), "float32")
    call = make_call("add", [x, one], x, {1: np.array([2.5])}, activation="none")
    assert constant_scalar(call, 0) is None
    assert constant_scalar(call, 1) == 2.5
    wide = make_call("add", [x, x], x, {1: np.ones(3)}, activation="none")
    assert constant_scalar(wide, 1) is None
