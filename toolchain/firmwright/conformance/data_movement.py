"""Conformance cases of operators that copy, rearrange or select elements."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from firmwright.conformance.case import (
    BOTH_PROFILES,
    LITERT,
    TFLM,
    CaseTable,
    CaseTensor,
    ConformanceCase,
    Profiles,
    constant,
    data_tensor,
    float32,
    index_tensor,
    int_vector,
    quantized,
    random_scales,
    scalar,
)

_FOUR = ("int8", "int16", "int32", "float32")


class _Move(NamedTuple):
    """A row of cases, one per dtype; `operands` follow the moved tensor."""

    builtin: str
    name: str
    x: tuple[int, ...]
    y: tuple[int, ...]
    operands: Sequence[CaseTensor] = ()
    options: Mapping[str, object] = {}
    dtypes: Sequence[str] = ("int8", "float32")
    oracles: Profiles = BOTH_PROFILES

    def cases(self) -> Iterator[ConformanceCase]:
        for dtype in self.dtypes:
            x, y = data_tensor(self.x, dtype), data_tensor(self.y, dtype)
            yield ConformanceCase(
                f"{self.name}_{dtype}", self.builtin, (x, *self.operands), (y,), self.options,
                self.oracles,
            )  # fmt: skip


def _moved(rows: Sequence[_Move]) -> Iterator[ConformanceCase]:
    return chain.from_iterable(row.cases() for row in rows)


_INT8 = ("int8",)


def _strided_slice(
    name: str,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    begin_end_strides: Sequence[tuple[int, ...]],
    masks: tuple[int, int, int],
    oracles: Profiles = BOTH_PROFILES,
) -> _Move:
    options = dict(zip(("begin_mask", "end_mask", "shrink_axis_mask"), masks, strict=True))
    options |= {"ellipsis_mask": 0, "new_axis_mask": 0}
    operands = [int_vector(*values) for values in begin_end_strides]
    return _Move("STRIDED_SLICE", name, *shapes, operands, options, _INT8, oracles)


def _resize_nearest(name: str, corners: bool, centers: bool, y: tuple[int, ...]) -> _Move:
    options = {"align_corners": corners, "half_pixel_centers": centers}
    size = int_vector(*y[1:3])
    return _Move("RESIZE_NEAREST_NEIGHBOR", name, (1, 2, 3, 2), y, [size], options, _INT8)


_MIRROR_PADS = constant(np.array([[2, 1], [0, 3]], np.int32))
_BLOCKS = (
    # name, shape in the space, shape in batches, block, margins per axis
    ("even", (2, 4, 6, 3), (8, 2, 3, 3), (2, 2), ((0, 0), (0, 0))),
    ("margins", (1, 3, 4, 2), (6, 2, 3, 2), (2, 3), ((1, 0), (2, 3))),
    ("rows", (1, 5, 3), (3, 2, 3), (3,), ((0, 1),)),
)


def _space_batch_cases(to_space: bool) -> Iterator[ConformanceCase]:
    for name, space, batches, block, margins in _BLOCKS:
        operands = [int_vector(*block), constant(np.array(margins, np.int32))]
        dtypes = _INT8 if name == "rows" else ("int8", "float32")
        if to_space:
            name = "crops" if name == "margins" else name
            row = _Move("BATCH_TO_SPACE_ND", name, batches, space, operands, dtypes=dtypes)
        else:
            row = _Move("SPACE_TO_BATCH_ND", name, space, batches, operands, dtypes=dtypes)
        yield from row.cases()


_MOVES: Mapping[str, Sequence[_Move]] = {
    "transpose": [
        _Move("TRANSPOSE", "image", (1, 3, 4, 5), (1, 5, 3, 4), [int_vector(0, 3, 1, 2)]),
        _Move("TRANSPOSE", "matrix", (7, 3), (3, 7), [int_vector(1, 0)], {}, ["int16"]),
        _Move("TRANSPOSE", "ends", (2, 3, 4), (4, 3, 2), [int_vector(2, 1, 0)], {}, _INT8),
    ],
    "strided_slice": [
        _Move("SLICE", "box", (2, 5, 4), (2, 3, 2), [int_vector(0, 1, 2), int_vector(2, 3, -1)]),
        _strided_slice("steps", ((5, 7), (2, 3)), ((1, 6), (4, 0), (2, -2)), (0, 0, 0)),
        # TFLM computes another length.
        _strided_slice(
            "open", ((4, 6, 3), (3, 2, 3)), ((1, 5), (0, 0), (1, -4)), (0, 3, 0), LITERT
        ),
        _strided_slice(
            "shrunk", ((3, 4, 5), (4, 2)), ((-1, 0, 1), (0, 4, 3), (1, 1, 1)), (2, 2, 1)
        ),
    ],
    "gather": [
        _Move("GATHER", "rows", (2, 5, 3), (2, 4, 3), [int_vector(4, 0, 0, 2)],
              {"axis": 1, "batch_dims": 0}),
    ],
    "tile": [_Move("TILE", "twice", (2, 3), (4, 9), [int_vector(2, 3)], oracles=LITERT)],
    "broadcast_to": [
        _Move("BROADCAST_TO", "both", (3, 1), (2, 3, 4), [int_vector(2, 3, 4)], oracles=TFLM)
    ],
    "reverse_v2": [_Move("REVERSE_V2", "rows", (2, 5, 3), (2, 5, 3), [int_vector(1)])],
    "mirror_pad": [
        _Move("MIRROR_PAD", "reflect", (3, 4), (6, 7), [_MIRROR_PADS], {"mode": 0}),
        _Move("MIRROR_PAD", "symmetric", (3, 4), (6, 7), [_MIRROR_PADS], {"mode": 1}, _INT8),
    ],
    "space_to_depth": [
        _Move("SPACE_TO_DEPTH", "blocks", (1, 4, 6, 3), (1, 2, 3, 12), (), {"block_size": 2})
    ],
    "depth_to_space": [
        _Move("DEPTH_TO_SPACE", "blocks", (1, 2, 3, 12), (1, 4, 6, 3), (), {"block_size": 2})
    ],
    "resize_nearest": [
        _resize_nearest("up", False, False, (1, 5, 7, 2)),
        _resize_nearest("corners", True, False, (1, 5, 6, 2)),
        _resize_nearest("centers", False, True, (1, 4, 2, 2)),
    ],
}  # fmt: skip


def _split_cases() -> Iterator[ConformanceCase]:
    for dtype in ("int8", "float32"):
        inputs, part = (int_vector(1), data_tensor((2, 6, 3), dtype)), data_tensor((2, 2, 3), dtype)
        yield ConformanceCase(f"thirds_{dtype}", "SPLIT", inputs, (part,) * 3, {"num_splits": 3})
    parts = (data_tensor((2, 1, 3), "int8"), data_tensor((2, 5, 3), "int8"))
    operands = (data_tensor((2, 6, 3), "int8"), int_vector(1, -1), int_vector(-2))
    yield ConformanceCase("sizes_int8", "SPLIT_V", operands, parts, {"num_splits": 2})


def _pack_cases() -> Iterator[ConformanceCase]:
    for name, axis, y in (
        ("middle", 1, (2, 3, 4)), ("last", -1, (2, 4, 3)), ("first", 0, (3, 2, 4))
    ):  # fmt: skip
        inputs = (data_tensor((2, 4), "int8"),) * 3
        options = {"values_count": 3, "axis": axis}
        yield ConformanceCase(f"{name}_int8", "PACK", inputs, (data_tensor(y, "int8"),), options)


def _unpack_cases() -> Iterator[ConformanceCase]:
    for name, axis, y, num in (("middle", 1, (2, 4), 3), ("last", -1, (2, 3), 4)):
        x, outputs = data_tensor((2, 3, 4), "int8"), (data_tensor(y, "int8"),) * num
        yield ConformanceCase(f"{name}_int8", "UNPACK", (x,), outputs, {"num": num, "axis": axis})


_PAD_CASES = (
    # name, input shape, paddings per axis
    ("image", (1, 4, 3, 2), ((0, 0), (1, 2), (2, 0), (0, 0))),
    ("channels", (1, 2, 3, 3), ((0, 0), (0, 0), (0, 0), (0, 5))),
    ("every_axis", (2, 3, 1, 2), ((1, 0), (0, 1), (2, 2), (1, 1))),
    ("row", (7,), ((3, 1),)),
    ("nothing", (2, 3), ((0, 0), (0, 0))),
)


def _pad_cases() -> Iterator[ConformanceCase]:
    for name, shape, pairs in _PAD_CASES:
        y_shape = tuple(a + n + z for n, (a, z) in zip(shape, pairs, strict=True))
        paddings = constant(np.array(pairs, np.int32))
        for dtype in ("int8", "float32"):
            quant = ((0.5,), (-7,)) if dtype == "int8" else ()
            x, y, value = (CaseTensor(n, dtype, *quant) for n in (shape, y_shape, (1,)))
            value = replace(value, data=np.array([99], dtype))
            yield ConformanceCase(f"{name}_{dtype}", "PAD", (x, paddings), (y,))
            yield ConformanceCase(f"{name}_value_{dtype}", "PADV2", (x, paddings, value), (y,))


def _reshape_cases() -> Iterator[ConformanceCase]:
    for name, before, after in (
        ("flatten", (1, 3, 2, 2), (1, 12)), ("to_rows", (1, 12), (4, 3)), ("same", (2, 5), (2, 5))
    ):  # fmt: skip
        inputs, y = (data_tensor(before, "int8"), int_vector(*after)), data_tensor(after, "int8")
        yield ConformanceCase(f"{name}_int8", "RESHAPE", inputs, (y,), {"new_shape": after})


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
            quant = ((0.25,), (11,)) if dtype == "int8" else ()
            *inputs, y = (CaseTensor(tuple(n), dtype, *quant) for n in (*shapes, total))
            if name == "constant":
                values = np.arange(4).reshape(2, 2).astype(dtype)
                inputs[-1] = replace(inputs[-1], data=values)
            yield ConformanceCase(f"{name}_{dtype}", "CONCATENATION", tuple(inputs), (y,), options)


def _resize_bilinear_cases() -> Iterator[ConformanceCase]:
    for name, corners, centers, x_shape, y_shape in (
        ("up", False, False, (1, 2, 3, 2), (1, 5, 7, 2)),
        ("corners", True, False, (1, 3, 3, 2), (1, 5, 6, 2)),
        ("centers", False, True, (2, 3, 4, 1), (2, 5, 3, 1)),
        ("down", False, True, (1, 7, 5, 3), (1, 3, 2, 3)),
    ):
        options = {"align_corners": corners, "half_pixel_centers": centers}
        for dtype in ("int8", "int16", "float32"):
            oracles = BOTH_PROFILES
            x = data_tensor(x_shape, dtype)
            if dtype == "int16":
                if name in ("up", "down"):
                    continue
                x, oracles = quantized(x_shape, dtype, 0.5), LITERT
            inputs, y = (x, int_vector(*y_shape[1:3])), replace(x, shape=y_shape)
            yield ConformanceCase(
                f"{name}_{dtype}", "RESIZE_BILINEAR", inputs, (y,), options, oracles
            )


# ---- indices -------------------------------------------------------------------------------------


def _dynamic_gather_cases() -> Iterator[ConformanceCase]:
    for name, x, indices, y, axis, batch in (
        ("rows", (5, 3), (4,), (4, 3), 0, 0),
        ("middle", (2, 5, 3), (2, 2), (2, 2, 2, 3), 1, 0),
        ("batches", (2, 3, 4, 2), (2, 3), (2, 3, 3, 2), 2, 1),
    ):
        options = {"axis": axis, "batch_dims": batch}
        yield from _Move("GATHER", name, x, y, [index_tensor(indices, x[axis])], options).cases()
    for dtype in ("int8", "float32"):
        table = replace(data_tensor((7, 4), dtype), data=np.arange(28).reshape(7, 4).astype(dtype))
        inputs, y_tensor = (index_tensor((3,), 7), table), data_tensor((3, 4), dtype)
        yield ConformanceCase(f"table_{dtype}", "EMBEDDING_LOOKUP", inputs, (y_tensor,))
    yield from _moved([
        _Move("GATHER_ND", "slices", (3, 3, 4), (5, 4), [index_tensor((5, 2), 3)]),
        _Move("GATHER_ND", "64", (3, 5), (4, 5), [index_tensor((4, 1), 3)], {}, ("int64",), LITERT),
        _Move("GATHER_ND", "all", (3, 3), (2, 2), [index_tensor((2, 2, 2), 3)], {}, _INT8),
        _Move("GATHER_ND", "first", (4, 5), (3, 5), [index_tensor((3, 1), 4)], {}, _INT8),
    ])  # fmt: skip


def _update_cases() -> Iterator[ConformanceCase]:
    for name, shape, part, limits, dtypes in (
        ("matrix", (4, 5), (2, 3), (0, 2), _FOUR),
        ("beyond", (3, 4, 5), (1, 4, 2), (-3, 9), ("int8", "float32")),
    ):
        start = CaseTensor((len(shape),), "int32", value_range=limits)
        for dtype in dtypes:
            x = data_tensor(shape, dtype)
            inputs = (x, data_tensor(part, dtype), start)
            yield ConformanceCase(f"{name}_{dtype}", "DYNAMIC_UPDATE_SLICE", inputs, (x,))


def _scatter_cases() -> Iterator[ConformanceCase]:
    for name, indices, parts, shape in (
        ("rows", (3, 1), (3, 4), (5, 4)),
        ("elements", (2, 3, 2), (2, 3), (3, 4)),
    ):
        places, size = index_tensor(indices, min(shape)), int_vector(*shape)
        for dtype in ("int8", "int32", "float32"):
            inputs, y = (places, data_tensor(parts, dtype), size), data_tensor(shape, dtype)
            yield ConformanceCase(f"{name}_{dtype}", "SCATTER_ND", inputs, (y,), {}, LITERT)


def _one_hot_cases() -> Iterator[ConformanceCase]:
    x = CaseTensor((2, 3), "int32", value_range=(-1, 4))
    for name, axis, y, dtype in (
        ("last", -1, (2, 3, 4), "float32"),
        ("first", 0, (4, 2, 3), "int8"),
        ("middle", 1, (2, 4, 3), "int32"),
    ):
        inputs, out = (x, scalar(4), scalar(5, dtype), scalar(-2, dtype)), (CaseTensor(y, dtype),)
        yield ConformanceCase(f"{name}_{dtype}", "ONE_HOT", inputs, out, {"axis": axis}, LITERT)


def _reverse_sequence_cases() -> Iterator[ConformanceCase]:
    shape = (3, 4, 2)
    x = CaseTensor(shape, "float32")
    for name, seq, batch in (("rows_float32", 1, 0), ("columns_float32", 0, 2)):
        lengths = CaseTensor((shape[batch],), "int32", value_range=(1, shape[seq]))
        options = {"seq_dim": seq, "batch_dim": batch}
        yield ConformanceCase(name, "REVERSE_SEQUENCE", (x, lengths), (x,), options, LITERT)


def _select_cases() -> Iterator[ConformanceCase]:
    for name, condition, a, b, y, dtypes in (
        ("same", (2, 7), (2, 7), (2, 7), (2, 7), ("int8", "float32")),
        ("spread", (3, 1), (2, 1, 4), (3, 4), (2, 3, 4), _FOUR),
    ):
        for dtype in dtypes:
            inputs = (CaseTensor(condition, "bool"), data_tensor(a, dtype), data_tensor(b, dtype))
            outputs = (data_tensor(y, dtype),)
            oracles = LITERT if dtype == "int32" else BOTH_PROFILES
            yield ConformanceCase(f"{name}_{dtype}", "SELECT_V2", inputs, outputs, {}, oracles)
    x, mask = data_tensor((2, 7), "int8"), CaseTensor((2, 7), "bool")
    yield ConformanceCase("first_int8", "SELECT", (mask, x, x), (x,), {}, LITERT)


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


def _hybrid_embedding_cases() -> Iterator[ConformanceCase]:
    rng = np.random.default_rng(12)
    values = rng.integers(-127, 128, (7, 4)).astype(np.int8)
    for name, scales in (("one_scale", (0.0137,)), ("row_scales", random_scales(rng, 7))):
        table = constant(values, tuple(map(float32, scales)), 0 if len(scales) > 1 else None)
        inputs, y = (index_tensor((3,), 7), table), CaseTensor((3, 4), "float32")
        yield ConformanceCase(name, "EMBEDDING_LOOKUP", inputs, (y,), oracles=LITERT)


CASES: CaseTable = {
    "hybrid_embedding_lookup": _hybrid_embedding_cases,
    **{op: partial(_moved, rows) for op, rows in _MOVES.items()},
    "split": _split_cases,
    "pack": _pack_cases,
    "unpack": _unpack_cases,
    "batch_to_space_nd": partial(_space_batch_cases, True),
    "space_to_batch_nd": partial(_space_batch_cases, False),
    "pad": _pad_cases,
    "reshape": _reshape_cases,
    "concatenation": _concatenation_cases,
    "resize_bilinear": _resize_bilinear_cases,
    "dynamic_gather": _dynamic_gather_cases,
    "dynamic_update_slice": _update_cases,
    "scatter_nd": _scatter_cases,
    "one_hot": _one_hot_cases,
    "reverse_sequence": _reverse_sequence_cases,
    "select": _select_cases,
    "constant": _constant_cases,
    "fill": _fill_cases,
}
