"""Two synthetic keywords, noise between them, and .wav files: 16 kHz, 16 bits, mono.

"up" is a voice whose pitch rises within a third of a second, "down" one whose pitch
falls; strength, pitch, length and noise vary with the seed.
"""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
HOP = 320  # samples a run: 20 ms
WORDS = ("nothing", "up", "down")

Samples = NDArray[np.int16]


def word(name: str, rng: np.random.Generator) -> NDArray[np.float64]:
    """Synthesize one keyword with a peak of about 1."""
    time = np.arange(int(RATE * rng.uniform(0.30, 0.40))) / RATE
    low, high = 220 * rng.uniform(0.85, 1.15), 520 * rng.uniform(0.85, 1.15)
    pitch = np.linspace(*((low, high) if name == "up" else (high, low)), len(time))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    voice = sum(np.sin(n * phase + rng.uniform(0, 6)) / n for n in range(1, 9))
    shape = np.maximum(np.sin(np.pi * time / time[-1]), 0) ** 0.5
    return voice * shape / np.abs(voice).max()


def scene(
    said: Sequence[tuple[float, str]], length_s: float, rng: np.random.Generator
) -> Samples:
    """Return `length_s` seconds with keywords at the given times."""
    sound = rng.normal(0, rng.uniform(20, 120), int(length_s * RATE))
    sound += rng.uniform(0, 60) * np.sin(2 * np.pi * 100 * np.arange(len(sound)) / RATE)
    for start_s, name in said:
        spoken = rng.uniform(3_000, 12_000) * word(name, rng)
        first = int(start_s * RATE)
        sound[first : first + len(spoken)] += spoken[: len(sound) - first]
    return np.clip(np.round(sound), -32768, 32767).astype(np.int16)


def hops(sound: Samples) -> Samples:
    """Split samples into one row per run."""
    count = len(sound) // HOP
    return sound[: count * HOP].reshape(count, HOP)


def write_wav(path: str | Path, sound: Samples) -> None:
    """Write the samples to a file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(sound.astype("<i2").tobytes())


def read_wav(path: str | Path) -> Samples:
    """Read the samples of a file with this width; a multiple of the rate is reduced."""
    with wave.open(str(path), "rb") as file:
        channels, width, rate = (
            file.getnchannels(),
            file.getsampwidth(),
            file.getframerate(),
        )
        if (channels, width) != (1, 2) or rate % RATE or not 1 <= rate // RATE <= 6:
            raise SystemExit(
                f"{path}: {channels} channels of {width} bytes at {rate} Hz, not one "
                f"channel of 2 bytes at {RATE} Hz or up to 6 times as many."
            )
        read = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return every_nth(read.astype(np.int16), rate // RATE)


def every_nth(sound: Samples, n: int) -> Samples:
    """Return every n-th sample, without frequencies that the new rate cannot have."""
    if n == 1:
        return sound
    reach = 16 * n
    place = np.arange(-reach, reach + 1) / n
    low_pass = 0.9 * np.sinc(0.9 * place) * np.hanning(2 * reach + 3)[1:-1]
    padded = np.pad(sound.astype(np.float64), reach)
    kept = np.convolve(padded, low_pass / low_pass.sum(), "valid")[::n]
    return np.clip(np.round(kept), -32768, 32767).astype(np.int16)
