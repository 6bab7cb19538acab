"""SEANet's layers give the outputs recorded in tflite-micro's integration tests."""

import os
from pathlib import Path

import numpy as np
import pytest

from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import SampleBatch
from firmwright.flows.verify.verification import verify
from firmwright.ir.module import IoTensor

PATH_VARIABLE = "TFLITE_MICRO_PATH"
CHECKOUT = os.environ.get(PATH_VARIABLE, "")
FOLDER = Path(CHECKOUT) / "tensorflow/lite/micro/integration_tests/seanet"
KINDS = {
    "add": 17,
    "conv": 22,
    "leaky_relu": 23,
    "pad": 19,
    "quantize": 2,
    "strided_slice": 34,
    "sub": 5,
    "transpose_conv": 5,
}

pytestmark = [
    pytest.mark.deep,
    pytest.mark.host_c,
    pytest.mark.skipif(
        not CHECKOUT, reason=f"{PATH_VARIABLE} does not name a checkout of tflite-micro"
    ),
]


def recorded(model: Path, role: str, tensor: IoTensor) -> np.ndarray:
    """Return the values in the file `<model>_<role>_<type>.csv`."""
    (path,) = model.parent.glob(f"{model.stem}_{role}_*.csv")
    values = np.loadtxt(path, delimiter=",", dtype=np.int64)
    return values.astype(tensor.type.dtype.np).reshape(tensor.type.shape)


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_equal_the_recorded_ones(kind: str) -> None:
    models = sorted((FOLDER / kind).glob("*.tflite"))
    assert len(models) == KINDS[kind]
    for model in models:
        compiled = compile_for(load_model(model), numerics="tflm")
        io = compiled.module.io
        inputs = {
            t.name: recorded(model, f"input{i}", t) for i, t in enumerate(io.inputs)
        }
        (output,) = io.outputs
        expected = [{output.name: recorded(model, "golden", output)}]
        result = verify(compiled, batch=SampleBatch((inputs,)), expected=expected)
        assert result.exact, (model.name, result)
