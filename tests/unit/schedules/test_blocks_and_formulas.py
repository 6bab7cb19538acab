"""Blocks of sums, formulas on the FPU and searches, against the default loops."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import FLOAT32, INT8, UINT8
from firmwright.base.quant import Quantization
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.attributes.values import ExpressionAttrs
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.interpreter import interpret
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG
from firmwright.schedules.fpu.expressions import INTRINSICS as OWN
from firmwright.schedules.registry import INTRINSICS, SCHEDULES


def call_of(op: str, inputs, dtype=FLOAT32, **attrs) -> OpCall:
    kinds = tuple(TensorType(shape, FLOAT32) for shape in inputs)
    unshaped = OpCall(
        op, kinds, (TensorType((1,), dtype),), attrs_from_mapping(op, attrs)
    )
    return OpCall(
        op, kinds, op_table()[op].infer(unshaped), attrs_from_mapping(op, attrs)
    )


def formula(text: str, dtype=FLOAT32) -> OpCall:
    return call_of("expression", [(5, 9)], dtype, formula=text)


def reduction(a, b, axes, step: str = "add") -> OpCall:
    attrs = {"formula": "a * b", "step": step, "axes": axes, "keep_dims": False}
    return call_of("reduction", [a, b], **attrs)


def convolution(x, w, before, stride, outputs) -> OpCall:
    attrs = {"before": before, "stride": stride, "outputs": outputs, "groups": 1}
    return call_of("conv_nd", [x, w, w[:1]], dilation=(1,) * len(stride), **attrs)


def transposed(filters: int) -> OpCall:
    random = np.random.default_rng(filters)
    arrays = [
        random.uniform(-1, 1, shape) for shape in ((filters, 3, 2, 5), (filters,))
    ]
    constants = (
        Constant.from_array("c", a.astype(np.float32), FLOAT32) for a in arrays
    )
    kinds = tuple(
        TensorType(shape, FLOAT32)
        for shape in ((1, 3, 4, 5), *(a.shape for a in arrays))
    )
    result = TensorType((1, 6, 8, filters), FLOAT32)
    attrs = {"stride": (2, 2), "before": (1, 0), "activation": "relu"}
    return OpCall(
        "transpose_conv",
        kinds,
        (result,),
        attrs_from_mapping("transpose_conv", attrs),
        (None, *constants),
    )


CALLS = {
    "a transposed convolution": transposed(10),
    "a clipped round": formula(
        "min(max(rint(a / 0.5 + 0.0) - 0.0, -128.0), 127.0) * 0.5"
    ),
    "int8 with offset": formula("int8(min(max(rint(a) + 3.0, -128.0), 127.0))", INT8),
    "a relu of a sum": formula("max(a * 0.25 + a, 0.0)"),
    "one limit": formula("int8(min(rint(a * a) - 3.0, 127.0))", INT8),
    "a matrix product": reduction((6, 5, 1), (1, 5, 7), (1,)),
    "matrices": call_of(
        "batch_matmul", [(2, 6, 5), (2, 5, 8)], adj_x=False, adj_y=False
    ),
    "turned matrices": call_of(
        "batch_matmul", [(2, 5, 6), (3, 1, 9, 5)], adj_x=True, adj_y=True
    ),
    "a small product": reduction((2, 5, 1), (1, 5, 3), (1,), "max"),
    "rows of a batch": reduction((3, 4, 5, 1), (1, 1, 5, 9), (2,)),
    "two axes": convolution((1, 5, 6, 7), (11, 5, 3, 2), (1, 0), (1, 2), (6, 3)),
    "three axes": convolution(
        (1, 2, 4, 3, 5), (3, 2, 2, 2, 3), (0, 1, 1), (2, 1, 1), (2, 4, 5)
    ),
}


def executed(kernel: Kernel, arrays) -> np.ndarray:
    func, y = kernel.build(), np.zeros(kernel.y.shape, kernel.y.dtype.np)
    named = {
        param.name: array for param, array in zip(func.params, arrays, strict=False)
    }
    interpret(func, {**named, kernel.y.name: y}, INTRINSICS, constants=kernel.constants)
    return y


@pytest.mark.parametrize("name", CALLS)
def test_kernels_equal_the_default_loops(name: str) -> None:
    call, random = CALLS[name], np.random.default_rng(len(name))
    arrays = [
        random.uniform(-150, 150, call.input(index).shape).round(1).astype(np.float32)
        for index in range(len(call.inputs))
        if call.constant(index) is None
    ]
    default, tried = Kernel("kernel", call), 0
    op_table()[call.op].lower(call, default)
    expected = executed(default, arrays)
    for schedule in SCHEDULES:
        is_tested = schedule.op == call.op and not schedule.name.endswith(".unrolled")
        for config in schedule.configs(call) if is_tested else ():
            kernel, tried = Kernel("kernel", call), tried + 1
            schedule.build(call, config, kernel)
            np.testing.assert_array_equal(executed(kernel, arrays), expected)
    assert tried


def test_formulas_of_integers_are_in_line_if_they_call_functions() -> None:
    kind = TensorType((5, 9), INT8)
    schedules = [item for item in SCHEDULES if item.name.endswith("expression.in_line")]
    for text, offered in (("int8(rint(float32(a) * 0.3))", True), ("a + a", False)):
        call = OpCall(
            "expression", (kind,), (kind,), ExpressionAttrs(formula=text), (None,)
        )
        assert [bool(item.configs(call)) for item in schedules] == [offered] * 4


@pytest.mark.parametrize(("dtype", "zero_point"), [(INT8, -5), (UINT8, 128)])
def test_a_search_quantizes_every_kind_of_float_as_division_does(
    dtype, zero_point: int
) -> None:
    ends = [0.0, -0.0, 1e-40, -1e-40, 3.4e38, -3.4e38, np.inf, -np.inf]
    ties = np.arange(-300, 300) * np.float32(0.15)
    near = np.nextafter(ties.astype(np.float32), np.float32(np.inf))
    x = np.concatenate([ends, ties, near]).astype(np.float32)
    quantization = Quantization((float(np.float32(0.3)),), (zero_point,))
    result = TensorType(x.shape, dtype, quantization)
    call = OpCall("quantize", (TensorType(x.shape, FLOAT32),), (result,), NO_ATTRS)
    kernel = Kernel("kernel", call)
    (schedule,) = (item for item in SCHEDULES if item.name == "scalar.quantize.search")
    schedule.build(call, NO_CONFIG, kernel)
    (expected,) = op_table()["quantize"].reference(call, [x])
    np.testing.assert_array_equal(executed(kernel, [x]), expected)
    assert len(np.unique(expected)) == 256


@pytest.mark.host_c
def test_the_c_text_of_rounding_is_exact(tmp_path: Path) -> None:
    (nearest,) = (item for item in OWN if "nearest" in item.name)
    source = "#include <stdint.h>\nstatic int32_t f(float x)\n{\n" + nearest.portable
    source += "\n}\nvoid all(const float *x, int32_t *y, int n)\n{\n"
    source += "    for (int i = 0; i < n; ++i) {\n        y[i] = f(x[i]);\n    }\n}\n"
    (tmp_path / "nearest.c").write_text(source)
    command = ["gcc", "-O1", "-shared", "-fPIC", "-o", "nearest.so", "nearest.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    ties = np.arange(-2000, 2000) / 8
    edges = [
        0.0,
        -0.0,
        1e-40,
        4194303.5,
        -4194304.5,
        8388606.5,
        8388607.0,
        1e9,
        -np.inf,
        np.inf,
    ]
    x = np.concatenate(
        [ties, np.nextafter(ties, 9), np.geomspace(1e-3, 1e7, 3000), edges]
    )
    x = x.astype(np.float32)
    y = np.zeros(len(x), np.int32)
    ctypes.CDLL(str(tmp_path / "nearest.so")).all(
        x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), len(x)
    )
    np.testing.assert_array_equal(y, nearest.meaning(x))
