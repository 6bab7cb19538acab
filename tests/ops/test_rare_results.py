"""Results and shapes that few models have equal LiteRT's."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.conformance.case_tables import CaseTensor, ConformanceCase
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Function
from firmwright.ops.registry import op_table
from firmwright.oracle.tflite_interpreters import RESOLVERS, LiteRtRuntime
from firmwright.pipeline import load_module_bytes
from firmwright.schedules.registry import INTRINSICS
from tests.ops.tflite_writer import write_cases

Array = NDArray[np.generic]

BASES = (-(1 << 31), -46341, -3, -2, -1, 0, 1, 2, 3, 10, 46340, 46341, (1 << 31) - 1)
EXPONENTS = (0, 1, 2, 3, 9, 10, 20, 30, 31, 32, 33, 63, (1 << 31) - 2, (1 << 31) - 1)


def _assert_equals_litert(case: ConformanceCase, *inputs: Array) -> None:
    model = write_cases([case])
    (expected,) = LiteRtRuntime(model, layers=False, resolver=RESOLVERS["litert"]).run(
        inputs
    )
    module = load_module_bytes(model, "model.tflite")
    assert isinstance(module.entry, Function)
    feeds = {
        value.name: x for value, x in zip(module.entry.params, inputs, strict=True)
    }
    values = evaluate_graph(module, feeds, op_table(), INTRINSICS)
    own = np.asarray(values[module.entry.results[0].name])
    assert own.shape == np.shape(expected)
    np.testing.assert_array_equal(own, expected)


def test_powers_beyond_32_bits_equal_litert() -> None:
    grid = np.meshgrid(np.array(BASES, np.int32), np.array(EXPONENTS, np.int32))
    x, exponent = (np.ascontiguousarray(part.reshape(-1)) for part in grid)
    tensor = CaseTensor(x.shape, "int32")
    _assert_equals_litert(
        ConformanceCase("pow", "POW", (tensor, tensor), (tensor,)), x, exponent
    )


@pytest.mark.parametrize("builtin", ["MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"])
@pytest.mark.parametrize("kind", ["uint8", "int32"])
def test_a_reduction_of_a_vector_to_a_scalar_has_no_dimension(
    builtin: str, kind: str
) -> None:
    more = ((0.1,), (3,)) if kind == "uint8" else ((), ())
    x, y = (CaseTensor(shape, kind, *more) for shape in ((5,), ()))
    axes = CaseTensor((1,), "int32", data=np.array([0], np.int32))
    case = ConformanceCase("scalar", builtin, (x, axes), (y,), {"keep_dims": False})
    _assert_equals_litert(case, np.array([3, 9, 200, 4, 1], kind))
