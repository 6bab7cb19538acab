"""AudioSpectrogram and Mfcc equal LiteRT within the bound of spectra."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError
from firmwright.extensions.tflm_signal.spectrograms import (
    MFCC,
    SPECTROGRAM,
    mel_weights,
)
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import load_module_bytes
from tests.state.model_writer import ModelFile

RATE = 16_000
BANK = {
    "upper_frequency_limit": 7_000.0,
    "lower_frequency_limit": 20.0,
    "filterbank_channel_count": 40,
    "dct_coefficient_count": 13,
}


def sound_model(
    samples: int, channels: int, window: int, stride: int, *, is_mfcc: bool
) -> bytes:
    """Return a model of sound [samples, channels]: a spectrogram, or its MFCC."""
    file = ModelFile()
    main = file.graph("main")
    sound = main.input("sound", "float32", (samples, channels))
    length = 1 << (window - 1).bit_length()
    shape = (channels, (samples - window) // stride + 1, length // 2 + 1)
    spectra = main.tensor("spectra", "float32", shape)
    settings = {"window_size": window, "stride": stride, "magnitude_squared": is_mfcc}
    main.op(SPECTROGRAM, [sound], [spectra], **settings)
    result = spectra
    if is_mfcc:
        rate = main.constant("rate", np.array([RATE], np.int32))
        result = main.tensor("mfcc", "float32", (*shape[:2], 13))
        main.op(MFCC, [spectra, rate], [result], **BANK)
    main.outputs(result)
    return file.data()


@pytest.mark.parametrize(
    ("samples", "channels", "window", "stride", "is_mfcc"),
    [
        (2_000, 1, 512, 160, False),
        (1_500, 2, 200, 300, False),
        (4_000, 1, 480, 320, True),
        (2_000, 2, 640, 200, True),
    ],
)
@pytest.mark.host_c
def test_results_are_within_the_bound_of_litert(
    samples: int, channels: int, window: int, stride: int, is_mfcc: bool
) -> None:
    data = sound_model(samples, channels, window, stride, is_mfcc=is_mfcc)
    compiled = compile_for(Model(load_module_bytes(data, "m.tflite"), data))
    assert verify(compiled, samples=4).mismatches == 0


def test_a_transform_that_is_too_short_is_refused() -> None:
    data = sound_model(100, 1, 8, 4, is_mfcc=False)
    with pytest.raises(UnsupportedError, match="windows of 17 to 16,384 samples"):
        load_module_bytes(data, "m.tflite")


def test_a_rate_that_is_not_constant_is_refused() -> None:
    file = ModelFile()
    main = file.graph("main")
    spectra = main.input("spectra", "float32", (1, 4, 257))
    rate = main.input("rate", "int32", (1,))
    result = main.tensor("mfcc", "float32", (1, 4, 13))
    main.op(MFCC, [spectra, rate], [result], **BANK)
    main.outputs(result)
    with pytest.raises(UnsupportedError, match="with a constant rate"):
        load_module_bytes(file.data(), "m.tflite")


def test_a_filter_bank_shares_each_bin_among_two_channels() -> None:
    weights = mel_weights(257, RATE, 40, 20.0, 7_000.0)
    total = weights.sum(axis=0)
    last = int(7_000 / (RATE / 512))
    # The channels above the last center and below the first one are not there.
    assert np.allclose(total[8:200], 1)
    assert np.all(total[last + 1 :] == 0)
    assert np.all((weights > 0).sum(axis=0) <= 2)
