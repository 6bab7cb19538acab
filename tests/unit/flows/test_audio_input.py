"""`run --input x.wav`: sound for models with an audio front end."""

from __future__ import annotations

import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.cli.main import main
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import read_inputs

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "02_keyword"
KEYWORD, DIGITS = (
    EXAMPLE / "keyword.tflite",
    ROOT / "examples" / "01_digits" / "digits.tflite",
)


def write_wav(path: Path, samples: np.ndarray, channels: int = 1) -> str:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.astype("<i2").tobytes())
    return str(path)


@pytest.mark.host_c
@pytest.mark.deep
def test_keywords_in_a_wav_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delitem(sys.modules, "speech", raising=False)
    import speech

    sound = speech.scene([(0.2, "up")], 1.0, np.random.default_rng(99))
    path, out = write_wav(tmp_path / "speech.wav", sound), tmp_path / "out.npz"
    words = ["run", str(KEYWORD), "--numerics", "tflm", "--in-process", "--input", path]
    assert main([*words, "--output", str(out)]) == 0
    actual = np.load(out)["words"]
    compiled = compile_for(load_model(KEYWORD), numerics="tflm")
    with open_session(compiled, in_process=True) as session:
        expected = session.run(speech.hops(sound)[:, None])
    assert len(actual) == 50
    assert np.array_equal(actual.reshape(50, 3), np.asarray(expected).reshape(50, 3))
    assert actual.reshape(50, 3).argmax(axis=1).max() == 1  # the word "up" and no other


def test_other_models_and_files_are_refused(tmp_path: Path):
    sound = np.zeros(1000)
    digits, keyword = (compile_for(load_model(path)) for path in (DIGITS, KEYWORD))
    path = write_wav(tmp_path / "x.wav", sound)
    said = (
        r"no audio front end: it takes image int8 \[1, 8, 8, 1\]\. Try: an \.npz file"
    )
    with pytest.raises(UsageError, match=said):
        read_inputs(path, digits)
    with pytest.raises(
        UsageError, match=r"2 channels of 16 bits .*Try: one channel of 16 bits"
    ):
        read_inputs(write_wav(tmp_path / "stereo.wav", sound, 2), keyword)
    with pytest.raises(UsageError, match="and 20 bytes"):
        read_inputs(write_wav(tmp_path / "short.wav", sound[:10]), keyword)
    (tmp_path / "bad.wav").write_text("no sound")
    with pytest.raises(UsageError, match="the sound cannot be read"):
        read_inputs(str(tmp_path / "bad.wav"), keyword)
