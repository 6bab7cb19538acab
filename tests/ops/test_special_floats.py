"""NaN, infinities, zeros and huge numbers in TFLite's float operators, on every board.

The results are those of LiteRT's reference kernels, but infinities of layers stay: the
kernels limit them to the greatest numbers, even without an activation.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.conformance.case_tables import (
    CaseTensor,
    ConformanceCase,
    conformance_cases,
)
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.oracle.tflite_interpreters import RESOLVERS, LiteRtRuntime
from tests.ops.tflite_writer import write_cases
from tests.special_floats import MANY_OPERATORS, draw_special

Array = NDArray[np.generic]
# fmt: off
OPERATORS = (
    "abs", "add", "average_pool2d", "batch_matmul", "ceil", "conv2d", "cos",
    "cumulative", "depthwise_conv2d", "div", "elu", "equal", "exp", "floor",
    "fully_connected", "gelu", "greater", "greater_equal", "hard_swish",
    "l2_normalization", "l2_pool2d", "leaky_relu", "less", "less_equal",
    "local_response_normalization", "log", "log_softmax", "logistic", "max_pool2d",
    "maximum", "mean", "minimum", "mul", "neg", "not_equal", "pow", "prelu",
    "reduce_max", "reduce_min", "reduce_prod", "relu", "relu6", "relu_0_to_1",
    "relu_n1_to_1", "resize_bilinear", "round", "rsqrt", "select", "sign", "sin",
    "softmax", "sqrt", "square", "squared_difference", "sub", "sum", "tanh",
    "transpose_conv", "variable_fully_connected",
)
# fmt: on
GREATEST = float(np.finfo(np.float32).max)
SAMPLES = 2


def cases() -> Iterator[ConformanceCase]:
    """Yield the cases of float inputs that have no state."""
    for op in OPERATORS:
        for case in conformance_cases(op):
            inputs = [tensor for tensor in case.inputs if tensor is not None]
            has_floats = any(x.has_samples and x.dtype == "float32" for x in inputs)
            has_state = any(x.is_state for x in inputs)
            if has_floats and not has_state and "litert" in case.oracles:
                yield case


def _drawn(tensor: CaseTensor, seed: int) -> Array:
    if tensor.dtype == "float32":
        return draw_special(tensor.shape, 6, seed)
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, tensor.shape).astype(tensor.dtype)


def sample(group: Sequence[ConformanceCase], number: int) -> dict[str, Array]:
    """Return the inputs of a model of all cases."""
    values = {}
    for index, case in enumerate(group):
        for k, tensor in enumerate(case.inputs):
            if tensor is not None and tensor.has_samples:
                seed = zlib.crc32(f"{case.name} {number} {k}".encode())
                values[f"{index}.x{k}"] = _drawn(tensor, seed)
    return values


def _differs(own: Array, expected: Array) -> bool:
    with np.errstate(all="ignore"):
        same = (own == expected) | ((own != own) & (expected != expected))
        if expected.dtype.kind == "f":
            limited = np.clip(own, -GREATEST, GREATEST)
            same |= np.isclose(limited, expected, 1e-4, 1e-5)
    return not same.all()


@pytest.mark.parametrize("board", MANY_OPERATORS)
def test_special_floats_give_the_results_of_litert(board: str, tmp_path: Path) -> None:
    group = list(cases())
    data = write_cases(group)
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    samples = [sample(group, number) for number in range(SAMPLES)]
    with open_session(compile_for(load_model(path), board)) as session:
        outputs = session.run_all(samples)
    runtime = LiteRtRuntime(data, layers=False, resolver=RESOLVERS["litert"])
    names = [f"{case.builtin} {case.name}" for case in group for _ in case.outputs]
    wrong = set()
    for values, own in zip(samples, outputs, strict=True):
        expected = runtime.run(list(values.values()))
        for name, y, reference in zip(names, own.values(), expected, strict=True):
            if _differs(y, np.asarray(reference)):
                wrong.add(name)
    assert sorted(wrong) == []
