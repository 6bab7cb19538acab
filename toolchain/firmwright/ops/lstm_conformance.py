"""Conformance cases of lstm: small layers of every element type, time-major and clipped.

time_major swaps axes of x and y only; biases have the scale of x times that of their weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from firmwright.ir.graph.opdef import CaseTensor, ConformanceCase, NumericsProfile

GATE_SCALE = 2.0**-12
"""Scale of a gate's 16-bit sum."""


def _case(
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


def cases() -> Iterator[ConformanceCase]:
    plain = ((0.05, 3), (1 / 128, 0), (2.0**-11, 0))
    yield _case("plain_int8", "int8", False, 0.0, plain)
    yield _case("turned_int8", "int8", True, 0.0, ((0.02, -128), (0.0061, 5), (2.0**-11, 0)))
    yield _case("clipped_int8", "int8", False, 0.4, ((0.05, -7), (0.007, -3), (2.0**-12, 0)))
    fine = ((0.0002, 0), (2.0**-15, 0), (2.0**-11, 0))
    yield _case("plain_int16", "int16", False, 0.0, fine, 200000)
    yield _case("turned_int16", "int16", True, 0.0, fine, 1 << 33)
    yield _case("clipped_int16", "int16", False, 0.4, ((1e-5, 0), (1e-4, 0), (2.0**-12, 0)))
    yield _case("plain_float32", "float32", False, 0.0, plain)
    yield _case("clipped_float32", "float32", True, 0.4, plain)
