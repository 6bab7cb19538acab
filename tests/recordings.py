"""Recorded speech: Debian's alsa-utils has some, and RECORDINGS_PATH names more.

The variable is a .wav file or a folder of them, of 16 bits in one channel at a multiple
of 16 kHz.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Samples = np.ndarray[Any, np.dtype[np.int16]]
VARIABLE = "RECORDINGS_PATH"
_ALSA = Path("/usr/share/sounds/alsa")
_READER = Path(__file__).resolve().parents[1] / "examples" / "02_keyword" / "speech.py"


def recordings() -> list[Path]:
    """Return the .wav files; the test skips where there are none."""
    files = sorted(_ALSA.glob("*.wav"))
    named = os.environ.get(VARIABLE)
    if named:
        files += sorted(Path(named).rglob("*.wav")) if Path(named).is_dir() else []
        files += [Path(named)] if Path(named).is_file() else []
    if not files:
        pytest.skip(f"no recordings: apt install alsa-utils, or {VARIABLE} names some")
    return files


@cache
def recorded_sound(hop: int) -> Samples:
    """Return all recordings as one stream of whole hops, int16 at 16 kHz."""
    spec = importlib.util.spec_from_file_location("speech", _READER)
    assert spec
    assert spec.loader
    speech = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(speech)
    sound = np.concatenate([speech.read_wav(path) for path in recordings()])
    return np.asarray(sound[: len(sound) // hop * hop], np.int16)
