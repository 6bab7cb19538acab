"""The relu operators that requantize equal their oracle where the profiles differ."""

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
from firmwright.ops.registry import op_table

Array = NDArray[np.generic]
EVERY = np.arange(-128, 128, dtype=np.int8)
PROFILES: tuple[NumericsProfile, ...] = ("litert", "tflm")


@pytest.mark.parametrize(
    ("op", "x", "y"),
    [
        # 98 * x / y is a tie in double and falls short of it in float32.
        ("relu", (1.4992767572402954, -128), (2.90948748588562, 6)),
        # TFLM's relu6 ignores the quantization of the output.
        ("relu6", (0.05, -20), (0.03, -128)),
    ],
)
def test_profiles_match_their_oracles(
    op: str,
    x: tuple[float, int],
    y: tuple[float, int],
    kind: Callable[..., TensorType],
    make_call: Callable[..., OpCall],
    ask: Callable[[ConformanceCase, Sequence[Array], NumericsProfile], Array],
) -> None:
    types = [kind((256,), "int8", *x), kind((256,), "int8", *y)]
    tensors = [
        CaseTensor((256,), "int8", (float(np.float32(scale)),), (zero_point,))
        for scale, zero_point in (x, y)
    ]
    case = ConformanceCase("every", op.upper(), (tensors[0],), (tensors[1],))
    results = []
    for numerics in PROFILES:
        call = make_call(op, types[:1], types[1], numerics=numerics)
        (ours,) = op_table()[op].reference(call, [EVERY])
        np.testing.assert_array_equal(ours, ask(case, [EVERY], numerics))
        results.append(ours)
    assert np.any(results[0] != results[1])


def test_input_and_output_must_have_one_dtype(
    kind: Callable[..., TensorType], make_call: Callable[..., OpCall]
) -> None:
    call = make_call("relu", [kind((2,), "int8", 0.5)], kind((2,), "float32"))
    with pytest.raises(NotSupportedError) as caught:
        op_table()[call.op].infer(call)
    assert str(caught.value) == "int8 input with float32 output"
