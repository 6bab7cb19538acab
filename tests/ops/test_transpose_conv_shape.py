"""A transposed convolution with its output shape as an input has the declared shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from firmwright.conformance.case_tables import CaseTensor, conformance_cases
from firmwright.frontends.tflite.importer import import_model
from firmwright.frontends.tflite.reader import read_tflite
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ops.registry import op_table
from firmwright.oracle.reference_runner import run_reference
from tests.ops.tflite_writer import write_cases


def test_variable_output_shape_is_as_in_tflm() -> None:
    case = next(
        c for c in conformance_cases("transpose_conv") if c.name.endswith("int16")
    )
    shape, w, x, *bias = case.inputs
    assert shape is not None
    assert x is not None
    variable = CaseTensor(shape.shape, "int32")
    data = write_cases([replace(case, inputs=(variable, w, x, *bias))])
    module = import_model(read_tflite(data, "case"), "case", data, op_table())
    module = module.with_numerics("tflm")
    values = np.random.default_rng(3).integers(-32768, 32768, x.shape).astype(np.int16)
    sample = {"0.x0": np.array(case.outputs[0].shape, np.int32), "0.x2": values}
    (expected,) = run_reference(data, [sample], "tflm").outputs
    results = evaluate_graph(module, sample, op_table(), {})
    np.testing.assert_array_equal(results["0.y0"], expected["0.y0"])
