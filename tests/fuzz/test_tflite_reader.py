"""Tests that damaged .tflite files yield a model or ModelError, in linear memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.base.errors import ModelError
from firmwright.frontends.tflite import read_tflite
from firmwright.frontends.tflite.decoded_model import RawModel
from tests.fuzz.damage import mutants, structure_places

MUTANTS_PER_MODEL = 60
PEAK_PER_BYTE = 16
PEAK_BASE = 1 << 20

MODELS = (
    "ad01_int8.tflite",
    "kws_ref_model.tflite",
    "pretrainedResnet_quant.tflite",
    "str_ww_ref_model.tflite",
    "vww_96_int8.tflite",
    "kws_ref_model_float32.tflite",
)


@pytest.mark.sampled(3)
@pytest.mark.models
@pytest.mark.parametrize("name", MODELS)
def test_damaged_mlperf_models_yield_a_value_or_an_error(
    name: str, model_path: Callable[[str], Path], deep: bool
) -> None:
    data = model_path(name).read_bytes()
    check_mutants(data, MODELS.index(name), MUTANTS_PER_MODEL * (50 if deep else 1))


def test_damaged_digits_models_yield_a_value_or_an_error(
    digits_path: Path, deep: bool
) -> None:
    check_mutants(digits_path.read_bytes(), 1000, 4000 if deep else 200)


def check_mutants(data: bytes, seed: int, count: int) -> None:
    refused = 0
    for label, changed in mutants(data, structure_places(data), seed, count):
        tracemalloc.start()
        try:
            model = read_tflite(changed, "damaged.tflite")
            assert isinstance(model, RawModel), label
        except ModelError as error:
            refused += 1
            check_message(error, label)
        finally:
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak_bytes <= PEAK_PER_BYTE * len(data) + PEAK_BASE, label
    assert refused > count // 4, "the damage misses what matters"


def check_message(error: ModelError, label: str) -> None:
    assert error.where.startswith("damaged.tflite"), label
    assert error.hint, label
    assert "\n" not in str(error), label
