"""Conformance cases of LSTM and SVDF layers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from firmwright.conformance.case import (
    BOTH_PROFILES,
    LITERT,
    TFLM,
    CaseTable,
    CaseTensor,
    ConformanceCase,
    constant,
    float32,
    quantized,
)
from firmwright.ops.lstm import GATE_SCALE


def _lstm_case(
    name: str,
    dtype: str,
    time_major: bool,
    clip: float,
    quants: Sequence[tuple[float, int]],
    bias_reach: int = 2000,
) -> ConformanceCase:
    rng = np.random.default_rng(7)
    batch, time, inputs, units = 2, 4, 5, 3

    def tensor(
        shape: tuple[int, ...], kind: str, scale: float, zero: int = 0, reach: int = 0
    ) -> CaseTensor:
        if dtype == "float32":
            reals = rng.normal(size=shape).astype(np.float32) * np.float32(0.5) if reach else None
            return CaseTensor(shape, "float32", data=reals)
        values = rng.integers(-reach, reach + 1, shape).astype(kind) if reach else None
        return replace(quantized(shape, kind, scale, zero), data=values)

    x_quant, h_quant, (cell_scale, _) = quants
    scales = (0.01, 0.012, 0.008, 0.011)
    wide = "int64" if dtype == "int16" else "int32"
    x = tensor((time, batch, inputs) if time_major else (batch, time, inputs), dtype, *x_quant)
    hidden = tensor((batch, units), dtype, *h_quant)
    cell = tensor((batch, units), "int16", cell_scale)
    operands = (
        x,
        *(tensor((units, inputs), "int8", scale, 0, 127) for scale in scales),
        *(tensor((units, units), "int8", scale * 0.9, 0, 127) for scale in scales),
        *(None,) * 3,
        *(tensor((units,), wide, x_quant[0] * scale, 0, bias_reach) for scale in scales),
        *(None,) * 2,
        *(replace(state, is_state=True) for state in (hidden, cell)),
        *(None,) * 4,
    )
    y = tensor((*x.shape[:2], units), dtype, *h_quant)
    options = {
        "fused_activation_function": "TANH", "cell_clip": clip, "proj_clip": 0.0,
        "time_major": time_major, "asymmetric_quantize_inputs": False,
    }  # fmt: skip
    gates = (quantized((0,), "int16", GATE_SCALE),) * 4
    between = () if dtype == "float32" else (*gates, quantized((0,), dtype, *h_quant))
    return ConformanceCase(
        name, "UNIDIRECTIONAL_SEQUENCE_LSTM", operands, (y,), options,
        TFLM if dtype == "int16" else BOTH_PROFILES, between,
    )  # fmt: skip


def _lstm_cases() -> Iterator[ConformanceCase]:
    plain = ((0.05, 3), (1 / 128, 0), (2.0**-11, 0))
    yield _lstm_case("plain_int8", "int8", False, 0.0, plain)
    yield _lstm_case("turned_int8", "int8", True, 0.0, ((0.02, -128), (0.0061, 5), (2.0**-11, 0)))
    yield _lstm_case("clipped_int8", "int8", False, 0.4, ((0.05, -7), (0.007, -3), (2.0**-12, 0)))
    fine = ((0.0002, 0), (2.0**-15, 0), (2.0**-11, 0))
    yield _lstm_case("plain_int16", "int16", False, 0.0, fine, 200000)
    yield _lstm_case("turned_int16", "int16", True, 0.0, fine, 1 << 33)
    yield _lstm_case("clipped_int16", "int16", False, 0.4, ((1e-5, 0), (1e-4, 0), (2.0**-12, 0)))
    yield _lstm_case("plain_float32", "float32", False, 0.0, plain)
    yield _lstm_case("clipped_float32", "float32", True, 0.4, plain)


def _hybrid_lstm_cases() -> Iterator[ConformanceCase]:
    for case in _lstm_cases():
        if case.name.endswith("float32"):
            rng, inputs = np.random.default_rng(11), list(case.inputs)
            for index in range(1, 9):
                weights = case.inputs[index]
                assert weights is not None
                values = rng.integers(-127, 128, weights.shape).astype(np.int8)
                inputs[index] = constant(values, (float32(0.004 + 0.001 * index),))
            asymmetric = case.name.startswith("clipped")
            options = {**case.options, "asymmetric_quantize_inputs": asymmetric}
            yield replace(case, name=f"hybrid_{case.name}", inputs=tuple(inputs), options=options)


def _svdf_cases() -> Iterator[ConformanceCase]:
    batch, inputs, steps = 2, 5, 6
    for name, rank, units, activation in (("one", 1, 3, "NONE"), ("two", 2, 4, "RELU")):
        rng = np.random.default_rng([units, rank])
        filters = units * rank
        weights = [
            constant(rng.normal(size=shape).astype(np.float32))
            for shape in ((filters, inputs), (filters, steps), (units,))
        ]
        x, y = CaseTensor((batch, inputs), "float32"), CaseTensor((batch, units), "float32")
        state = CaseTensor((batch, filters * steps), "float32", is_state=True)
        options = {"rank": rank, "fused_activation_function": activation}
        yield ConformanceCase(f"{name}_float32", "SVDF", (x, *weights, state), (y,), options)
        narrow = (
            constant(rng.integers(-127, 128, kind.shape).astype(np.int8), (float32(0.01),))
            for kind in weights[:2]
        )
        options = {**options, "asymmetric_quantize_inputs": rank == 2}
        inputs_ = (x, *narrow, weights[2], state)
        yield ConformanceCase(f"hybrid_{name}_float32", "SVDF", inputs_, (y,), options, LITERT)
    yield _int8_svdf_case("one_int8", "int16", 1, 5, 3)
    yield _int8_svdf_case("two_int8", "int16", 2, 4, -128)
    yield _int8_svdf_case("narrow_int8", "int8", 2, 3, 9)
    yield _int8_svdf_case("offset_state_int8", "int8", 2, 3, 9, state_zero_point=-50)


def _int8_svdf_case(
    name: str, state_dtype: str, rank: int, units: int, zero_point: int, state_zero_point: int = 0
) -> ConformanceCase:
    rng = np.random.default_rng([units, rank])
    batch, inputs, steps, filters = 2, 5, 6, units * rank
    wide = state_dtype == "int16"
    reach, time_scale, state_scale = (9000, 0.0001, 0.0008) if wide else (127, 0.01, 0.07)
    features = rng.integers(-127, 128, (filters, inputs)).astype(np.int8)
    times = rng.integers(-reach, reach + 1, (filters, steps)).astype(state_dtype)
    time_scale = float32(time_scale)
    biases = rng.integers(-9000, 9000, units).astype(np.int32)
    state = quantized((batch, filters * steps), state_dtype, state_scale, state_zero_point)
    operands = (
        quantized((batch, inputs), "int8", 0.05, zero_point),
        constant(features, (float32(0.01),)),
        constant(times, (time_scale,)),
        constant(biases, (state_scale * time_scale,)) if units > 1 else None,
        replace(state, is_state=True),
    )
    y = quantized((batch, units), "int8", 0.06, -128)
    options = {"rank": rank, "fused_activation_function": "RELU"}
    return ConformanceCase(name, "SVDF", operands, (y,), options, BOTH_PROFILES if wide else TFLM)


CASES: CaseTable = {"lstm": _lstm_cases, "hybrid_lstm": _hybrid_lstm_cases, "svdf": _svdf_cases}
