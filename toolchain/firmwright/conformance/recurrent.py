"""Conformance cases of operators with state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from firmwright.conformance.case import BOTH_PROFILES, TFLM, CaseTable, CaseTensor, ConformanceCase
from firmwright.ir.graph.opdef import NumericsProfile
from firmwright.ops.lstm import GATE_SCALE


def _lstm_case(
    name: str,
    dtype: str,
    time_major: bool,
    clip: float,
    quants: Sequence[tuple[float, int]],
    bias_reach: int = 2000,
) -> ConformanceCase:
    rng = np.random.Generator(np.random.PCG64(7))
    batch, time, inputs, units = 2, 4, 5, 3
    x_shape = (time, batch, inputs) if time_major else (batch, time, inputs)

    def tensor(
        shape: tuple[int, ...],
        kind: str,
        scale: float,
        zero: int,
        reach: int = 0,
        is_state: bool = False,
    ) -> CaseTensor:
        if dtype == "float32":
            data = rng.normal(size=shape).astype(np.float32) * np.float32(0.5) if reach else None
            return CaseTensor(shape, "float32", data=data, is_state=is_state)
        values = rng.integers(-reach, reach + 1, shape).astype(kind) if reach else None
        return CaseTensor(shape, kind, (float(np.float32(scale)),), (zero,), None, values, is_state)

    (x_scale, x_zero), (h_scale, h_zero), (cell_scale, _) = quants
    scales = (0.01, 0.012, 0.008, 0.011)
    inputs_: list[CaseTensor | None] = [tensor(x_shape, dtype, x_scale, x_zero)]
    inputs_ += [tensor((units, inputs), "int8", scale, 0, 127) for scale in scales]
    inputs_ += [tensor((units, units), "int8", scale * 0.9, 0, 127) for scale in scales]
    inputs_ += [None] * 3
    wide = "int64" if dtype == "int16" else "int32"
    inputs_ += [tensor((units,), wide, x_scale * scale, 0, bias_reach) for scale in scales]
    inputs_ += [None] * 2
    inputs_ += [tensor((batch, units), dtype, h_scale, h_zero, is_state=True)]
    inputs_ += [tensor((batch, units), "int16", cell_scale, 0, is_state=True)]
    inputs_ += [None] * 4
    y = tensor((*x_shape[:2], units), dtype, h_scale, h_zero)
    gate = CaseTensor((0,), "int16", (GATE_SCALE,), (0,))
    hidden = CaseTensor((0,), dtype, (float(np.float32(h_scale)),), (h_zero,))
    options = {
        "fused_activation_function": "TANH",
        "cell_clip": clip,
        "proj_clip": 0.0,
        "time_major": time_major,
        "asymmetric_quantize_inputs": False,
    }
    between = () if dtype == "float32" else (gate,) * 4 + (hidden,)
    oracles: tuple[NumericsProfile, ...] = ("tflm",) if dtype == "int16" else ("litert", "tflm")
    builtin = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    return ConformanceCase(name, builtin, tuple(inputs_), (y,), options, oracles, between)


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


def _svdf_case(
    name: str, kinds: Sequence[str], rank: int, units: int, zero_point: int
) -> ConformanceCase:
    rng = np.random.Generator(np.random.PCG64([units, rank]))
    batch, inputs, steps, filters = 2, 5, 6, units * rank
    if kinds[0] == "float32":
        x, y, state = (
            CaseTensor(shape, "float32", is_state=keeps)
            for shape, keeps in (
                ((batch, inputs), False), ((batch, units), False), ((batch, filters * steps), True)
            )
        )  # fmt: skip
        weights = [
            CaseTensor(shape, "float32", data=rng.normal(size=shape).astype(np.float32))
            for shape in ((filters, inputs), (filters, steps), (units,))
        ]
        options = {"rank": rank, "fused_activation_function": "RELU" if rank > 1 else "NONE"}
        return ConformanceCase(name, "SVDF", (x, *weights, state), (y,), options)
    reach = {"int8": 127, "int16": 9000}
    scales = {"int8": 0.01, "int16": 0.0001}
    feature, time = (
        CaseTensor(
            shape, kind, (float(np.float32(scales[kind])),), (0,), None,
            rng.integers(-reach[kind], reach[kind] + 1, shape).astype(kind),
        )
        for shape, kind in (((filters, inputs), kinds[1]), ((filters, steps), kinds[2]))
    )  # fmt: skip
    state_scale = 0.0008 if kinds[3] == "int16" else 0.07
    state = CaseTensor((batch, filters * steps), kinds[3], (state_scale,), (0,), is_state=True)
    values = rng.integers(-9000, 9000, units).astype(np.int32)
    bias = CaseTensor((units,), "int32", (state_scale * time.scales[0],), (0,), data=values)
    x = CaseTensor((batch, inputs), "int8", (float(np.float32(0.05)),), (zero_point,))
    y = CaseTensor((batch, units), "int8", (float(np.float32(0.06)),), (-128,))
    options = {"rank": rank, "fused_activation_function": "RELU"}
    oracles = BOTH_PROFILES if kinds[3] == "int16" else TFLM
    has_bias = bias if units > 1 else None
    return ConformanceCase(
        name, "SVDF", (x, feature, time, has_bias, state), (y,), options, oracles
    )


def _svdf_cases() -> Iterator[ConformanceCase]:
    yield _svdf_case("one_float32", ("float32",) * 4, 1, 3, 0)
    yield _svdf_case("two_float32", ("float32",) * 4, 2, 4, 0)
    yield _svdf_case("one_int8", ("int8", "int8", "int16", "int16"), 1, 5, 3)
    yield _svdf_case("two_int8", ("int8", "int8", "int16", "int16"), 2, 4, -128)
    yield _svdf_case("narrow_int8", ("int8", "int8", "int8", "int8"), 2, 3, 9)


def _circular_buffer_cases() -> Iterator[ConformanceCase]:
    for name, slots, options in (("told", 3, {"cycles_max": 1}), ("known", 5, {})):
        x = CaseTensor((1, 1, 2, 3), "int8", (0.5,), (-7,))
        y = CaseTensor((1, slots, 2, 3), "int8", (0.5,), (-7,), is_state=True)
        yield ConformanceCase(name, "custom:CIRCULAR_BUFFER", (x,), (y,), options, TFLM)


CASES: CaseTable = {
    "lstm": _lstm_cases,
    "svdf": _svdf_cases,
    "circular_buffer": _circular_buffer_cases,
}
