"""Cases of uint8: the int8 conformance cases with unsigned tensors."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from firmwright.conformance.case_tables import (
    CaseTensor,
    ConformanceCase,
    conformance_cases,
    constant,
    float32,
    quantized,
)
from firmwright.ops.registry import op_table

OFFSET = 128
WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
SIGNED_ONLY = frozenset(
    (
        "ABS",
        "ADD_N",
        "BATCH_MATMUL",
        "BROADCAST_TO",
        "CUMSUM",
        "ELU",
        "EXP",
        "LOG",
        "REDUCE_PROD",
        "RSQRT",
        "SQRT",
        "SQUARED_DIFFERENCE",
        "SVDF",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        "custom:CIRCULAR_BUFFER",
    )
)
"""Operators for which LiteRT has int8 and no uint8."""


def unsigned_cases() -> Iterator[tuple[str, ConformanceCase]]:
    """Generate (operator, case) for every int8 case that LiteRT also runs as uint8."""
    for op in op_table():
        for case in conformance_cases(op):
            kinds = {tensor.dtype for tensor in (*case.inputs, *case.outputs) if tensor}
            mixed = kinds & {"int16", "int64", "int4"} or case.builtin in SIGNED_ONLY
            if op.startswith("hybrid_") or (
                case.builtin in WEIGHTED and "float32" in kinds
            ):
                continue
            if case.builtin == "QUANTIZE" and {"int32", "int16", "uint8"} & kinds:
                continue
            if "int8" in kinds and not mixed and _is_quantized(case):
                yield op, _unsigned(case)
            if op == "detections":
                yield op, _unsigned_detections(case)


def _unsigned_detections(case: ConformanceCase) -> ConformanceCase:
    boxes, scores, anchors = (tensor for tensor in case.inputs if tensor is not None)
    assert anchors.data is not None
    steps = np.round(anchors.data / 0.01).astype(np.int64) + 40
    coded = constant(steps.clip(0, 255).astype(np.uint8), (float32(0.01),))
    inputs = (
        quantized(boxes.shape, "uint8", 0.05, 131),
        quantized(scores.shape, "uint8", 1 / 256, 0),
        replace(coded, zero_points=(40,)),
    )
    return replace(case, name=f"{case.name}_unsigned", inputs=inputs)


def _is_quantized(case: ConformanceCase) -> bool:
    tensors = (*case.inputs, *case.outputs)
    return all(tensor.scales for tensor in tensors if tensor and tensor.dtype == "int8")


def _unsigned(case: ConformanceCase) -> ConformanceCase:
    inputs = [
        None if tensor is None else _as_unsigned(tensor) for tensor in case.inputs
    ]
    if case.builtin in WEIGHTED and inputs[1] is not None:
        rng = np.random.default_rng(zlib.crc32(case.name.encode()))
        inputs[1] = replace(inputs[1], zero_points=(int(rng.integers(0, 256)),))
        x, bias = inputs[2 if case.builtin == "TRANSPOSE_CONV" else 0], inputs[-1]
        if bias is not None and bias.scales and bias.dtype == "int32" and x is not None:
            unit = float32(x.scales[0] * inputs[1].scales[0])
            inputs[-1] = replace(bias, scales=(unit,), zero_points=(0,), axis=None)
    outputs = tuple(map(_as_unsigned, case.outputs))
    return replace(
        case, name=f"{case.name}_unsigned", inputs=tuple(inputs), outputs=outputs
    )


def _as_unsigned(tensor: CaseTensor) -> CaseTensor:
    if tensor.dtype != "int8" or not tensor.scales:
        return tensor
    data, limits = tensor.data, tensor.value_range
    return replace(
        tensor,
        dtype="uint8",
        scales=tensor.scales[:1],
        zero_points=(tensor.zero_points[0] + OFFSET,),
        axis=None,
        data=None if data is None else data.view(np.uint8) ^ OFFSET,
        value_range=limits and (limits[0] + OFFSET, limits[1] + OFFSET),
    )
