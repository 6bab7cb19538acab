"""The conformance matrix: cases run, passed and missing, by operator and element type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from firmwright.flows.selftest import SelfTestResult
from firmwright.ops.registry import import_table

DTYPES = ("int8", "int16", "int32", "float32", "bool")
Status = Literal["passed", "failed", "untested", "unsupported"]

_TFLM_TYPES = """
int8 int16 int32 float32 bool:
    BATCH_TO_SPACE_ND BROADCAST_TO CAST CONCATENATION DYNAMIC_UPDATE_SLICE EMBEDDING_LOOKUP
    EQUAL FILL GATHER GATHER_ND MIRROR_PAD NOT_EQUAL PAD REDUCE_MAX REDUCE_MIN REDUCE_PROD
    RESHAPE REVERSE_V2 SELECT SELECT_V2 SPACE_TO_BATCH_ND SUM TILE
int8 int16 int32 float32:
    ABS ADD DIV FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL MAXIMUM MEAN MINIMUM
    MUL NEG PACK QUANTIZE SQUARED_DIFFERENCE SUB TOPK_V2
int8 int32 float32 bool:
    ARG_MAX ARG_MIN ONE_HOT SCATTER_ND
int16 int32 float32:
    REVERSE_SEQUENCE
int8 int16 float32:
    AVERAGE_POOL_2D BATCH_MATMUL CONV_2D DEPTHWISE_CONV_2D EXP FULLY_CONNECTED GELU LEAKY_RELU
    LOG LOGISTIC MAX_POOL_2D PRELU RELU RELU6 RESIZE_BILINEAR RSQRT SOFTMAX SQRT TANH
    TRANSPOSE_CONV UNIDIRECTIONAL_SEQUENCE_LSTM
int8 int16 int32:
    BITWISE_XOR RIGHT_SHIFT
int8 int32 float32:
    ADD_N CUMSUM ZEROS_LIKE
int32 float32:
    POW SIGN
int8 float32:
    ELU HARD_SWISH L2_NORMALIZATION LOG_SOFTMAX RELU_0_TO_1 RELU_N1_TO_1 SVDF
int8 int16:
    DEQUANTIZE
bool:
    LOGICAL_AND LOGICAL_NOT LOGICAL_OR REDUCE_ALL REDUCE_ANY
float32:
    ATAN2 CEIL COS FLOOR L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION ROUND SIN SQUARE
"""
"""The element types that the reference kernels of LiteRT or TFLM accept, found by running them."""


@dataclass(frozen=True, slots=True)
class ConformanceCell:
    """One operator with one element type; `untested` means supported but without a case."""

    operator: str
    dtype: str
    cases: int
    passed: int
    status: Status


def _tflm_types() -> Mapping[str, frozenset[str]]:
    types_by_operator: dict[str, frozenset[str]] = {}
    kinds: frozenset[str] = frozenset()
    for line in _TFLM_TYPES.strip().splitlines():
        if line.endswith(":"):
            kinds = frozenset(line[:-1].split())
        else:
            types_by_operator.update(dict.fromkeys(line.split(), kinds))
    return types_by_operator


def build_matrix(test: SelfTestResult) -> list[ConformanceCell]:
    counts: dict[tuple[str, str], list[bool]] = {}
    for result in test.results:
        counts.setdefault((result.builtin, result.dtype), []).append(result.passed)
    imports = import_table()
    names = sorted({name.removeprefix("tflite:") for name in imports if name.startswith("tflite:")})
    return list(_cells(names, counts))


def _cells(
    names: list[str], counts: Mapping[tuple[str, str], list[bool]]
) -> Iterator[ConformanceCell]:
    accepted, imports = _tflm_types(), import_table()
    for name in names:
        for kind in DTYPES:
            ran = counts.get((name, kind), [])
            status: Status
            if ran:
                status = "passed" if all(ran) else "failed"
            elif kind not in accepted.get(name, ()):
                continue
            else:
                is_supported = kind in imports[f"tflite:{name}"].dtypes
                status = "untested" if is_supported else "unsupported"
            yield ConformanceCell(name, kind, len(ran), sum(ran), status)
