"""Grouped convolutions of .tflite files equal LiteRT and TFLM."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError
from firmwright.conformance.case_tables import CaseTensor, ConformanceCase
from firmwright.frontends.tflite.importer import import_model
from firmwright.frontends.tflite.reader import read_tflite
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.settings import NumericsProfile
from firmwright.ops.registry import op_table
from firmwright.oracle.reference_runner import run_reference
from tests.ops.tflite_writer import write_cases

FILTERS = 12


def grouped_case(kind: str, groups: int) -> ConformanceCase:
    """Return a convolution of 6 channels in `groups`, with SAME padding and stride 2."""
    rng = np.random.default_rng(groups)
    shape = (FILTERS, 3, 2, 6 // groups)
    x = CaseTensor((2, 5, 4, 6), kind)
    y = CaseTensor((2, 3, 2, FILTERS), kind)
    if kind == "float32":
        w = CaseTensor(shape, kind, data=rng.normal(size=shape).astype(np.float32))
        start = CaseTensor((FILTERS,), kind, data=np.arange(FILTERS, dtype=np.float32))
    else:
        zero = {"int8": (-3,), "int16": (0,), "uint8": (131,)}[kind]
        x = CaseTensor(x.shape, kind, (0.5,), zero)
        y = CaseTensor(y.shape, kind, (40.0,), zero)
        # Of uint8 layers, weights have one scale and zero point.
        count = 1 if kind == "uint8" else FILTERS
        scales = tuple(map(float, np.linspace(0.5, 2, count, dtype=np.float32)))
        if kind == "uint8":
            data = rng.integers(0, 256, shape).astype(np.uint8)
            w = CaseTensor(shape, "uint8", scales, (120,), data=data)
        else:
            data = rng.integers(-127, 128, shape).astype(np.int8)
            w = CaseTensor(shape, "int8", scales, (0,) * count, 0, data)
        bias_kind = "int64" if kind == "int16" else "int32"
        bias = rng.integers(-500, 500, FILTERS).astype(bias_kind)
        halves = tuple(0.5 * scale for scale in scales)
        axis = None if count == 1 else 0
        start = CaseTensor((FILTERS,), bias_kind, halves, (0,) * count, axis, bias)
    options = {
        "padding": "SAME",
        "stride_h": 2,
        "stride_w": 2,
        "fused_activation_function": "RELU",
    }
    return ConformanceCase("grouped", "CONV_2D", (x, w, start), (y,), options)


def import_cases(cases: list[ConformanceCase]) -> tuple[IRModule, bytes]:
    data = write_cases(cases)
    return import_model(read_tflite(data, "case"), "case", data, op_table()), data


@pytest.mark.parametrize(
    ("numerics", "kinds"),
    [("litert", ("int8", "int16", "float32", "uint8")), ("tflm", ("int8",))],
)
def test_each_group_has_its_channels(
    numerics: NumericsProfile, kinds: tuple[str, ...]
) -> None:
    cases = [grouped_case(kind, groups) for kind in kinds for groups in (2, 3, 6)]
    module, data = import_cases(cases)
    assert isinstance(module.entry, Function)
    operators = [call.op for call in module.entry.body]
    assert operators.count("conv2d") == (2 + 3) * len(kinds)
    assert operators.count("depthwise_conv2d") == len(kinds)
    rng = np.random.default_rng(5)
    sample: dict[str, np.ndarray] = {}
    for place, case in enumerate(cases):
        x = case.inputs[0]
        assert x is not None
        values = rng.normal(size=x.shape).astype(np.float32)
        if x.dtype != "float32":
            limits = np.iinfo(x.dtype)
            values = rng.integers(limits.min, limits.max + 1, x.shape).astype(x.dtype)
        sample[f"{place}.x0"] = values
    (expected,) = run_reference(data, [sample], numerics).outputs
    found = evaluate_graph(module.with_numerics(numerics), sample, op_table(), {})
    for name, y in expected.items():
        if y.dtype == np.float32:
            np.testing.assert_allclose(found[name], y, rtol=1e-5)
        else:
            np.testing.assert_array_equal(found[name], y)
            assert len(np.unique(y)) > 10


def test_groups_of_floats_with_int8_weights_are_refused() -> None:
    """LiteRT quantizes the channels of all groups with one scale."""
    x, w, _ = grouped_case("int8", 2).inputs
    assert x is not None
    assert w is not None
    plain = CaseTensor(x.shape, "float32")
    y = CaseTensor((2, 3, 2, FILTERS), "float32")
    zeros = CaseTensor((FILTERS,), "float32", data=np.zeros(FILTERS, np.float32))
    case = grouped_case("float32", 2)
    hybrid = ConformanceCase("h", "CONV_2D", (plain, w, zeros), (y,), case.options)
    with pytest.raises(UnsupportedError, match="3 channels of weights for 6"):
        import_cases([hybrid])
