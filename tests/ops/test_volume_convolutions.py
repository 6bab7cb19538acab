"""Convolutions of volumes of .tflite files are within the float bound of LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError
from firmwright.conformance.case_tables import CaseTensor, ConformanceCase
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ops.registry import op_table
from firmwright.oracle.reference_runner import run_reference
from tests.ops.test_grouped_convolutions import import_cases

Shape = tuple[int, ...]
_STEPS = {"stride_d": 1, "stride_h": 2, "stride_w": 3}


def _floats(*shape: int) -> CaseTensor:
    data = np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)
    return CaseTensor(shape, "float32", data=data)


def _convolution(padding: str, activation: str, dilation: int) -> ConformanceCase:
    x = CaseTensor((2, 5, 6, 7, 3), "float32")
    inputs = (x, _floats(2, 3, 2, 3, 4), _floats(4))
    same = padding == "SAME"
    rows = 6 if same else 4
    depth = 5 if same else 4
    if dilation == 2:
        rows, depth = (6, 5) if same else (2, 3)
    columns = 7 if same else 7 - dilation
    strides = (1, 1, 1) if dilation > 1 else (1, 2, 3)
    y = (2, *(-(-n // s) for n, s in zip((depth, rows, columns), strides, strict=True)))
    options = {
        "padding": padding,
        "fused_activation_function": activation,
        **dict(zip(_STEPS, strides, strict=True)),
        **dict.fromkeys(("dilation_d_factor", "dilation_h_factor"), dilation),
        "dilation_w_factor": dilation,
    }
    return ConformanceCase(
        "v", "CONV_3D", inputs, (CaseTensor((*y, 4), "float32"),), options
    )


def _transposed(padding: str, size: Shape) -> ConformanceCase:
    shape = CaseTensor((5,), "int32", data=np.array((2, *size, 3), np.int32))
    x = CaseTensor((2, 2, 3, 2, 4), "float32")
    inputs = (shape, _floats(2, 3, 4, 3, 4), x, _floats(3))
    options = {"padding": padding, "fused_activation_function": "NONE", **_STEPS}
    options |= {f"dilation_{axis}_factor": 1 for axis in "dhw"}
    y = CaseTensor((2, *size, 3), "float32")
    return ConformanceCase("t", "CONV_3D_TRANSPOSE", inputs, (y,), options)


def test_volumes_equal_litert() -> None:
    cases = [
        _convolution("VALID", "NONE", 1),
        _convolution("SAME", "RELU", 1),
        _convolution("SAME", "RELU6", 2),
        _convolution("VALID", "RELU_N1_TO_1", 2),
        _transposed("VALID", (3, 7, 7)),
        _transposed("SAME", (2, 6, 6)),
        _transposed("SAME", (2, 5, 4)),
    ]
    module, data = import_cases(cases)
    rng = np.random.default_rng(5)
    sample: dict[str, np.ndarray] = {}
    for place, case in enumerate(cases):
        position = 2 if case.builtin == "CONV_3D_TRANSPOSE" else 0
        x = case.inputs[position]
        assert x is not None
        values = rng.normal(size=x.shape).astype(np.float32)
        sample[f"{place}.x{position}"] = values
    (expected,) = run_reference(data, [sample], "litert").outputs
    found = evaluate_graph(module, sample, op_table(), {})
    for name, y in expected.items():
        np.testing.assert_allclose(found[name], y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("padding", "size"), [("SAME", (2, 9, 9)), ("VALID", (1, 3, 3))]
)
def test_a_result_that_litert_refuses_is_refused(padding: str, size: Shape) -> None:
    with pytest.raises(UnsupportedError, match=r"of volumes \[2, 3, 2\]"):
        import_cases([_transposed(padding, size)])


@pytest.mark.parametrize("builtin", ["CONV_3D", "CONV_3D_TRANSPOSE"])
def test_the_operators_are_in_the_table(builtin: str) -> None:
    case = _convolution("SAME", "NONE", 1)
    if builtin == "CONV_3D_TRANSPOSE":
        case = _transposed("SAME", (2, 6, 6))
    module, _ = import_cases([case])
    calls = [call.op for call in module.entry_graph.body]
    assert calls == [
        "transpose",
        "conv_nd" if builtin == "CONV_3D" else "conv_transpose_nd",
        "transpose",
    ]
