"""The requantization factor of a product: float32 for LiteRT, double for TFLM."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from firmwright.conformance.case_tables import CaseTensor, ConformanceCase
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.settings import NumericsProfile
from firmwright.ops.registry import op_table

Array = NDArray[np.generic]
EVERY = np.arange(-128, 128, dtype=np.int8)
PAIRS = (EVERY.reshape(256, 1), EVERY.reshape(1, 256))
SCALES = (0.09168790280818939, 0.002176209818571806, 0.06813395023345947)
"""Scales for which some products are ties with one factor and not with the other."""
ZERO_POINTS = (-95, -128, 22)
SHAPES = ((256, 1), (1, 256), (256, 256))


def test_factor_of_each_profile_matches_its_oracle(
    kind: Callable[..., TensorType],
    make_call: Callable[..., OpCall],
    lowered: Callable[[OpCall, Sequence[Array]], Array],
    ask: Callable[[ConformanceCase, Sequence[Array], NumericsProfile], Array],
) -> None:
    tensors = [
        CaseTensor(shape, "int8", (scale,), (zero_point,))
        for shape, scale, zero_point in zip(SHAPES, SCALES, ZERO_POINTS, strict=True)
    ]
    options = {"fused_activation_function": "NONE"}
    case = ConformanceCase("pairs", "MUL", tuple(tensors[:2]), (tensors[2],), options)
    types = [kind(t.shape, "int8", t.scales[0], t.zero_points[0]) for t in tensors]
    results = {}
    profiles: tuple[NumericsProfile, ...] = ("litert", "tflm")
    for numerics in profiles:
        call = make_call(
            "mul", types[:2], types[2], numerics=numerics, activation="none"
        )
        (results[numerics],) = op_table()["mul"].reference(call, PAIRS)
        np.testing.assert_array_equal(results[numerics], ask(case, PAIRS, numerics))
        np.testing.assert_array_equal(results[numerics], lowered(call, PAIRS))
    assert np.count_nonzero(results["litert"] != results["tflm"]) == 6
