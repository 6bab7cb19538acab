"""Logarithms of quiet bins are verified by the proved bound of spectra of floats."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.spectrum_bounds import (
    compare_with_proof,
    spectrum_intervals,
    transform_error,
)
from firmwright.flows.verify.verification import verify
from firmwright.oracle.compare import Interval
from firmwright.oracle.reference_runner import run_reference
from firmwright.pipeline import Compilation, load_module_bytes
from tests.state.model_writer import ModelFile

POINTS, CHANNELS = 256, 8
BINS = POINTS // 2 + 1


def log_mel_model() -> bytes:
    """Return log(amplitudes @ weights + 1e-6) of a weighted frame, as TF converts it."""
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "float32", (1, 1, POINTS))
    window = main.constant("window", np.hanning(POINTS + 1)[:-1].astype(np.float32))
    frame = main.tensor("frame", "float32", (1, 1, POINTS))
    main.op("MUL", [x, window], [frame], "MulOptions")
    sizes = main.constant("sizes", np.array([1, POINTS], np.int32))
    spectrum = main.tensor("spectrum", "complex64", (1, 1, BINS))
    main.op("RFFT2D", [frame, sizes], [spectrum], "Rfft2dOptions")
    amplitudes = main.tensor("amplitudes", "float32", (1, 1, BINS))
    main.op("COMPLEX_ABS", [spectrum], [amplitudes])
    flat = main.tensor("flat", "float32", (1, BINS))
    shape = main.constant("shape", np.array([1, BINS], np.int32))
    main.op("RESHAPE", [amplitudes, shape], [flat], "ReshapeOptions")
    weights = np.zeros((CHANNELS, BINS), np.float32)
    for channel in range(CHANNELS):
        weights[channel, channel * 16 : channel * 16 + 20] = 0.5
    bias = np.full(CHANNELS, 1e-6, np.float32)
    operands = [flat, main.constant("mel", weights), main.constant("bias", bias)]
    mel = main.tensor("sums", "float32", (1, CHANNELS))
    main.op("FULLY_CONNECTED", operands, [mel], "FullyConnectedOptions")
    y = main.tensor("y", "float32", (1, CHANNELS))
    main.op("LOG", [mel], [y])
    main.outputs(y)
    return file.data()


@pytest.fixture(scope="module")
def compiled() -> Compilation:
    data = log_mel_model()
    return compile_for(Model(load_module_bytes(data, "log_mel.tflite"), data), "host")


@pytest.mark.host_c
def test_quiet_bins_are_within_the_proved_bound(compiled: Compilation) -> None:
    result = verify(compiled, samples=4, find_first_divergence=True)
    assert result.exact
    assert result.max_abs_error > 0.002  # more than the tolerance of 1e-4 * 14
    assert "of them differ by more, within the proved bound" in result.explanation
    assert result.layer is None


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_values_of_loud_bins_must_be_right(
    compiled: Compilation, factor: float
) -> None:
    module = compiled.imported
    samples = generate_samples(compiled.module.io.inputs, 4).samples
    louder = [{"x": sample["x"] * np.float32(factor)} for sample in samples]
    data = log_mel_model()
    expected = run_reference(data, samples, "litert").outputs
    wrong = run_reference(data, louder, "litert").outputs
    compared = compare_with_proof(module, samples, expected, wrong)
    assert compared.mismatches >= CHANNELS  # all of the noise, and the loud channel
    again = compare_with_proof(module, samples, expected, expected)
    assert (again.mismatches, again.proved) == (0, 0)


def test_intervals_contain_the_values_in_double(compiled: Compilation) -> None:
    module = compiled.imported
    samples = generate_samples(compiled.module.io.inputs, 5).samples
    expected = run_reference(log_mel_model(), samples, "litert").outputs
    for found, y in zip(spectrum_intervals(module, samples), expected, strict=True):
        logarithms = found["y"]
        assert isinstance(logarithms, Interval)
        slack = 1e-5
        assert (logarithms.low - slack <= y["y"]).all()
        assert (y["y"] <= logarithms.high + slack).all()
    noise = spectrum_intervals(module, samples[4:])[0]["y"]
    assert (noise.high - noise.low).max() < 1e-3


def test_the_bound_of_a_frame_is_that_of_its_size() -> None:
    frame = np.ones((1, 64), np.float32)
    assert transform_error(frame)[0, 0] == pytest.approx(4 * 2**-24 * 6 * 8 * 8)
