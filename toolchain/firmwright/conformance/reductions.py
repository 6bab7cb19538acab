"""Conformance cases of reductions along axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import BOOL, FLOAT32, INT8, INT16, INT32, DType
from firmwright.conformance.case import (
    BOTH_PROFILES,
    LITERT,
    TFLM,
    CaseTable,
    CaseTensor,
    ConformanceCase,
)
from firmwright.conformance.data_movement import data_tensor, int_vector
from firmwright.conformance.tensors import constant_tensor
from firmwright.ir.graph.opdef import NumericsProfile
from firmwright.ops.axis_reduction import reduced_shape

_MEAN_GRID = (
    # name, shape, axes, keep_dims, (input scale, zero point), (output scale, zero point)
    ("spatial", (1, 5, 3, 4), (1, 2), False, (0.02, -128), (0.02, -128)),
    ("spatial_kept", (2, 4, 4, 3), (1, 2), True, (0.05, 4), (0.031, -7)),
    ("swapped", (1, 5, 7, 3), (2, 1), True, (0.05, 127), (0.07, 0)),
    ("last", (3, 5), (-1,), False, (0.1, -3), (0.05, 20)),
    ("last_kept", (2, 3, 7), (2,), True, (0.1, -3), (0.1, -3)),
    ("first_and_last", (3, 4, 5), (0, 2), False, (1.5, 10), (0.4, -50)),
    ("one_summand", (2, 1, 3), (1,), False, (0.3, 1), (0.4, 2)),
    ("many", (1, 33, 31, 2), (1, 2), False, (0.02, -100), (0.0008, 5)),
)


def _mean_tensor(shape: tuple[int, ...], dtype: str, quant: tuple[float, int]) -> CaseTensor:
    match dtype:
        case "int8":
            return CaseTensor(shape, dtype, (float(np.float32(quant[0])),), (quant[1],))
        case "int16":
            return CaseTensor(shape, dtype, (float(np.float32(quant[0] / 100)),), (0,))
    return CaseTensor(shape, dtype)


def _mean_cases(builtin: str) -> Iterator[ConformanceCase]:
    for index, (name, shape, axes, keep, x_quant, y_quant) in enumerate(_MEAN_GRID):
        reduced = {axis % len(shape) for axis in axes}
        y_shape = tuple(
            1 if axis in reduced else length
            for axis, length in enumerate(shape)
            if keep or axis not in reduced
        )
        for dtype in ("int8", "float32") if index % 3 else ("int8", "int16", "int32", "float32"):
            x, y = _mean_tensor(shape, dtype, x_quant), _mean_tensor(y_shape, dtype, y_quant)
            inputs = (x, constant_tensor(np.array(axes, np.int32)))
            options = {"keep_dims": keep}
            yield ConformanceCase(
                f"{name}_{dtype}", builtin, inputs, (y,), options, _mean_oracles(builtin, dtype)
            )


def _mean_oracles(builtin: str, dtype: str) -> tuple[NumericsProfile, ...]:
    if dtype == "int32":
        return ("litert",)
    return ("tflm",) if builtin == "SUM" and dtype != "float32" else ("litert", "tflm")


def _sum_cases() -> Iterator[ConformanceCase]:
    """Generate fewer cases than for means, because sums differ only in their factor."""
    names = ("spatial", "last", "many", "spatial_kept")
    return (case for case in _mean_cases("SUM") if case.name.rsplit("_", 1)[0] in names)


def reduction_cases(
    name: str, dtypes: Sequence[DType], in_tflm: Sequence[DType]
) -> Iterator[ConformanceCase]:
    for kind in dtypes:
        oracles = BOTH_PROFILES if kind in in_tflm else LITERT
        for title, shape, axes, keep, y in (
            ("last", (3, 4, 5), (-1,), False, (3, 4)),
            ("image", (1, 4, 3, 2), (1, 2), True, (1, 1, 1, 2)),
        ):
            tensors = data_tensor(shape, kind.name), int_vector(*axes)
            options = {"keep_dims": keep}
            out = (data_tensor(y, kind.name),)
            yield ConformanceCase(
                f"{title}_{kind.name}", name.upper(), tensors, out, options, oracles
            )


_ALL = (INT8, INT16, INT32, FLOAT32)


def _reduce_prod_cases() -> Iterator[ConformanceCase]:
    yield from reduction_cases("reduce_prod", (INT32, FLOAT32), ())
    for name, dtype, shape, axes, x_quant, y_quant in (
        ("last", "int8", (3, 4, 5), (-1,), (0.11, 3), (0.7, -9)),
        ("image", "int8", (1, 2, 3, 2), (1, 2), (0.02, -128), (0.004, 5)),
        ("one", "int8", (2, 1, 3), (1,), (0.05, 127), (0.06, 0)),
        ("last", "int16", (3, 2), (-1,), (0.001, 0), (0.02, 0)),
        ("three", "int16", (3, 3), (0,), (0.0001, 0), (0.002, 0)),
    ):
        x, y = (
            CaseTensor(size, dtype, (float(np.float32(scale)),), (zero,))
            for size, (scale, zero) in (
                (shape, x_quant),
                (reduced_shape(shape, [axis % len(shape) for axis in axes], False), y_quant),
            )
        )
        title, options = f"{name}_{dtype}_scaled", {"keep_dims": False}
        yield ConformanceCase(
            title, "REDUCE_PROD", (x, int_vector(*axes)), (y,), options, ("litert",)
        )


def _arg_min_max_cases() -> Iterator[ConformanceCase]:
    for builtin in ("ARG_MAX", "ARG_MIN"):
        for kind, result in (
            ("int8", "int32"), ("float32", "int32"), ("int32", "int32"), ("float32", "int64")
        ):  # fmt: skip
            for title, axis, y in (("last", -1, (4, 3)), ("middle", 1, (4, 7))):
                tensors = data_tensor((4, 3, 7), kind), int_vector(axis)
                options = {"output_type": 2 if result == "int32" else 4}
                oracles = BOTH_PROFILES if (kind, result) in _TFLM_ARG_TYPES else LITERT
                tail = "_int64" if result == "int64" else ""
                name = f"{builtin.lower()}_{title}_{kind}{tail}"
                yield ConformanceCase(
                    name, builtin, tensors, (CaseTensor(y, result),), options, oracles
                )


def _top_k_cases() -> Iterator[ConformanceCase]:
    for name, shape, k in (("three", (2, 9), 3), ("all", (2, 2, 5), 5), ("one", (11,), 1)):
        for dtype in ("int8", "int16", "int32", "float32"):
            if name != "three" and dtype not in ("int8", "float32"):
                continue
            y = (*shape[:-1], k)
            inputs = (
                data_tensor(shape, dtype),
                CaseTensor((), "int32", data=np.array(k, np.int32)),
            )
            outputs = (data_tensor(y, dtype), CaseTensor(y, "int32"))
            yield ConformanceCase(f"{name}_{dtype}", "TOPK_V2", inputs, outputs, {}, LITERT)


_TFLM_ARG_TYPES = (("int8", "int32"), ("float32", "int32"))


def _optional_quant_tensor(
    shape: Sequence[int], dtype: str, quant: tuple[float, int]
) -> CaseTensor:
    if dtype != "int8":
        return CaseTensor(tuple(shape), dtype)
    return CaseTensor(tuple(shape), dtype, (float(np.float32(quant[0])),), (quant[1],))


def _cumulative_oracles(dtype: str) -> tuple[NumericsProfile, ...]:
    return {"int8": TFLM, "int32": LITERT}.get(dtype, BOTH_PROFILES)


def _cumsum_cases() -> Iterator[ConformanceCase]:
    for name, axis, exclusive, reverse in (
        ("middle", 1, False, False),
        ("exclusive", 2, True, False),
        ("reverse", 0, False, True),
        ("both", -2, True, True),
    ):
        for dtype in ("int8", "int32", "float32"):
            x = _optional_quant_tensor((3, 4, 5), dtype, (0.05, 3))
            y = _optional_quant_tensor((3, 4, 5), dtype, (0.13, -7))
            where = CaseTensor((), "int32", data=np.array(axis, np.int32))
            options = {"exclusive": exclusive, "reverse": reverse}
            yield ConformanceCase(
                f"{name}_{dtype}", "CUMSUM", (x, where), (y,), options, _cumulative_oracles(dtype)
            )


def _add_n_cases() -> Iterator[ConformanceCase]:
    for dtype, count in (("int8", 2), ("int8", 5), ("int32", 3), ("float32", 3)):
        inputs = tuple(_optional_quant_tensor((2, 7), dtype, (0.05, 3)) for _ in range(count))
        outputs = (_optional_quant_tensor((2, 7), dtype, (0.13, -7)),)
        yield ConformanceCase(
            f"{count}_{dtype}", "ADD_N", inputs, outputs, {}, _cumulative_oracles(dtype)
        )


CASES: CaseTable = {
    "mean": partial(_mean_cases, "MEAN"),
    "sum": _sum_cases,
    "reduce_max": partial(reduction_cases, "reduce_max", _ALL, (INT8, FLOAT32)),
    "reduce_min": partial(reduction_cases, "reduce_min", _ALL, (INT8, FLOAT32)),
    "reduce_any": partial(reduction_cases, "reduce_any", (BOOL,), ()),
    "reduce_all": partial(reduction_cases, "reduce_all", (BOOL,), (BOOL,)),
    "reduce_prod": _reduce_prod_cases,
    "arg_min_max": _arg_min_max_cases,
    "top_k": _top_k_cases,
    "cumulative": _cumsum_cases,
    "add_n": _add_n_cases,
}
