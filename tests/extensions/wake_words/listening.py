"""ESPHome's way of listening, with TFLM's interpreter and front end from PyPI.

The rules are those of its component micro_wake_word, in Python: rows of features,
runs of the models, windows of probabilities, and the wait after a detection.
"""

import json
import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from firmwright.base.dtypes import Array

STEP = 160
FEATURES = 40
ROWS_TO_WAIT = 100
_FRONT_END_STEP = 0.0390625
"""The package returns rows of integers multiplied by this."""


@dataclass(slots=True)
class Listener:
    """A word: its interpreter and the detection from its probabilities."""

    interpreter: Any
    cutoff: int
    window: int
    stride: int
    recent: list[int] = field(default_factory=list)
    last: int = 0
    ignored: int = -ROWS_TO_WAIT
    rows: list[Array] = field(default_factory=list)

    is_blocked: bool = False

    def hears(self, row: Array, voice: "Listener | None" = None) -> bool:
        """Return whether the word is complete with this row, and there is a voice.

        The row has been given to `voice` before.
        """
        is_new = self.take(row)
        if self.recent[self.last] < self.cutoff:
            self.ignored = min(self.ignored + 1, 0)
        is_heard = is_new and self.ignored == 0 and self.is_above
        self.is_blocked = is_heard and voice is not None and not voice.is_above
        if self.is_blocked:
            return False
        if is_heard:
            self.recent = [0] * self.window
            self.ignored = -ROWS_TO_WAIT
        return is_heard

    def take(self, row: Array) -> bool:
        """Return whether the model has run with this row."""
        self.rows.append(row)
        if len(self.rows) < self.stride:
            return False
        self.interpreter.set_input(np.stack(self.rows)[None], 0)
        self.interpreter.invoke()
        self.last = (self.last + 1) % self.window
        self.recent[self.last] = int(self.interpreter.get_output(0).ravel()[0])
        self.rows.clear()
        return True

    @property
    def is_above(self) -> bool:
        return sum(self.recent) > self.cutoff * self.window


def listeners(manifests: Sequence[Path]) -> list[Listener]:
    """Return a listener for each manifest."""
    from tflite_micro.python.tflite_micro import runtime

    made: list[Listener] = []
    for manifest in manifests:
        facts = json.loads(manifest.read_text(encoding="utf-8"))
        model = runtime.Interpreter.from_file(str(manifest.parent / facts["model"]))
        micro = facts["micro"]
        window = micro["sliding_window_size"]
        stride = int(model.get_input_details(0)["shape"][1])
        cutoff = int(micro["probability_cutoff"] * 255)
        made.append(Listener(model, cutoff, window, stride, [0] * window))
    return made


def feature_rows(samples: Array) -> Iterator[Array]:
    """Yield a row of int8 for each step, after 20 ms of silence, as ESPHome does."""
    from pymicro_features import MicroFrontend

    front_end = MicroFrontend()
    for _ in range(2):
        front_end.process_samples(bytes(2 * STEP))
    for start in range(0, len(samples) - STEP + 1, STEP):
        found = front_end.process_samples(samples[start : start + STEP].tobytes())
        values = np.round(np.array(found.features) / _FRONT_END_STEP).astype(np.int32)
        row = (values * 256 + 333) // 666 - 128
        yield np.clip(row, -128, 127).astype(np.int8)


def sounds(seconds: int, seed: int) -> Array:
    """Return noise, voiced tones, silence and clicks, a second of each in turn."""
    rng = np.random.default_rng(seed)
    size = 16_000
    time = np.arange(size) / size
    parts: list[Array] = []
    for second in range(seconds):
        loudness = rng.uniform(10, 12_000)
        match second % 4:
            case 0:
                part = rng.standard_normal(size)
            case 1:
                part = np.zeros(size)
                for pitch in rng.uniform(80, 3_500, 12):
                    level = np.repeat(rng.uniform(0, 0.3, 20), size // 20)
                    part += np.sin(2 * np.pi * pitch * time) * level
            case 2:
                part = np.zeros(size)
            case _:
                part = (rng.random(size) < 0.002) * 2.0
        parts.append((part * loudness).clip(-32_768, 32_767))
    return np.concatenate(parts).astype(np.int16)


def write_wav(file: Path, sound: Array, *, channels: int = 1) -> None:
    with wave.open(str(file), "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(16_000)
        writer.writeframes(sound.astype("<i2").tobytes())
