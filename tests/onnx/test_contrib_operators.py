"""Operators of com.microsoft, compared with ONNX Runtime on random layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.errors import UnsupportedError
from firmwright.flows.verify.operator_names import onnx_operators
from firmwright.oracle.reference_runner import run_reference
from tests.onnx.onnx_models import Net
from tests.onnx.test_nets import entry_of, imported, results

Array = NDArray[Any]
RNG = np.random.Generator(np.random.PCG64(5))


@dataclass(frozen=True)
class Case:
    """A node; a tuple as operand is a constant, None an omitted input."""

    op: str
    operands: Sequence[Array | tuple[Array] | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[int, ...] = (0,)
    domain: str = "com.microsoft"
    opset: int = 17

    def model(self) -> tuple[bytes, dict[str, Array]]:
        net, names, feeds = Net(opset=self.opset), [], {}
        for k, operand in enumerate(self.operands):
            if operand is None:
                names.append("")
            elif isinstance(operand, tuple):
                value = operand[0]
                names.append(net.weight(value) if value.ndim else net.scalar(value[()]))
            else:
                dtype = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}
                names.append(
                    net.input(f"x{k}", operand.shape, dtype[operand.dtype.name])
                )
                feeds[f"x{k}"] = operand
        count = max(self.outputs) + 1
        produced = net.node(
            self.op, *names, outputs=count, domain=self.domain, **self.attrs
        )
        results = [produced] if count == 1 else produced
        node = net.nodes[-1]
        node.output[:] = [n if k in self.outputs else "" for k, n in enumerate(results)]
        return net.model(*(results[k] for k in self.outputs)), feeds


def f(*shape: int, scale: float = 1.0) -> Array:
    return (RNG.normal(size=shape) * scale).astype(np.float32)


def c(*shape: int, scale: float = 1.0) -> tuple[Array]:
    return (f(*shape, scale=scale),)


def ids(high: int, *shape: int) -> Array:
    return RNG.integers(0, high, shape).astype(np.int32)


def number(value: float, dtype: Any = np.float32) -> tuple[Array]:
    return (np.array(value, dtype),)


X = f(1, 5, 12)
PAST = f(2, 1, 3, 2, 4)
MASK = np.array([[1, 1, 1, 0, 1]], np.int32)
HEADS = {"num_heads": 3}
QKV = (f(1, 5, 12), f(1, 7, 12), f(1, 7, 12))
IMAGE = f(1, 4, 6, 6)
FILTERS = c(5, 4, 3, 3, scale=0.2)

FLOATS: dict[str, Case] = {
    "gelu": Case("Gelu", [X]),
    "bias_gelu": Case("BiasGelu", [X, c(12)]),
    "fast_gelu": Case("FastGelu", [X]),
    "fast_gelu_bias": Case("FastGelu", [X, c(12)]),
    "quick_gelu": Case("QuickGelu", [X]),
    "quick_gelu_alpha": Case("QuickGelu", [X], {"alpha": 1.3}),
    "layer_norm": Case(
        "LayerNormalization", [X, c(12), c(12)], {"axis": -1}, domain=""
    ),
    "simplified": Case(
        "SimplifiedLayerNormalization", [X, c(12)], {"axis": -1}, domain=""
    ),
    "skip": Case("SkipLayerNormalization", [X, f(1, 5, 12), c(12)], {"epsilon": 1e-5}),
    "skip_sum": Case(
        "SkipLayerNormalization", [X, f(1, 5, 12), c(12), c(12), c(12)], {}, (0, 3)
    ),
    "skip_simple": Case(
        "SkipSimplifiedLayerNormalization", [X, f(1, 5, 12), c(12), c(12)], {}, (0, 3)
    ),
    "embed": Case(
        "EmbedLayerNormalization",
        [ids(9, 1, 5), ids(2, 1, 5), c(9, 8), c(6, 8), c(2, 8), c(8), c(8), MASK],
        {},
        (0, 1),
    ),
    "embed_plain": Case(
        "EmbedLayerNormalization",
        [ids(9, 1, 5), None, c(9, 8), c(6, 8), None, c(8), c(8)],
        {},
        (0, 1),
    ),
    "fused_matmul": Case(
        "FusedMatMul",
        [f(2, 6, 4), f(2, 5, 6)],
        {"transA": 1, "transB": 1, "alpha": 0.3},
    ),
    "fused_matmul_constant": Case("FusedMatMul", [f(3, 6), c(5, 6)], {"transB": 1}),
    "transpose_matmul": Case("TransposeMatMul", [f(3, 6), c(5, 6)], {"transB": 1}),
    "fused_gemm": Case(
        "FusedGemm",
        [f(3, 6), c(5, 6), c(5)],
        {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.2},
    ),
    **{
        f"fused_conv_{name}": Case(
            "FusedConv",
            [IMAGE, FILTERS, c(5), *rest],
            {"pads": [1] * 4, "activation": name, "activation_params": params},
        )
        for name, params, rest in (
            ("Relu", None, [f(1, 5, 6, 6)]),
            ("Tanh", None, []),
            ("Sigmoid", None, []),
            ("LeakyRelu", [0.1], []),
            ("Clip", [-0.5, 0.7], []),
            ("HardSigmoid", [0.3, 0.4], []),
        )
    },
    "attention": Case("Attention", [X, c(12, 36), c(36)], HEADS),
    "attention_sizes": Case(
        "Attention",
        [X, c(12, 30), c(30), MASK],
        HEADS | {"qkv_hidden_sizes": [12, 12, 6]},
    ),
    "attention_causal": Case(
        "Attention",
        [X, c(12, 36), c(36), None, PAST],
        HEADS | {"unidirectional": 1},
        (0, 1),
    ),
    "attention_length": Case(
        "Attention",
        [X, c(12, 36), c(36), np.array([3], np.int32)],
        HEADS | {"scale": 0.7},
    ),
    "attention_begin": Case(
        "Attention", [X, c(12, 36), c(36), np.array([4, 1], np.int32)], HEADS
    ),
    "attention_bias": Case(
        "Attention", [X, c(12, 36), c(36), None, None, f(1, 3, 5, 5)], HEADS
    ),
    "multi_head": Case("MultiHeadAttention", list(QKV), HEADS),
    "multi_head_bias": Case(
        "MultiHeadAttention", [*QKV, c(36), None, f(1, 3, 5, 7)], HEADS | {"scale": 0.4}
    ),
    "multi_head_mask": Case(
        "MultiHeadAttention",
        [*QKV, None, np.array([[1, 1, 0, 1, 0, 1, 1]], np.int32)],
        HEADS | {"mask_filter_value": -3.0},
    ),
    "multi_head_past": Case(
        "MultiHeadAttention",
        [f(1, 5, 12), f(1, 5, 12), f(1, 5, 12), c(36), None, None, PAST[0], PAST[1]],
        HEADS | {"unidirectional": 1},
        (0, 1, 2),
    ),
    "multi_head_apart": Case(
        "MultiHeadAttention", [X, f(1, 3, 7, 4), f(1, 3, 7, 4)], HEADS
    ),
    "rotary": Case(
        "RotaryEmbedding", [X, np.array([2]), c(9, 2), c(9, 2)], {"num_heads": 3}
    ),
    "rotary_pairs": Case(
        "RotaryEmbedding",
        [f(2, 3, 5, 6), (RNG.integers(0, 9, (2, 5)),), c(9, 2), c(9, 2)],
        {"interleaved": 1, "num_heads": 3, "rotary_embedding_dim": 4},
    ),
    "rotary_positions": Case(
        "RotaryEmbedding",
        [f(1, 3, 5, 4), RNG.integers(0, 9, (1, 5)), c(9, 2), c(9, 2)],
        {},
    ),
}


@pytest.mark.parametrize("case", FLOATS.values(), ids=FLOATS)
def test_float_operators_match_onnx_runtime(case: Case) -> None:
    for ours, theirs in compare(case):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


def compare(case: Case) -> list[tuple[Array, Array]]:
    data, feeds = case.model()
    module = imported(data)
    params = {value.name for value in entry_of(module).params}
    values = results(module, {name: x for name, x in feeds.items() if name in params})
    (expected,) = run_reference(data, [feeds], "onnxruntime").outputs
    return list(zip(values.values(), expected.values(), strict=True))


# ---- integers ------------------------------------------------------------------------


def steps(dtype: Any, *shape: int) -> Array:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return RNG.integers(low, high + 1, shape).astype(dtype)


def scaled(dtype: Any, scale: float, least: bool = False) -> list[tuple[Array]]:
    """Return a scale and a zero point."""
    low = np.iinfo(dtype).min
    return [
        number(scale),
        number(low if least else low + 128 + int(RNG.integers(-40, 40)), dtype),
    ]


def unary(
    op: str, t: Any, y: float, least: bool = False, *shape: int, **attrs: Any
) -> Case:
    operands = [
        steps(t, *(shape or (2, 4, 6, 5))),
        *scaled(t, 0.03),
        *scaled(t, y, least),
    ]
    return Case(op, operands, attrs)


def binary(op: str, t: Any, y: float, *second: int) -> Case:
    other = steps(t, *(second or (2, 4, 6, 5)))
    operands = [
        steps(t, 2, 4, 6, 5),
        *scaled(t, 0.03),
        other,
        *scaled(t, 0.041),
        *scaled(t, y),
    ]
    return Case(op, operands)


def concat(t: Any) -> Case:
    parts = (
        [steps(t, 2, n, 5), *scaled(t, scale)] for n, scale in ((3, 0.03), (2, 0.07))
    )
    return Case(
        "QLinearConcat", [*scaled(t, 0.05), *(x for p in parts for x in p)], {"axis": 1}
    )


def where(t: Any) -> Case:
    chosen = (np.arange(30).reshape(2, 3, 5) % 3 == 0,)
    x, y = ([steps(t, 2, 3, 5), *scaled(t, scale)] for scale in (0.03, 0.07))
    return Case("QLinearWhere", [chosen, *x, *y, *scaled(t, 0.05)])


def qgemm(
    t: Any, w: Any, real: bool = False, columns: bool = False, **attrs: Any
) -> Case:
    scale, zero = scaled(w, 0.004)
    if np.dtype(w) == np.int8:
        zero = number(0, np.int8)
    if columns:
        scale, zero = (
            (np.linspace(0.002, 0.01, 6, dtype=np.float32),),
            (np.full(6, zero[0]),),
        )
    shape = (6, 9) if attrs.get("transB") else (9, 6)
    bias = (RNG.integers(-3000, 3000, 6).astype(np.int32),)
    target = [] if real else scaled(t, 0.06)
    operands = [
        steps(t, 4, 9),
        *scaled(t, 0.03),
        (steps(w, *shape),),
        scale,
        zero,
        bias,
        *target,
    ]
    return Case("QGemm", operands, attrs)


def integer_cases(t: Any) -> dict[str, Case]:
    window: dict[str, Any] = {
        "kernel_shape": [3, 2],
        "strides": [2, 1],
        "pads": [1, 0, 1, 1],
    }
    return {
        "add": binary("QLinearAdd", t, 0.06),
        "add_channels": binary("QLinearAdd", t, 0.05, 4, 1, 1),
        "mul": binary("QLinearMul", t, 0.11),
        "mul_row": binary("QLinearMul", t, 0.09, 5),
        "concat": concat(t),
        "where": where(t),
        "average": unary("QLinearAveragePool", t, 0.025, **window),
        "average_padded": unary(
            "QLinearAveragePool", t, 0.025, count_include_pad=1, **window
        ),
        "average_last": unary("QLinearAveragePool", t, 0.03, channels_last=1, **window),
        "global": unary("QLinearGlobalAveragePool", t, 0.011),
        "global_last": unary("QLinearGlobalAveragePool", t, 0.011, channels_last=1),
        "sigmoid": unary("QLinearSigmoid", t, 1 / 256, True),
        "leaky": unary("QLinearLeakyRelu", t, 0.02, alpha=0.1),
        "softmax": unary("QLinearSoftmax", t, 1 / 256, True, 3, 11, axis=-1, opset=13),
        "softmax_axis": unary(
            "QLinearSoftmax", t, 1 / 256, True, 3, 4, 5, axis=1, opset=13
        ),
        "softmax_old": unary(
            "QLinearSoftmax", t, 1 / 200, True, 3, 4, 5, axis=1, opset=12
        ),
        "gemm": qgemm(t, np.int8, transB=1),
        "gemm_columns": qgemm(t, np.int8, columns=True),
        "gemm_alpha": qgemm(t, np.int8, alpha=0.7),
        "gemm_unsigned": qgemm(t, np.uint8, transB=1) if t == np.uint8 else qgemm(t, t),
        "gemm_float": qgemm(t, np.int8, real=True, transB=1),
    }


INTEGERS = {
    f"{name}_{np.dtype(t).name}": case
    for t in (np.uint8, np.int8)
    for name, case in integer_cases(t).items()
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_operators_match_onnx_runtime(name: str) -> None:
    ((ours, theirs),) = compare(INTEGERS[name])
    assert ours.dtype == theirs.dtype
    if ours.dtype == np.float32:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
        return
    np.testing.assert_array_equal(ours, theirs)


WEIGHTS = (steps(np.int8, 12, 7),)
COLUMNS = (np.linspace(0.001, 0.01, 7, dtype=np.float32),)
MIXED: dict[str, Case] = {
    "dynamic": Case("DynamicQuantizeLinear", [X], {}, (0, 1, 2), ""),
    "dynamic_zeros": Case(
        "DynamicQuantizeLinear", [np.zeros_like(X)], {}, (0, 1, 2), ""
    ),
    "dynamic_matmul": Case("DynamicQuantizeMatMul", [X, WEIGHTS, COLUMNS, None, c(7)]),
    "matmul_to_float": Case(
        "MatMulIntegerToFloat",
        [steps(np.uint8, 3, 12), WEIGHTS, number(0.02), COLUMNS, number(131, np.uint8)],
    ),
    "q_attention": Case(
        "QAttention",
        [
            steps(np.uint8, 1, 5, 12),
            (steps(np.int8, 12, 36),),
            c(36),
            number(0.01),
            number(0.004),
            None,
            number(120, np.uint8),
            number(0, np.int8),
        ],
        HEADS,
    ),
    "conv_last": Case(
        "QLinearConv",
        [
            steps(np.uint8, 1, 6, 6, 4),
            *scaled(np.uint8, 0.03),
            (steps(np.int8, 5, 4, 3, 3),),
            number(0.004),
            number(0, np.int8),
            *scaled(np.uint8, 0.08),
        ],
        {"channels_last": 1, "pads": [1] * 4, "kernel_shape": [3, 3]},
    ),
    "max_pool_last": Case(
        "NhwcMaxPool",
        [steps(np.uint8, 1, 6, 6, 4)],
        {"kernel_shape": [3, 3], "strides": [2, 2]},
    ),
}


@pytest.mark.parametrize("case", MIXED.values(), ids=MIXED)
def test_dynamic_quantization_matches_onnx_runtime(case: Case) -> None:
    for ours, theirs in compare(case):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_an_unsupported_form_names_the_operator_of_the_file() -> None:
    data, _ = Case(
        "FusedGemm", [f(3, 6), c(5, 6), c(5)], {"activation": "Gone"}
    ).model()
    with pytest.raises(UnsupportedError, match="FusedGemm"):
        imported(data)


def test_every_operator_has_a_case() -> None:
    cases = {**FLOATS, **INTEGERS, **MIXED}.values()
    listed = {name for name in onnx_operators() if name.startswith("com.microsoft:")}
    tested = {f"{case.domain}:{case.op}" for case in cases if case.domain}
    elsewhere = {"GroupQueryAttention"}  # test_attention.py
    assert listed - tested == {
        f"com.microsoft:{op}"
        for op in ("DequantizeLinear", "QuantizeLinear", *elsewhere)
    }
