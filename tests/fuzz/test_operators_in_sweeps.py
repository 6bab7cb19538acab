"""Random graphs have all operators of the frontends, except those listed here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ai_edge_litert import schema_py_generated as schema

pytest.importorskip("onnx", reason="ONNX needs the package onnx")

import onnx
from firmwright.frontends.onnx.operators.registry import onnx_importers
from firmwright.frontends.tflite.operators.registry import imported_operators
from tests.fuzz.random_tflite_rare import random_rare_graph
from tests.fuzz.random_tflite_states import random_stateful_graph
from tests.onnx.random_flow_graphs import random_flow_model
from tests.onnx.random_qoperator_graphs import random_qoperator_model
from tests.onnx.random_rare_graphs import random_rare_model

SEEDS, QUANTIZED_SEEDS = 600, 4
SIGNAL = "a chain of TFLM's signal library, whose tests draw its frames"
CLASSICAL = "random_classical_model fits it"
REFERENCE_KERNELS = "LiteRT's reference kernels do not include it"
NOT_RANDOM_TFLITE = {
    "CEIL": REFERENCE_KERNELS,
    "ELU": REFERENCE_KERNELS,
    "ROUND": REFERENCE_KERNELS,
    "custom:CIRCULAR_BUFFER": "its results before it is full are undefined",
    "custom:TFLM_DECODE": "it decodes constants",
    "custom:ethos-u": "Vela makes it",
    **dict.fromkeys(
        (
            "custom:AudioSpectrogram",
            *("custom:SignalDelay", "custom:SignalEnergy"),
            *("custom:SignalFftAutoScale", "custom:SignalFilterBank"),
            *("custom:SignalFilterBankLog", "custom:SignalFilterBankSquareRoot"),
            *("custom:SignalFilterBankSpectralSubtraction", "custom:SignalFramer"),
            *("custom:SignalIrfft", "custom:SignalOverlapAdd", "custom:SignalPCAN"),
            *("custom:SignalRfft", "custom:SignalStacker", "custom:SignalWindow"),
        ),
        SIGNAL,
    ),
}
"""Operators that no generator of .tflite files has, with the reason."""
NOT_RANDOM_ONNX = {
    "BitCast": "ONNX Runtime does not read its opset",
    "CumProd": "ONNX Runtime does not read its opset",
    "MelWeightMatrix": "a matrix of constants, which is folded",
    "ai.onnx.ml:TreeEnsemble": "tests of tree_ensemble draw its trees",
    "ConstantOfShape": CLASSICAL,
    "Shape": CLASSICAL,
    **dict.fromkeys(
        (
            *("ai.onnx.ml:ArrayFeatureExtractor", "ai.onnx.ml:Binarizer"),
            *("ai.onnx.ml:Imputer", "ai.onnx.ml:LinearClassifier"),
            *("ai.onnx.ml:LinearRegressor", "ai.onnx.ml:Normalizer"),
            *("ai.onnx.ml:SVMClassifier", "ai.onnx.ml:SVMRegressor"),
            *("ai.onnx.ml:Scaler", "ai.onnx.ml:TreeEnsembleClassifier"),
            "ai.onnx.ml:TreeEnsembleRegressor",
        ),
        CLASSICAL,
    ),
}
"""Operators that no generator of networks in ONNX has, with the reason."""


def tflite_operators(data: bytes) -> Iterator[str]:
    numbers = vars(schema.BuiltinOperator).items()
    names = {number: name for name, number in numbers if isinstance(number, int)}
    model = schema.Model.GetRootAs(data, 0)
    for index in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(index)
        custom = code.CustomCode()
        yield f"custom:{custom.decode()}" if custom else names[code.BuiltinCode()]


def onnx_operators(graph: Any) -> Iterator[str]:
    """Yield the operators of a graph and of its bodies."""
    for node in graph.node:
        plain = node.domain in ("", "ai.onnx")
        yield node.op_type if plain else f"{node.domain}:{node.op_type}"
        for item in node.attribute:
            if item.HasField("g"):
                yield from onnx_operators(item.g)


def test_random_tflite_graphs_have_all_operators() -> None:
    missing = set(imported_operators())
    for seed in range(SEEDS):
        for make in (random_stateful_graph, random_rare_graph):
            missing.difference_update(tflite_operators(make(seed)))
        if missing <= set(NOT_RANDOM_TFLITE):
            break
    assert missing == set(NOT_RANDOM_TFLITE)


def test_random_onnx_graphs_have_all_operators() -> None:
    missing = set(onnx_importers())
    for seed in range(SEEDS):
        models = [random_flow_model(seed), random_rare_model(seed)]
        if seed < QUANTIZED_SEEDS:
            models.append(random_qoperator_model(seed))
        for data in models:
            graph = onnx.load_from_string(data).graph
            missing.difference_update(onnx_operators(graph))
        if missing <= set(NOT_RANDOM_ONNX):
            break
    assert missing == set(NOT_RANDOM_ONNX)
