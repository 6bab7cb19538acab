"""TensorFlow's tensor lists in loops: equal to numpy, as tensors in the firmware.

LiteRT and TFLM do not have these operators. Where TensorFlow is installed, its kernels
of lists are compared, too.
"""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.samples.reference_outputs import (
    NUMPY_REFERENCE,
    run_numpy_reference,
)
from firmwright.flows.samples.sample_batches import SampleBatch
from firmwright.flows.verify.access_checking import open_checked_session
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import load_module_bytes
from tests.state.model_writer import ModelFile
from tests.state.tensor_list_model import (
    FEATURES,
    STEPS,
    UNITS,
    expected_states,
    list_op,
    tensor_list_model,
)


def _samples() -> SampleBatch:
    rng = np.random.default_rng(3)
    shape = 1, STEPS, FEATURES
    samples = [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(3)]
    return SampleBatch(tuple(samples))


@pytest.mark.parametrize("element", [(-1, UNITS), (1, UNITS)])
def test_a_loop_over_lists_equals_numpy(element: tuple[int, ...]) -> None:
    module = load_module_bytes(tensor_list_model(element), "lists.tflite")
    samples = _samples().samples
    for sample, results in zip(
        samples, run_numpy_reference(module, samples).outputs, strict=True
    ):
        states, last = expected_states(sample["x"])
        double, h = results.values()
        np.testing.assert_allclose(double, 2 * states, atol=1e-6)
        np.testing.assert_allclose(h, last, atol=1e-6)
        assert not double[-1].any()  # never set


@pytest.mark.host_c
def test_firmware_equals_the_reference() -> None:
    data = tensor_list_model()
    compiled = compile_for(Model(load_module_bytes(data, "lists.tflite"), data), "host")
    result = verify(compiled, batch=_samples(), open_with=open_checked_session)
    assert result.exact
    assert result.values == 3 * (STEPS + 1) * UNITS
    assert result.reference == NUMPY_REFERENCE
    assert "LiteRT and TFLM do not run" in result.explanation


def test_lists_of_unknown_types_are_named_with_the_remedy() -> None:
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "float32", (2, 3))
    y, unused = main.tensor("y", "float32", (2, 3)), main.tensor("list", "variant")
    shape = main.constant("shape", np.array([3], np.int32))
    count = main.constant("count", np.array(2, np.int32))
    list_op(main, "Reserve", [shape, count], unused)
    main.op("ADD", [x, x], [y], "AddOptions")
    main.outputs(y)
    with pytest.raises(UnsupportedError, match="FlexTensorListReserve"):
        load_module_bytes(file.data(), "lists.tflite")


@pytest.mark.host_c
def test_firmware_equals_the_kernels_of_tensorflow_and_litert() -> None:
    pytest.importorskip("tensorflow", reason="needs TensorFlow's kernels of lists")
    from tests.state.tensor_list_runtime import TensorListRuntime

    data = tensor_list_model()
    compiled = compile_for(Model(load_module_bytes(data, "lists.tflite"), data), "host")
    runtime, samples = TensorListRuntime(data), _samples().samples
    with open_session(compiled) as session:
        outputs = session.run_all(samples)
    for sample, found in zip(samples, outputs, strict=True):
        expected = runtime.run(sample["x"])
        for own, theirs in zip(found.values(), expected, strict=True):
            np.testing.assert_allclose(own, theirs, rtol=0, atol=1e-6)
