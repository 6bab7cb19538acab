"""Features keep the derived bounds of their roundings, also in the worst case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from firmwright.audio import Features, FrameWindow
from firmwright.audio.error_bounds import TransformErrors, log_error
from firmwright.base.errors import UsageError
from firmwright.extensions.tflm_signal.fft import _Fractions
from firmwright.extensions.tflm_signal.filter_bank import LN2
from tests.unit.audio.test_features import seconds

Array = np.ndarray[Any, Any]
Samples = np.ndarray[Any, np.dtype[np.int16]]
SETTINGS = {
    "default": Features(noise=None, gain=None),
    "rectangle": Features(noise=None, gain=None, window=FrameWindow.RECTANGLE),
    "mfcc": Features(noise=None, gain=None, coefficients=13, scale=0.5, zero_point=0),
    "short": Features(
        noise=None, gain=None, frame=200, hop=100, length=256, channels=20, log_scale=64
    ),
    "long": Features(
        noise=None,
        gain=None,
        frame=1_500,
        hop=800,
        length=2_048,
        window=FrameWindow.HAMMING,
    ),
}


def vowels() -> Samples:
    """Return two seconds like speech: pulses through resonances, with pauses."""
    rng, n = np.random.default_rng(3), np.arange(32_000)
    pulses = (n % 133 == 0) * 1.0 + rng.normal(0, 0.003, len(n))
    decay = np.arange(300)
    for hertz in (700, 1_220, 2_600):
        response = np.exp(-decay / 60) * np.cos(2 * np.pi * hertz * decay / 16_000)
        pulses = np.convolve(pulses, response)[: len(n)]
    envelope = np.maximum(np.sin(n / 2_500), 0) * 20_000
    sound = pulses / np.abs(pulses).max() * envelope
    return np.asarray(np.round(sound), np.int16)


def assert_within(features: Features, samples: Samples) -> Array:
    """Check the values; return the widths of the limits."""
    lower, upper = features.limits(samples)
    values = features.to_float(features.compute(samples))
    assert np.all(lower <= values)
    assert np.all(values <= upper)
    return np.asarray(upper - lower)


@pytest.mark.parametrize("name", SETTINGS)
def test_values_are_within_the_limits(name: str) -> None:
    features = SETTINGS[name]
    for samples in (vowels(), seconds(14)):
        assert_within(features, samples)


def test_limits_are_narrow_for_loud_channels() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 6_000, 16_000).clip(-32_767, 32_767).astype(np.int16)
    widths = assert_within(SETTINGS["default"], noise)[2:]
    assert np.median(widths) < 0.5
    silence = assert_within(SETTINGS["default"], np.zeros(16_000, np.int16))
    assert silence.max() < 0.1


def error(samples: Array) -> float:
    """Return the greatest error of a bin in units of the bound."""
    own = TransformErrors(samples.shape[-1])
    pairs = _Fractions(15).spectrum(samples.astype(np.int64)).reshape(-1, 2)
    exact = np.fft.rfft(samples.astype(float)) / own.length * own.gain
    distance = np.abs(pairs[:, 0] + 1j * pairs[:, 1] - exact)
    errors = own.bins
    assert distance.max() <= errors.greatest
    assert np.linalg.norm(distance) <= errors.norm
    return float(distance.max() / errors.greatest)


@pytest.mark.parametrize("length", [64, 512])
def test_transforms_keep_their_bound_in_a_search_for_the_worst(length: int) -> None:
    rng = np.random.default_rng(length)
    best = rng.integers(-14_000, 14_000, length)
    worst = error(best)
    for _ in range(400):
        changed = np.where(
            rng.random(length) < 0.05, rng.integers(-14_000, 14_000, length), best
        )
        found = error(changed)
        if found > worst:
            best, worst = changed, found
    assert 0.1 < worst <= 1


def test_frames_that_may_overflow_have_the_limits_of_int8() -> None:
    features = SETTINGS["rectangle"]
    turn = 2 * np.pi * 32 * np.arange(160) / 256
    frame = np.stack([np.sign(np.cos(turn)), np.sign(np.sin(turn))], axis=-1)
    sound = np.tile(frame.reshape(-1) * 32_767, 4).astype(np.int16)
    widths = assert_within(features, sound)
    assert np.any(widths == 255 * features.scale)
    sound[:] = -32_768
    assert np.any(assert_within(features, sound) == 255 * features.scale)


def test_the_error_of_the_logarithm_is_that_of_its_table() -> None:
    below, above = log_error()
    # TFLM's interpolation adds almost nothing, so that the steps of the table remain.
    assert -0.0025 < below < 0 < above < 0.0015
    assert round(65536 * np.log(2)) == LN2


def test_noise_reduction_has_no_limits() -> None:
    with pytest.raises(UsageError, match=r"a bound with noise reduction.*noise=None"):
        Features().limits(np.zeros(320, np.int16))
