"""Conformance cases of softmax, log-softmax and local response normalization."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from firmwright.conformance.case import CaseTable, CaseTensor, ConformanceCase
from firmwright.ops.local_response_normalization import BUILTIN
from firmwright.ops.log_softmax import OUTPUT_ZERO_POINT


def _softmax_cases() -> Iterator[ConformanceCase]:
    for index, (shape, scale, zero_point) in enumerate(
        (
            ((1, 12), 0.18, 24),
            ((3, 5), 0.05, -128),
            ((2, 2, 7), 1.3, 127),
            ((1, 2), 0.0039, 0),
            ((1, 511), 0.02, -9),
        )
    ):
        x = CaseTensor(shape, "int8", (float(np.float32(scale)),), (zero_point,))
        y = CaseTensor(shape, "int8", (1 / 256,), (-128,))
        yield ConformanceCase(f"row{index}_int8", "SOFTMAX", (x,), (y,), {"beta": 1.0})
        if index != 1:
            x = CaseTensor(shape, "int16", (float(np.float32(scale / 200)),), (0,))
            y = CaseTensor(shape, "int16", (2.0**-15,), (0,))
            yield ConformanceCase(f"row{index}_int16", "SOFTMAX", (x,), (y,), {"beta": 1.0})
        if index in (1, 4):
            x = CaseTensor(shape, "int8", (float(np.float32(scale)),), (zero_point,))
            y = CaseTensor(shape, "int16", (2.0**-16,), (-32768,))
            yield ConformanceCase(f"row{index}_int8_int16", "SOFTMAX", (x,), (y,), {"beta": 1.0})
        x, y = CaseTensor(shape, "float32"), CaseTensor(shape, "float32")
        yield ConformanceCase(f"row{index}_float32", "SOFTMAX", (x,), (y,), {"beta": 1.0})


def _log_softmax_cases() -> Iterator[ConformanceCase]:
    for name, shape, scale, zero_point in (
        ("row", (1, 12), 0.05, 3),
        ("rows", (2, 3, 5), 0.2, -128),
        ("coarse", (4, 7), 1.3, 127),
        ("long", (1, 600), 0.0039, 9),
    ):
        x = CaseTensor(shape, "int8", (float(np.float32(scale)),), (zero_point,))
        y = CaseTensor(shape, "int8", (1 / 16,), (OUTPUT_ZERO_POINT,))
        yield ConformanceCase(f"{name}_int8", "LOG_SOFTMAX", (x,), (y,))
        if name != "coarse":
            real = CaseTensor(shape, "float32")
            yield ConformanceCase(f"{name}_float32", "LOG_SOFTMAX", (real,), (real,))


def _lrn_cases() -> Iterator[ConformanceCase]:
    for name, shape, radius, bias, alpha, beta in (
        ("narrow", (1, 2, 3, 7), 2, 1.0, 0.5, 0.75),
        ("wide", (2, 1, 1, 4), 9, 2.0, 0.25, 0.5),
        ("steep", (1, 1, 2, 12), 3, 0.5, 1.5, 2.0),
    ):
        x = CaseTensor(shape, "float32")
        options = {"radius": radius, "bias": bias, "alpha": alpha, "beta": beta}
        yield ConformanceCase(f"{name}_float32", BUILTIN, (x,), (x,), options, ("litert",))


CASES: CaseTable = {
    "softmax": _softmax_cases,
    "log_softmax": _log_softmax_cases,
    "local_response_normalization": _lrn_cases,
}
