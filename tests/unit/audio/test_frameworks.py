"""Features beside PyTorch's spectra, and the examples of training of docs/audio.md."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from firmwright.audio import Features
from firmwright.audio.batches import frames_of
from tests.unit.audio.test_error_bounds import vowels

PAGE = Path(__file__).resolve().parents[3] / "docs" / "audio.md"


def test_torch_in_double_is_within_the_limits() -> None:
    torch = pytest.importorskip("torch", reason="needs the Python package torch")
    features = Features(noise=None, gain=None)
    tables = features._definition
    sound = vowels()
    frames = frames_of(sound[None], features.frame, features.hop)[0]
    weighted = torch.from_numpy(frames.astype(np.float64))
    spectra = torch.fft.rfft(weighted * torch.from_numpy(tables.window), 512)
    mel = spectra.abs().pow(2) @ torch.from_numpy(tables.bank)
    values = (mel.sqrt().clamp(min=1)).log().numpy()
    lower, upper = features.limits(sound)
    own = features.to_float(features.compute(sound))
    fits = values < features.to_float(np.array(127, np.int8))
    assert np.all((lower <= values)[fits])
    assert np.all((values <= upper)[fits])
    assert np.all(np.abs(own - values)[fits] <= (upper - lower)[fits])


@pytest.mark.parametrize("package", ["torch", "tensorflow"])
def test_examples_of_training_run(package: str) -> None:
    pytest.importorskip(package, reason=f"needs the Python package {package}")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if f"import {package}" in block]
    exec(compile(code, str(PAGE), "exec"), {})
