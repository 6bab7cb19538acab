"""Conformance cases of operators that select elements by index."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from firmwright.conformance.case import (
    BOTH_PROFILES,
    LITERT,
    CaseTable,
    CaseTensor,
    ConformanceCase,
)
from firmwright.conformance.data_movement import data_tensor, index_tensor, int_vector


def _gather_cases() -> Iterator[ConformanceCase]:
    for name, x, indices, y, axis, batch in (
        ("rows", (5, 3), (4,), (4, 3), 0, 0),
        ("middle", (2, 5, 3), (2, 2), (2, 2, 2, 3), 1, 0),
        ("batches", (2, 3, 4, 2), (2, 3), (2, 3, 3, 2), 2, 1),
    ):
        for dtype in ("int8", "float32"):
            options = {"axis": axis, "batch_dims": batch}
            inputs = (data_tensor(x, dtype), index_tensor(indices, x[axis]))
            yield ConformanceCase(
                f"{name}_{dtype}", "GATHER", inputs, (data_tensor(y, dtype),), options
            )
    for dtype in ("int8", "float32"):
        table = data_tensor((7, 4), dtype)
        table = CaseTensor(
            table.shape, dtype, table.scales, table.zero_points,
            data=np.arange(28).reshape(7, 4).astype(dtype),
        )  # fmt: skip
        inputs = (index_tensor((3,), 7), table)
        yield ConformanceCase(
            f"table_{dtype}", "EMBEDDING_LOOKUP", inputs, (data_tensor((3, 4), dtype),)
        )


def _gather_nd_cases() -> Iterator[ConformanceCase]:
    for name, x, indices, y in (
        ("slices", (3, 3, 4), (5, 2), (5, 4)),
        ("all", (3, 3), (2, 2, 2), (2, 2)),
        ("first", (4, 5), (3, 1), (3, 5)),
    ):
        for dtype in ("int8", "float32") if name == "slices" else ("int8",):
            inputs = (data_tensor(x, dtype), index_tensor(indices, min(x[: indices[-1]])))
            yield ConformanceCase(f"{name}_{dtype}", "GATHER_ND", inputs, (data_tensor(y, dtype),))


def _dynamic_gather_cases() -> Iterator[ConformanceCase]:
    yield from _gather_cases()
    yield from _gather_nd_cases()


def _update_cases() -> Iterator[ConformanceCase]:
    for name, x, part, limits in (
        ("matrix", (4, 5), (2, 3), (0, 2)),
        ("beyond", (3, 4, 5), (1, 4, 2), (-3, 9)),
    ):
        for dtype in ("int8", "int16", "int32", "float32"):
            if name == "beyond" and dtype not in ("int8", "float32"):
                continue
            start = CaseTensor((len(x),), "int32", value_range=limits)
            inputs = (data_tensor(x, dtype), data_tensor(part, dtype), start)
            outputs = (data_tensor(x, dtype),)
            yield ConformanceCase(
                f"{name}_{dtype}", "DYNAMIC_UPDATE_SLICE", inputs, outputs, {}, BOTH_PROFILES
            )


def _scatter_cases() -> Iterator[ConformanceCase]:
    for name, indices, parts, shape in (
        ("rows", (3, 1), (3, 4), (5, 4)),
        ("elements", (2, 3, 2), (2, 3), (3, 4)),
    ):
        for dtype in ("int8", "int32", "float32"):
            size = CaseTensor((len(shape),), "int32", data=np.array(shape, np.int32))
            inputs = (index_tensor(indices, min(shape)), data_tensor(parts, dtype), size)
            outputs = (data_tensor(shape, dtype),)
            yield ConformanceCase(f"{name}_{dtype}", "SCATTER_ND", inputs, outputs, {}, LITERT)


def _one_hot_cases() -> Iterator[ConformanceCase]:
    def scalar(value: float, dtype: str) -> CaseTensor:
        return CaseTensor((), dtype, data=np.array(value, dtype))

    for name, axis, y, dtype in (
        ("last", -1, (2, 3, 4), "float32"),
        ("first", 0, (4, 2, 3), "int8"),
        ("middle", 1, (2, 4, 3), "int32"),
    ):
        inputs = (
            CaseTensor((2, 3), "int32", value_range=(-1, 4)),
            scalar(4, "int32"),
            scalar(5, dtype),
            scalar(-2, dtype),
        )
        out = (CaseTensor(y, dtype),)
        yield ConformanceCase(f"{name}_{dtype}", "ONE_HOT", inputs, out, {"axis": axis}, LITERT)


def _reverse_sequence_cases() -> Iterator[ConformanceCase]:
    for name, seq, batch in (("rows", 1, 0), ("columns", 0, 2)):
        shape = (3, 4, 2)
        inputs = (
            CaseTensor(shape, "float32"),
            CaseTensor((shape[batch],), "int32", value_range=(1, shape[seq])),
        )
        options = {"seq_dim": seq, "batch_dim": batch}
        yield ConformanceCase(
            f"{name}_float32", "REVERSE_SEQUENCE", inputs, inputs[:1], options, LITERT
        )


def _select_cases() -> Iterator[ConformanceCase]:
    for name, condition, a, b, y in (
        ("same", (2, 7), (2, 7), (2, 7), (2, 7)),
        ("spread", (3, 1), (2, 1, 4), (3, 4), (2, 3, 4)),
    ):
        for dtype in ("int8", "int16", "int32", "float32"):
            if name == "same" and dtype not in ("int8", "float32"):
                continue
            inputs = (CaseTensor(condition, "bool"), data_tensor(a, dtype), data_tensor(b, dtype))
            oracles = LITERT if dtype == "int32" else BOTH_PROFILES
            yield ConformanceCase(
                f"{name}_{dtype}", "SELECT_V2", inputs, (data_tensor(y, dtype),), {}, oracles
            )
    inputs = (CaseTensor((2, 7), "bool"), data_tensor((2, 7), "int8"), data_tensor((2, 7), "int8"))
    yield ConformanceCase("first_int8", "SELECT", inputs, inputs[1:2], {}, LITERT)


def _constant_cases() -> Iterator[ConformanceCase]:
    out = (CaseTensor((3,), "int32"),)
    yield ConformanceCase("shape", "SHAPE", (data_tensor((2, 3, 4), "int8"),), out, {"out_type": 2})
    x = (CaseTensor((2, 3, 4), "float32"),)
    yield ConformanceCase("rank", "RANK", x, (CaseTensor((), "int32"),), {}, LITERT)
    yield ConformanceCase("spread", "BROADCAST_ARGS", (int_vector(2, 1, 4), int_vector(3, 1)), out)


def _fill_cases() -> Iterator[ConformanceCase]:
    for dtype in ("int8", "int32", "float32"):
        value, y = CaseTensor((), dtype), CaseTensor((2, 3), dtype)
        yield ConformanceCase(f"value_{dtype}", "FILL", (int_vector(2, 3), value), (y,))
    for dtype in ("int32", "float32"):
        x = CaseTensor((2, 3), dtype)
        yield ConformanceCase(f"zeros_{dtype}", "ZEROS_LIKE", (x,), (x,))


CASES: CaseTable = {
    "dynamic_gather": _dynamic_gather_cases,
    "dynamic_update_slice": _update_cases,
    "scatter_nd": _scatter_cases,
    "one_hot": _one_hot_cases,
    "reverse_sequence": _reverse_sequence_cases,
    "select": _select_cases,
    "constant": _constant_cases,
    "fill": _fill_cases,
}
