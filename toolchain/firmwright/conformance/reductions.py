"""Conformance cases of reductions along axes, normalizations and pooling."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from firmwright.conformance.case import (
    BOTH_PROFILES,
    LITERT,
    NO_ACTIVATION,
    TFLM,
    CaseTable,
    CaseTensor,
    ConformanceCase,
    data_tensor,
    int_vector,
    quantized,
    scalar,
)
from firmwright.ops.normalization import BUILTIN
from firmwright.ops.pooling import DTYPES
from firmwright.ops.reductions import reduced_shape
from firmwright.ops.softmax import OUTPUT_ZERO_POINT

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


def _reduced(shape: Sequence[int], axes: Sequence[int], keep: bool) -> tuple[int, ...]:
    return tuple(reduced_shape(shape, [axis % len(shape) for axis in axes], keep))


def _mean_tensor(shape: Sequence[int], dtype: str, quant: tuple[float, int]) -> CaseTensor:
    match dtype:
        case "int8":
            return quantized(shape, dtype, *quant)
        case "int16":
            return quantized(shape, dtype, quant[0] / 100)
    return CaseTensor(tuple(shape), dtype)


def _mean_cases(builtin: str) -> Iterator[ConformanceCase]:
    for index, (name, shape, axes, keep, x_quant, y_quant) in enumerate(_MEAN_GRID):
        for dtype in ("int8", "float32") if index % 3 else ("int8", "int16", "int32", "float32"):
            inputs = (_mean_tensor(shape, dtype, x_quant), int_vector(*axes))
            y = _mean_tensor(_reduced(shape, axes, keep), dtype, y_quant)
            oracles = BOTH_PROFILES
            if dtype == "int32":
                oracles = LITERT
            elif builtin == "SUM" and dtype != "float32":
                oracles = TFLM
            options = {"keep_dims": keep}
            yield ConformanceCase(f"{name}_{dtype}", builtin, inputs, (y,), options, oracles)


def _sum_cases() -> Iterator[ConformanceCase]:
    """Generate fewer cases than for means, from which sums differ only in their factor."""
    names = ("spatial", "last", "many", "spatial_kept")
    return (case for case in _mean_cases("SUM") if case.name.rsplit("_", 1)[0] in names)


_ALL = ("int8", "int16", "int32", "float32")


def _reduction_cases(
    builtin: str, dtypes: Sequence[str], in_tflm: Sequence[str] = ()
) -> Iterator[ConformanceCase]:
    for dtype in dtypes:
        oracles = BOTH_PROFILES if dtype in in_tflm else LITERT
        for name, shape, axes, keep, y_shape in (
            ("last", (3, 4, 5), (-1,), False, (3, 4)),
            ("image", (1, 4, 3, 2), (1, 2), True, (1, 1, 1, 2)),
        ):
            inputs, y = (data_tensor(shape, dtype), int_vector(*axes)), data_tensor(y_shape, dtype)
            options = {"keep_dims": keep}
            yield ConformanceCase(f"{name}_{dtype}", builtin, inputs, (y,), options, oracles)


def _reduce_prod_cases() -> Iterator[ConformanceCase]:
    yield from _reduction_cases("REDUCE_PROD", ("int32", "float32"))
    for name, dtype, shape, axes, x_quant, y_quant in (
        ("last", "int8", (3, 4, 5), (-1,), (0.11, 3), (0.7, -9)),
        ("image", "int8", (1, 2, 3, 2), (1, 2), (0.02, -128), (0.004, 5)),
        ("one", "int8", (2, 1, 3), (1,), (0.05, 127), (0.06, 0)),
        ("last", "int16", (3, 2), (-1,), (0.001, 0), (0.02, 0)),
        ("three", "int16", (3, 3), (0,), (0.0001, 0), (0.002, 0)),
    ):
        inputs = (quantized(shape, dtype, *x_quant), int_vector(*axes))
        outputs = (quantized(_reduced(shape, axes, False), dtype, *y_quant),)
        title, options = f"{name}_{dtype}_scaled", {"keep_dims": False}
        yield ConformanceCase(title, "REDUCE_PROD", inputs, outputs, options, LITERT)


def _arg_min_max_cases() -> Iterator[ConformanceCase]:
    for builtin in ("ARG_MAX", "ARG_MIN"):
        for dtype, result, oracles in (
            ("int8", "int32", BOTH_PROFILES), ("float32", "int32", BOTH_PROFILES),
            ("int32", "int32", LITERT), ("float32", "int64", LITERT),
        ):  # fmt: skip
            for title, axis, y in (("last", -1, (4, 3)), ("middle", 1, (4, 7))):
                inputs = data_tensor((4, 3, 7), dtype), int_vector(axis)
                options = {"output_type": 2 if result == "int32" else 4}
                tail = "_int64" if result == "int64" else ""
                name = f"{builtin.lower()}_{title}_{dtype}{tail}"
                outputs = (CaseTensor(y, result),)
                yield ConformanceCase(name, builtin, inputs, outputs, options, oracles)


def _top_k_cases() -> Iterator[ConformanceCase]:
    for name, shape, k, dtypes in (
        ("three", (2, 9), 3, _ALL),
        ("all", (2, 2, 5), 5, ("int8", "float32")),
        ("one", (11,), 1, ("int8", "float32")),
    ):
        for dtype in dtypes:
            y = (*shape[:-1], k)
            inputs = (data_tensor(shape, dtype), scalar(k))
            outputs = (data_tensor(y, dtype), CaseTensor(y, "int32"))
            yield ConformanceCase(f"{name}_{dtype}", "TOPK_V2", inputs, outputs, {}, LITERT)


def _sum_tensors(shape: Sequence[int], dtype: str) -> tuple[CaseTensor, CaseTensor]:
    if dtype != "int8":
        return (CaseTensor(tuple(shape), dtype),) * 2
    return quantized(shape, dtype, 0.05, 3), quantized(shape, dtype, 0.13, -7)


_SUM_ORACLES = {"int8": TFLM, "int32": LITERT, "float32": BOTH_PROFILES}


def _cumsum_cases() -> Iterator[ConformanceCase]:
    for name, axis, exclusive, reverse in (
        ("middle", 1, False, False),
        ("exclusive", 2, True, False),
        ("reverse", 0, False, True),
        ("both", -2, True, True),
    ):
        options = {"exclusive": exclusive, "reverse": reverse}
        for dtype, oracles in _SUM_ORACLES.items():
            x, y = _sum_tensors((3, 4, 5), dtype)
            inputs = (x, scalar(axis))
            yield ConformanceCase(f"{name}_{dtype}", "CUMSUM", inputs, (y,), options, oracles)


def _add_n_cases() -> Iterator[ConformanceCase]:
    for dtype, count in (("int8", 2), ("int8", 5), ("int32", 3), ("float32", 3)):
        x, y = _sum_tensors((2, 7), dtype)
        oracles = _SUM_ORACLES[dtype]
        yield ConformanceCase(f"{count}_{dtype}", "ADD_N", (x,) * count, (y,), {}, oracles)


# ---- normalizations ------------------------------------------------------------------------------


def _softmax_cases() -> Iterator[ConformanceCase]:
    for index, (shape, scale, zero_point) in enumerate((
        ((1, 12), 0.18, 24),
        ((3, 5), 0.05, -128),
        ((2, 2, 7), 1.3, 127),
        ((1, 2), 0.0039, 0),
        ((1, 511), 0.02, -9),
    )):  # fmt: skip
        x, real = quantized(shape, "int8", scale, zero_point), CaseTensor(shape, "float32")
        rows = [("int8", x, quantized(shape, "int8", 1 / 256, -128))]
        if index != 1:
            words = quantized(shape, "int16", scale / 200)
            step = 1 / 32767 if index == 0 else 2.0**-15
            rows.append(("int16", words, quantized(shape, "int16", step)))
        if index in (1, 4):
            step = 1 / 65535 if index == 4 else 2.0**-16
            rows.append(("int8_int16", x, quantized(shape, "int16", step, -32768)))
        for name, source, result in (*rows, ("float32", real, real)):
            title = f"row{index}_{name}"
            yield ConformanceCase(title, "SOFTMAX", (source,), (result,), {"beta": 1.0})


def _log_softmax_cases() -> Iterator[ConformanceCase]:
    for name, shape, scale, zero_point in (
        ("row", (1, 12), 0.05, 3),
        ("rows", (2, 3, 5), 0.2, -128),
        ("coarse", (4, 7), 1.3, 127),
        ("long", (1, 600), 0.0039, 9),
    ):
        x = quantized(shape, "int8", scale, zero_point)
        y = quantized(shape, "int8", 1 / 16, OUTPUT_ZERO_POINT)
        yield ConformanceCase(f"{name}_int8", "LOG_SOFTMAX", (x,), (y,))
        if name != "coarse":
            real = CaseTensor(shape, "float32")
            yield ConformanceCase(f"{name}_float32", "LOG_SOFTMAX", (real,), (real,))


def _lrn_cases() -> Iterator[ConformanceCase]:
    for name, shape, radius, bias, alpha, beta in (
        ("narrow", (1, 2, 3, 7), 2, 1.0, 0.5, 0.75),
        ("wide", (2, 1, 1, 4), 9, 2.0, 0.25, 0.5),
        ("steep", (1, 1, 2, 12), 3, 0.5, 1.5, 2.0),
    ):
        x = CaseTensor(shape, "float32")
        options = {"radius": radius, "bias": bias, "alpha": alpha, "beta": beta}
        yield ConformanceCase(f"{name}_float32", BUILTIN, (x,), (x,), options, LITERT)


def _l2_normalization_cases() -> Iterator[ConformanceCase]:
    for name, shape, scale, zero_point in (
        ("row", (1, 12), 0.05, 3),
        ("image", (2, 3, 2, 5), 1.3, -128),
        ("one", (7, 1), 0.02, 127),
        ("long", (2, 700), 0.3, 0),
    ):
        x, y = quantized(shape, "int8", scale, zero_point), quantized(shape, "int8", 1 / 128)
        yield ConformanceCase(f"{name}_int8", "L2_NORMALIZATION", (x,), (y,), NO_ACTIVATION)
        if name in ("row", "image"):
            x = CaseTensor(shape, "float32")
            yield ConformanceCase(f"{name}_float32", "L2_NORMALIZATION", (x,), (x,), NO_ACTIVATION)


# ---- pooling -------------------------------------------------------------------------------------

_POOL_GRID = (
    # name, (n, h, w, c), size, stride, padding, activation, zero point
    ("2x2", (1, 4, 6, 3), (2, 2), (2, 2), "VALID", "NONE", -128),
    ("global", (1, 5, 7, 4), (5, 7), (5, 7), "VALID", "NONE", 3),
    ("3x3_same", (2, 5, 4, 3), (3, 3), (1, 1), "SAME", "RELU", -20),
    ("3x2_same_stride2", (1, 7, 6, 5), (3, 2), (2, 2), "SAME", "RELU6", 127),
    ("2x3_stride_1_2", (1, 3, 8, 1), (2, 3), (1, 2), "VALID", "RELU_N1_TO_1", 0),
)


def _pool_cases(builtin: str) -> Iterator[ConformanceCase]:
    for index, (name, shape, size, stride, padding, activation, zero) in enumerate(_POOL_GRID):
        rows, cols = (
            -(-length // step) if padding == "SAME" else (length - reach) // step + 1
            for length, reach, step in zip(shape[1:3], size, stride, strict=True)
        )
        options = {
            "padding": padding, "stride_h": stride[0], "stride_w": stride[1],
            "filter_height": size[0], "filter_width": size[1],
            "fused_activation_function": activation,
        }  # fmt: skip
        for dtype in DTYPES if index % 2 else ("int8", "float32"):
            x = CaseTensor(shape, dtype)
            if dtype != "float32":
                x = quantized(shape, dtype, 0.035, zero if dtype == "int8" else 0)
            y = replace(x, shape=(shape[0], rows, cols, shape[3]))
            yield ConformanceCase(f"{name}_{dtype}", builtin, (x,), (y,), options)


def _l2_pool_cases() -> Iterator[ConformanceCase]:
    return (case for case in _pool_cases("L2_POOL_2D") if case.name.endswith("_float32"))


CASES: CaseTable = {
    "mean": partial(_mean_cases, "MEAN"),
    "sum": _sum_cases,
    "reduce_max": partial(_reduction_cases, "REDUCE_MAX", _ALL, ("int8", "float32")),
    "reduce_min": partial(_reduction_cases, "REDUCE_MIN", _ALL, ("int8", "float32")),
    "reduce_any": partial(_reduction_cases, "REDUCE_ANY", ("bool",)),
    "reduce_all": partial(_reduction_cases, "REDUCE_ALL", ("bool",), ("bool",)),
    "reduce_prod": _reduce_prod_cases,
    "arg_min_max": _arg_min_max_cases,
    "top_k": _top_k_cases,
    "cumulative": _cumsum_cases,
    "add_n": _add_n_cases,
    "softmax": _softmax_cases,
    "log_softmax": _log_softmax_cases,
    "local_response_normalization": _lrn_cases,
    "l2_normalization": _l2_normalization_cases,
    "average_pool2d": partial(_pool_cases, "AVERAGE_POOL_2D"),
    "max_pool2d": partial(_pool_cases, "MAX_POOL_2D"),
    "l2_pool2d": _l2_pool_cases,
}
