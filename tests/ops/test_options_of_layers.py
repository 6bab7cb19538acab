"""Layers whose options or scales LiteRT reads unlike their tensors are refused."""

from dataclasses import replace

import pytest

from firmwright.base.errors import UnsupportedError
from firmwright.conformance.case_tables import ConformanceCase, conformance_cases
from firmwright.frontends.tflite.importer import import_model
from firmwright.frontends.tflite.reader import read_tflite
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table
from tests.ops.tflite_writer import write_cases


def _imported(case: ConformanceCase) -> IRModule:
    data = write_cases([case])
    return import_model(read_tflite(data, "case"), "case", data, op_table())


@pytest.mark.parametrize("op", ["conv2d", "fully_connected"])
def test_an_int16_layer_with_a_32_bit_bias_needs_its_option(op: str) -> None:
    """LiteRT reads 8 bytes for each value of the bias, unless the option states 4."""
    case = next(c for c in conformance_cases(op) if "quantized_bias_type" in c.options)
    _imported(case)
    options = {
        key: x for key, x in case.options.items() if key != "quantized_bias_type"
    }
    with pytest.raises(UnsupportedError, match="without quantized_bias_type=INT32"):
        _imported(replace(case, options=options))


def test_a_hybrid_depthwise_convolution_needs_a_scale_for_each_channel() -> None:
    """LiteRT reads the scales of all channels, whatever their number."""
    case = next(iter(conformance_cases("hybrid_depthwise_conv2d")))
    _imported(case)
    x, w, *bias = case.inputs
    assert w is not None
    one = replace(w, scales=w.scales[:1], zero_points=(0,), axis=None)
    with pytest.raises(UnsupportedError, match="one weight scale for all channels"):
        _imported(replace(case, inputs=(x, one, *bias)))
