"""The header's helpers quantize as the reference runtimes do."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8
from firmwright.base.quant import Quantization
from firmwright.codegen.model_emitter import emit_model
from firmwright.ir.core import Span
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import Builder
from firmwright.ops.registry import op_table
from tests.unit.codegen.adder_models import program

QUANTIZE_MAIN = """
#include <stdio.h>
#include "m.h"
int main(void)
{
    float real;
    while (scanf("%f", &real) == 1) {
        const int8_t value = M_T_X_QUANTIZE(real);
        printf("%d %g\\n", value, (double)M_T_Y_DEQUANTIZE(value));
    }
    return 0;
}
"""


@pytest.mark.host_c
@pytest.mark.parametrize("numerics", ["litert", "onnx"])
def test_helpers_of_the_header_quantize_as_the_runtimes(
    tmp_path, module_of, numerics
) -> None:
    b = Builder("clone_0", Span("m.tflite"))
    x, y = b.buffer_param("x", INT8, (4,), "in"), b.buffer_param("y", INT8, (4,), "out")
    with b.for_("i", 4) as i:
        b.store(y, [i], b.load(x, [i]))
    module = module_of(b, zero_point=-3).with_numerics(numerics)
    rng = np.random.default_rng(4)
    edges = [1e30, -1e30, 7e9, 0.24999999, -0.24999999]
    reals = np.concatenate([np.arange(-600, 600) / 8, rng.normal(0, 40, 500), edges])
    reals = reals.astype(np.float32)
    given = "".join(f"{real!r}\n" for real in reals.tolist())
    lines = program(
        tmp_path, emit_model(module, {}), QUANTIZE_MAIN, given=given
    ).splitlines()
    found = np.array([line.split() for line in lines], np.float64)
    np.testing.assert_array_equal(found[:, 0], quantized(reals, numerics))
    np.testing.assert_array_equal(found[:, 1], 0.5 * (found[:, 0] + 3))


def quantized(reals: np.ndarray, numerics: str) -> np.ndarray:
    """What LiteRT's QUANTIZE or ONNX Runtime computes; scale 0.5, zero point -3."""
    if numerics == "litert":
        x = TensorType(reals.shape, FLOAT32)
        y = TensorType(reals.shape, INT8, Quantization((0.5,), (-3,)))
        (values,) = op_table()["quantize"].reference(
            OpCall("quantize", (x,), (y,)), [reals]
        )
        return values
    parser, helper = (
        pytest.importorskip("onnx.parser"),
        pytest.importorskip("onnx.helper"),
    )
    runtime = pytest.importorskip("onnxruntime")
    graph = parser.parse_graph(
        f"g (float[{reals.size}] x) => (int8[{reals.size}] y)"
        " <float s = {0.5}, int8 z = {-3}> { y = QuantizeLinear(x, s, z) }"
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, ir_version=8, opset_imports=opset)
    return runtime.InferenceSession(model.SerializeToString()).run(None, {"x": reals})[
        0
    ]
