"""Programs of float64 compute what the same programs of float32 do, more exactly."""

from __future__ import annotations

import json

import numpy as np
import pytest

from firmwright.flows.model.model import Model, load_model
from firmwright.flows.samples.reference_outputs import run_numpy_reference
from firmwright.pipeline import load_module_bytes
from tests.pytorch.archive_writer import pack, unpacked
from tests.pytorch.test_programs import ARCHIVES, entry_of, samples

FLOAT32, FLOAT64 = 7, 8
CONFIG = "archive/data/weights/model_weights_config.json"
NAMES = ("ds_cnn", "mobilenet_v3", "transformer")


def in_double(data: bytes) -> bytes:
    """Return the program as `model.double()` exports it."""
    files = unpacked(data)
    for weight in json.loads(files[CONFIG])["config"].values():
        if weight["tensor_meta"]["dtype"] == FLOAT32:
            path = f"archive/data/weights/{weight['path_name']}"
            files[path] = np.frombuffer(files[path], "<f4").astype("<f8").tobytes()
    for path in (CONFIG, "archive/models/model.json"):
        text = json.dumps(json.loads(files[path]))
        for key in ("dtype", "as_scalar_type"):
            text = text.replace(f'"{key}": {FLOAT32},', f'"{key}": {FLOAT64},')
            text = text.replace(f'"{key}": {FLOAT32}}}', f'"{key}": {FLOAT64}}}')
        files[path] = text.encode()
    return pack(files)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_of_doubles_is_imported(name: str) -> None:
    single = load_model(ARCHIVES / f"{name}.pt2")
    data = in_double((ARCHIVES / f"{name}.pt2").read_bytes())
    double = Model(load_module_bytes(data, f"{name}.pt2"), source=data)
    values = [*entry_of(double).params, *entry_of(double).results]
    for call in entry_of(double).body:
        values += call.outputs
    assert all(value.type.dtype.name != "float32" for value in values)
    of_single = samples(single, name)
    of_double = [
        {
            k: x.astype(np.float64) if x.dtype == np.float32 else x
            for k, x in row.items()
        }
        for row in of_single
    ]
    expected = run_numpy_reference(single.module, of_single).outputs
    actual = run_numpy_reference(double.module, of_double).outputs
    for wanted, got in zip(expected, actual, strict=True):
        for key, array in wanted.items():
            np.testing.assert_allclose(got[key], array, rtol=2e-4, atol=2e-5)
