"""Conformance cases of operators that copy or rearrange elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.conformance.case import (
    BOTH_PROFILES,
    LITERT,
    TFLM,
    CaseTable,
    CaseTensor,
    ConformanceCase,
)
from firmwright.ir.graph.opdef import NumericsProfile


def data_tensor(shape: Sequence[int], dtype: str) -> CaseTensor:
    """Return a tensor with an arbitrary quantization if it is int8."""
    scales, zero_points = ((0.5,), (3,)) if dtype == "int8" else ((), ())
    return CaseTensor(tuple(shape), dtype, scales, zero_points)


def int_vector(*values: int) -> CaseTensor:
    return CaseTensor((len(values),), "int32", data=np.array(values, np.int32))


def index_tensor(shape: Sequence[int], count: int) -> CaseTensor:
    """Return a tensor of sampled indices in [0, count)."""
    return CaseTensor(tuple(shape), "int32", value_range=(0, count - 1))


def data_movement_cases(
    builtin: str,
    name: str,
    x: Sequence[int],
    y: Sequence[int],
    extra: Sequence[CaseTensor] = (),
    options: Mapping[str, object] = MappingProxyType({}),
    oracles: tuple[NumericsProfile, ...] = BOTH_PROFILES,
    dtypes: Sequence[str] = ("int8", "float32"),
) -> Iterator[ConformanceCase]:
    for dtype in dtypes:
        inputs = (data_tensor(x, dtype), *extra)
        yield ConformanceCase(
            f"{name}_{dtype}", builtin, inputs, (data_tensor(y, dtype),), options, oracles
        )


def _transpose_cases() -> Iterator[ConformanceCase]:
    yield from data_movement_cases(
        "TRANSPOSE", "image", (1, 3, 4, 5), (1, 5, 3, 4), [int_vector(0, 3, 1, 2)]
    )
    yield from data_movement_cases(
        "TRANSPOSE", "matrix", (7, 3), (3, 7), [int_vector(1, 0)], dtypes=("int16",)
    )
    yield from data_movement_cases(
        "TRANSPOSE", "ends", (2, 3, 4), (4, 3, 2), [int_vector(2, 1, 0)], dtypes=("int8",)
    )


def _slice_cases() -> Iterator[ConformanceCase]:
    yield from data_movement_cases(
        "SLICE", "box", (2, 5, 4), (2, 3, 2), [int_vector(0, 1, 2), int_vector(2, 3, -1)]
    )
    for name, x, y, begin, end, strides, masks in (
        ("steps", (5, 7), (2, 3), (1, 6), (4, 0), (2, -2), (0, 0, 0)),
        ("open", (4, 6, 3), (3, 2, 3), (1, 5), (0, 0), (1, -4), (0, 3, 0)),
        ("shrunk", (3, 4, 5), (4, 2), (-1, 0, 1), (0, 4, 3), (1, 1, 1), (2, 2, 1)),
    ):
        yield from data_movement_cases(
            "STRIDED_SLICE", name, x, y,
            [int_vector(*begin), int_vector(*end), int_vector(*strides)],
            {
                "begin_mask": masks[0], "end_mask": masks[1], "shrink_axis_mask": masks[2],
                "ellipsis_mask": 0, "new_axis_mask": 0,
            },
            oracles=LITERT if name == "open" else BOTH_PROFILES,  # TFLM computes another length
            dtypes=("int8",),
        )  # fmt: skip


def _split_cases() -> Iterator[ConformanceCase]:
    for dtype in ("int8", "float32"):
        x, part = data_tensor((2, 6, 3), dtype), data_tensor((2, 2, 3), dtype)
        yield ConformanceCase(
            f"thirds_{dtype}", "SPLIT", (int_vector(1), x), (part,) * 3, {"num_splits": 3}
        )
    parts = (data_tensor((2, 1, 3), "int8"), data_tensor((2, 5, 3), "int8"))
    inputs = (data_tensor((2, 6, 3), "int8"), int_vector(1, -1), int_vector(-2))
    yield ConformanceCase("sizes_int8", "SPLIT_V", inputs, parts, {"num_splits": 2})


def _pack_cases() -> Iterator[ConformanceCase]:
    for name, axis, y in (
        ("middle", 1, (2, 3, 4)),
        ("last", -1, (2, 4, 3)),
        ("first", 0, (3, 2, 4)),
    ):
        inputs = (data_tensor((2, 4), "int8"),) * 3
        options = {"values_count": 3, "axis": axis}
        yield ConformanceCase(f"{name}_int8", "PACK", inputs, (data_tensor(y, "int8"),), options)


def _unpack_cases() -> Iterator[ConformanceCase]:
    for name, axis, y, num in (("middle", 1, (2, 4), 3), ("last", -1, (2, 3), 4)):
        outputs = (data_tensor(y, "int8"),) * num
        options = {"num": num, "axis": axis}
        yield ConformanceCase(
            f"{name}_int8", "UNPACK", (data_tensor((2, 3, 4), "int8"),), outputs, options
        )


def _gather_cases() -> Iterator[ConformanceCase]:
    options = {"axis": 1, "batch_dims": 0}
    yield from data_movement_cases(
        "GATHER", "rows", (2, 5, 3), (2, 4, 3), [int_vector(4, 0, 0, 2)], options
    )


def _tile_cases() -> Iterator[ConformanceCase]:
    yield from data_movement_cases(
        "TILE", "twice", (2, 3), (4, 9), [int_vector(2, 3)], oracles=LITERT
    )


def _broadcast_cases() -> Iterator[ConformanceCase]:
    yield from data_movement_cases(
        "BROADCAST_TO", "both", (3, 1), (2, 3, 4), [int_vector(2, 3, 4)], oracles=TFLM
    )


def _reverse_cases() -> Iterator[ConformanceCase]:
    yield from data_movement_cases("REVERSE_V2", "rows", (2, 5, 3), (2, 5, 3), [int_vector(1)])


def _mirror_cases() -> Iterator[ConformanceCase]:
    pads = CaseTensor((2, 2), "int32", data=np.array([[2, 1], [0, 3]], np.int32))
    yield from data_movement_cases("MIRROR_PAD", "reflect", (3, 4), (6, 7), [pads], {"mode": 0})
    yield from data_movement_cases(
        "MIRROR_PAD", "symmetric", (3, 4), (6, 7), [pads], {"mode": 1}, dtypes=("int8",)
    )


def _resize_nearest_cases() -> Iterator[ConformanceCase]:
    for name, corners, centers, y in (
        ("up", False, False, (1, 5, 7, 2)),
        ("corners", True, False, (1, 5, 6, 2)),
        ("centers", False, True, (1, 4, 2, 2)),
    ):
        options: dict[str, object] = {"align_corners": corners, "half_pixel_centers": centers}
        yield from data_movement_cases(
            "RESIZE_NEAREST_NEIGHBOR",
            name,
            (1, 2, 3, 2),
            y,
            [int_vector(*y[1:3])],
            options,
            dtypes=("int8",),
        )


def _space_batch_cases(
    builtin: str, rows: Sequence[tuple[str, Sequence[int], Sequence[int], tuple[int, ...], Array]]
) -> Callable[[], Iterator[ConformanceCase]]:
    def cases() -> Iterator[ConformanceCase]:
        for name, x, y, block, margins in rows:
            extra = [int_vector(*block), CaseTensor(margins.shape, "int32", data=margins)]
            dtypes = ("int8", "float32") if name != "rows" else ("int8",)
            yield from data_movement_cases(builtin, name, x, y, extra, dtypes=dtypes)

    return cases


def _int_pairs(*rows: Sequence[int]) -> Array:
    return np.array(rows, np.int32)


_TO_BATCH = (
    ("even", (2, 4, 6, 3), (8, 2, 3, 3), (2, 2), _int_pairs((0, 0), (0, 0))),
    ("margins", (1, 3, 4, 2), (6, 2, 3, 2), (2, 3), _int_pairs((1, 0), (2, 3))),
    ("rows", (1, 5, 3), (3, 2, 3), (3,), _int_pairs((0, 1))),
)

_TO_SPACE = (
    ("even", (8, 2, 3, 3), (2, 4, 6, 3), (2, 2), _int_pairs((0, 0), (0, 0))),
    ("crops", (6, 2, 3, 2), (1, 3, 4, 2), (2, 3), _int_pairs((1, 0), (2, 3))),
    ("rows", (3, 2, 3), (1, 5, 3), (3,), _int_pairs((0, 1))),
)


_PAD_CASES = (
    # name, input shape, paddings an axis
    ("image", (1, 4, 3, 2), ((0, 0), (1, 2), (2, 0), (0, 0))),
    ("channels", (1, 2, 3, 3), ((0, 0), (0, 0), (0, 0), (0, 5))),
    ("every_axis", (2, 3, 1, 2), ((1, 0), (0, 1), (2, 2), (1, 1))),
    ("row", (7,), ((3, 1),)),
    ("nothing", (2, 3), ((0, 0), (0, 0))),
)


def _pad_cases() -> Iterator[ConformanceCase]:
    for name, shape, pairs in _PAD_CASES:
        y_shape = tuple(a + n + z for n, (a, z) in zip(shape, pairs, strict=True))
        paddings = CaseTensor((len(shape), 2), "int32", data=np.array(pairs, np.int32))
        for dtype in ("int8", "float32"):
            scales, zero_points = ((0.5,), (-7,)) if dtype == "int8" else ((), ())
            x, y = (CaseTensor(n, dtype, scales, zero_points) for n in (shape, y_shape))
            value = CaseTensor((1,), dtype, scales, zero_points, data=np.array([99], dtype))
            yield ConformanceCase(f"{name}_{dtype}", "PAD", (x, paddings), (y,))
            yield ConformanceCase(f"{name}_value_{dtype}", "PADV2", (x, paddings, value), (y,))


def _reshape_cases() -> Iterator[ConformanceCase]:
    scale = float(np.float32(0.5))
    for name, before, after in (
        ("flatten", (1, 3, 2, 2), (1, 12)),
        ("to_rows", (1, 12), (4, 3)),
        ("same", (2, 5), (2, 5)),
    ):
        yield ConformanceCase(
            f"{name}_int8",
            "RESHAPE",
            (
                CaseTensor(before, "int8", (scale,), (3,)),
                CaseTensor((len(after),), "int32", data=np.array(after, np.int32)),
            ),
            (CaseTensor(after, "int8", (scale,), (3,)),),
            {"new_shape": after},
        )


_CONCATENATION_CASES = (
    # name, axis, input shapes; the last input is constant where so named
    ("channels", 3, ((1, 3, 2, 4), (1, 3, 2, 1), (1, 3, 2, 6))),
    ("rows", -2, ((2, 3, 5), (2, 1, 5))),
    ("batch", 0, ((1, 7), (3, 7))),
    ("one", 1, ((2, 3),)),
    ("constant", -1, ((2, 3), (2, 2))),
)


def _concatenation_cases() -> Iterator[ConformanceCase]:
    for name, axis, shapes in _CONCATENATION_CASES:
        total = list(shapes[0])
        total[axis] = sum(shape[axis] for shape in shapes)
        options = {"axis": axis, "fused_activation_function": "NONE"}
        for dtype in ("int8", "float32"):
            *inputs, y = (
                CaseTensor(shape, dtype, *(((0.25,), (11,)) if dtype == "int8" else ()))
                for shape in (*shapes, tuple(total))
            )
            if name == "constant":
                values = np.arange(4).reshape(2, 2).astype(dtype)
                inputs[-1] = replace(inputs[-1], data=values)
            yield ConformanceCase(f"{name}_{dtype}", "CONCATENATION", tuple(inputs), (y,), options)


def _resize_bilinear_cases() -> Iterator[ConformanceCase]:
    for name, corners, centers, x, y in (
        ("up", False, False, (1, 2, 3, 2), (1, 5, 7, 2)),
        ("corners", True, False, (1, 3, 3, 2), (1, 5, 6, 2)),
        ("centers", False, True, (2, 3, 4, 1), (2, 5, 3, 1)),
        ("down", False, True, (1, 7, 5, 3), (1, 3, 2, 3)),
    ):
        options = {"align_corners": corners, "half_pixel_centers": centers}
        for dtype in ("int8", "int16", "float32"):
            if dtype == "int16" and name in ("up", "down"):
                continue
            tensor = (
                data_tensor(x, dtype) if dtype != "int16" else CaseTensor(x, dtype, (0.5,), (0,))
            )
            out = CaseTensor(y, dtype, tensor.scales, tensor.zero_points)
            yield ConformanceCase(
                f"{name}_{dtype}", "RESIZE_BILINEAR", (tensor, int_vector(*y[1:3])), (out,),
                options,
                ("litert",) if dtype == "int16" else ("litert", "tflm"),
            )  # fmt: skip


CASES: CaseTable = {
    "transpose": _transpose_cases,
    "strided_slice": _slice_cases,
    "split": _split_cases,
    "pack": _pack_cases,
    "unpack": _unpack_cases,
    "gather": _gather_cases,
    "tile": _tile_cases,
    "broadcast_to": _broadcast_cases,
    "reverse_v2": _reverse_cases,
    "mirror_pad": _mirror_cases,
    "space_to_depth": lambda: data_movement_cases(
        "SPACE_TO_DEPTH", "blocks", (1, 4, 6, 3), (1, 2, 3, 12), options={"block_size": 2}
    ),
    "depth_to_space": lambda: data_movement_cases(
        "DEPTH_TO_SPACE", "blocks", (1, 2, 3, 12), (1, 4, 6, 3), options={"block_size": 2}
    ),
    "resize_nearest": _resize_nearest_cases,
    "batch_to_space_nd": _space_batch_cases("BATCH_TO_SPACE_ND", _TO_SPACE),
    "space_to_batch_nd": _space_batch_cases("SPACE_TO_BATCH_ND", _TO_BATCH),
    "pad": _pad_cases,
    "reshape": _reshape_cases,
    "concatenation": _concatenation_cases,
    "resize_bilinear": _resize_bilinear_cases,
}
