"""logistic and tanh of int16: the table of numbers around the value at 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.registry import op_table

Array = NDArray[np.generic]


@pytest.mark.parametrize("scale", [2.6, 1 / 3000, 2.0**-12, 1e-6])
@pytest.mark.parametrize("op", ["logistic", "tanh"])
def test_sums_have_the_results_of_the_reference(
    op: str,
    scale: float,
    kind: Callable[..., TensorType],
    make_call: Callable[..., OpCall],
    lowered: Callable[[OpCall, Sequence[Array]], Array],
) -> None:
    values = np.unique([*range(-300, 301), *range(-32768, 32768, 61), 32767])
    x = values.astype(np.int16)[np.newaxis]
    types = kind(x.shape, "int16", scale), kind(x.shape, "int16", 2.0**-15)
    call = make_call(op, [types[0]], types[1])
    (y,) = op_table()[op].reference(call, [x])
    np.testing.assert_array_equal(lowered(call, [x]), y)
