"""A verdict: exact, different with the place named, or recorded by a known runtime."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.flows.executors import Executor
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.samples.reference_outputs import (
    compute_reference,
    run_interpreter,
    run_numpy_reference,
    run_oracle_reference,
)
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.verification import (
    SAMPLES_PER_TASK,
    verify,
    verify_in_parts,
)
from firmwright.ir.core import Constant
from firmwright.oracle.compare import compare_outputs
from firmwright.pipeline import Compilation

SAMPLES = 5


@pytest.fixture
def digits(digits_path: Path) -> Compilation:
    return compile_for(load_model(digits_path))


def damaged(path: Path, constant: str) -> Compilation:
    """The model with one weight tensor negated, which still names the same file."""
    model = load_model(path)
    table = dict(model.module.constants)
    old = table[constant]
    values = np.asarray(old.array(), np.int16)
    table[constant] = Constant.from_array(
        constant, np.clip(-values, -127, 127), old.dtype
    )
    return compile_for(replace(model, module=replace(model.module, constants=table)))


def test_all_references_agree_on_the_digits(digits: Compilation):
    samples = generate_samples(digits.module.io.inputs, SAMPLES).samples
    oracle = compute_reference(digits, samples)
    assert oracle.name.startswith("LiteRT BUILTIN_REF")
    for other in (
        run_numpy_reference(digits.imported, samples),
        run_interpreter(digits.module, samples),
    ):
        assert compare_outputs(oracle.outputs, other.outputs).mismatches == 0


def test_module_without_model_file_uses_the_numpy_references(digits_path: Path):
    module = load_model(digits_path).module
    compiled = compile_for(Model(module))
    samples = generate_samples(compiled.module.io.inputs, 1).samples
    assert compute_reference(compiled, samples).name == "firmwright numpy references"
    lowered = compile_for(Model(compiled.module))
    assert compute_reference(lowered, samples).name == "firmwright TIR interpreter"


@pytest.mark.host_c
def test_digits_firmware_is_bit_exact(digits: Compilation):
    found = verify(digits, samples=SAMPLES, find_first_divergence=True)
    assert found.exact
    assert (found.samples, found.values, found.mismatches) == (SAMPLES, 10 * SAMPLES, 0)
    assert found.layers_compared == 9
    assert found.layer is None
    assert len(found.outputs) == SAMPLES


@pytest.mark.host_c
def test_first_diverging_operator_is_named(digits_path: Path):
    compiled = damaged(digits_path, "conv_2d_3/weights")
    found = verify(compiled, samples=SAMPLES, find_first_divergence=True)
    assert not found.exact
    assert found.first is not None
    assert found.layer is not None
    assert (found.layer.kind, found.layer.judged) == ("conv2d", "host")
    assert "conv_2d_3" in found.layer.name


@pytest.mark.host_c
def test_recording_replaces_the_reference(digits: Compilation):
    batch = generate_samples(digits.module.io.inputs, SAMPLES)
    recorded = [
        dict(outputs) for outputs in compute_reference(digits, batch.samples).outputs
    ]
    assert verify(digits, batch=batch, expected=recorded).exact
    changed = recorded[3]["digit"].copy()
    changed[0, 4] += 1
    recorded[3]["digit"] = changed
    found = verify(digits, batch=batch, expected=recorded)
    assert (found.mismatches, found.max_abs_error) == (1, 1)
    assert found.first is not None
    assert (found.first.sample, found.first.tensor, found.first.index) == (
        3,
        "digit",
        (0, 4),
    )
    assert found.explanation == ""


@pytest.mark.host_c
def test_recording_with_another_sample_count_is_an_error(digits: Compilation):
    expected = [{"digit": np.zeros((1, 10), np.int8)}] * 2
    with pytest.raises(UsageError, match="the recording has 2 samples, but 3 are run"):
        verify(digits, samples=3, expected=expected)


@pytest.mark.host_c
@pytest.mark.models
@pytest.mark.deep
def test_runtime_of_a_recording_is_identified(model_path: Callable[[str], Path]):
    compiled = compile_for(load_model(model_path("ad01_int8.tflite")))
    batch = generate_samples(compiled.module.io.inputs, SAMPLES)
    recorded = run_oracle_reference(compiled, batch.samples, "tflm").outputs
    found = verify(compiled, batch=batch, expected=recorded)
    assert found.mismatches > 0
    assert found.explanation.startswith("the recording equals TFLM (tflite-micro)")
    assert found.explanation.endswith("use --numerics tflm.")


@pytest.mark.host_c
@pytest.mark.models
@pytest.mark.deep
def test_recording_by_xnnpack_kernels_is_identified(model_path: Callable[[str], Path]):
    compiled = compile_for(load_model(model_path("kws_ref_model.tflite")))
    batch = generate_samples(compiled.module.io.inputs, 20)
    recorded = run_oracle_reference(compiled, batch.samples, "litert-xnnpack").outputs
    found = verify(compiled, batch=batch, expected=recorded)
    assert found.mismatches > 0
    assert "with XNNPACK" in found.explanation


class PicklingExecutor(Executor):
    """Sends tasks and results through pickle like a cluster; the last ends first."""

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any]
    ) -> Iterator[tuple[int, Any]]:
        for index, result in reversed(
            [*super().run(function, pickle.loads(pickle.dumps(tasks)))]
        ):
            yield index, pickle.loads(pickle.dumps(result))


@pytest.mark.deep
@pytest.mark.host_c
def test_parts_of_a_verification_equal_the_whole(digits: Compilation):
    batch = generate_samples(digits.module.io.inputs, SAMPLES_PER_TASK + 2)
    whole = verify(digits, batch=batch)
    parts = verify_in_parts(PicklingExecutor(), digits, batch)
    assert replace(parts, outputs=()) == replace(whole, outputs=())
    assert compare_outputs(whole.outputs, parts.outputs).mismatches == 0
    (name,) = whole.outputs[0]
    recorded = [{name: values[name].copy()} for values in whole.outputs]
    recorded[-1][name].flat[3] ^= 1
    result = verify_in_parts(PicklingExecutor(), digits, batch, recorded)
    assert (result.mismatches, result.max_abs_error) == (1, 1)
    assert result.first.sample == SAMPLES_PER_TASK + 1
    with pytest.raises(
        UsageError, match="the recording has 33 samples, but 34 are run"
    ):
        verify_in_parts(PicklingExecutor(), digits, batch, recorded[1:])
