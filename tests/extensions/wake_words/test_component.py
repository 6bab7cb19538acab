"""The component listens as ESPHome does, with TFLM's probabilities."""

import ctypes
import os
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import Array
from firmwright.cli.main import main
from tests.extensions.wake_words.conftest import HOSTILE_PHRASE
from tests.extensions.wake_words.listening import (
    STEP,
    feature_rows,
    listeners,
    sounds,
)
from tests.unit.audio.test_float_logarithm import is_device_like

SPEECH = "FIRMWRIGHT_SPEECH"
"""The variable with a folder of .wav files (16 kHz, int16, mono) for `--deep`."""
ESPHOME = "FIRMWRIGHT_ESPHOME"
"""The variable with the folder in which the package esphome is installed."""


class WordState(ctypes.Structure):
    _fields_ = (
        ("latest", ctypes.c_uint8),
        ("average", ctypes.c_uint8),
        ("maximum", ctypes.c_uint8),
        ("cutoff", ctypes.c_uint8),
        ("is_enabled", ctypes.c_bool),
    )


@pytest.fixture(scope="module")
def library(
    manifests: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL:
    """Return the C of three words for this machine."""
    folder = tmp_path_factory.mktemp("library")
    words = ["export", "--format", "makefile", *map(str, manifests)]
    assert main([*words, "--board", "esp32c3", "-o", str(folder / "package")]) == 0
    return compile_library(folder / "package/model", folder)


def compile_library(sources: Path, folder: Path) -> ctypes.CDLL:
    file = folder / "wake_words.so"
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion"]
    command = ["gcc", *flags, "-Werror", "-shared", "-fPIC", "-o", str(file)]
    files = sorted(map(str, sources.glob("*.c")))
    subprocess.run([*command, *files], check=True, timeout=120)
    return load_library(file)


def load_library(file: Path) -> ctypes.CDLL:
    """Return the functions of wake_words.h, reset."""
    library = ctypes.CDLL(str(file))
    library.wake_words_state.restype = WordState
    library.wake_words_phrase.restype = ctypes.c_char_p
    library.wake_words_step.restype = ctypes.c_uint32
    library.wake_words_reset()
    return library


def require_front_end() -> None:
    pytest.importorskip("pymicro_features", reason="needs the package of this name")
    if not is_device_like():
        pytest.skip("needs glibc before 2.41, with whose log1pf TFLM makes its tables")


def hear_step(library: ctypes.CDLL, samples: Array) -> int:
    step = np.ascontiguousarray(samples)
    return int(library.wake_words_step(step.ctypes.data_as(ctypes.c_void_p)))


def _compare(library: ctypes.CDLL, manifests: list[Path], sound: Array) -> int:
    """Compare all steps with ESPHome's; return the number of detections."""
    library.wake_words_reset()
    words = listeners(manifests)
    heard = 0
    for number, row in enumerate(feature_rows(sound)):
        bits = hear_step(library, sound[number * STEP : (number + 1) * STEP])
        expected = 0
        for index, word in enumerate(words):
            expected |= word.hears(row) << index
            state = library.wake_words_state(index)
            assert state.latest == word.recent[word.last], (number, index)
        assert bits == expected, number
        heard += bits.bit_count()
    return heard


@pytest.mark.deep
def test_probabilities_and_detections_are_those_of_esphome(
    library: ctypes.CDLL, manifests: list[Path]
) -> None:
    require_front_end()
    _compare(library, manifests, sounds(20, seed=1))


@pytest.mark.deep
def test_an_hour_of_sound_has_the_probabilities_of_esphome(
    library: ctypes.CDLL, manifests: list[Path]
) -> None:
    require_front_end()
    rng = np.random.default_rng(2)
    sound = sounds(3_600, seed=2).astype(np.int32)
    clips = _speech()
    if not clips:
        pytest.skip(f"needs speech: .wav files in the folder ${SPEECH}")
    for place in range(0, len(sound) - 64_000, 32_000):
        clip = clips[int(rng.integers(len(clips)))] * rng.uniform(0.1, 1.2)
        sound[place : place + len(clip)] += clip[: len(sound) - place].astype(np.int32)
    limited = sound.clip(-32_768, 32_767).astype(np.int16)
    heard = _compare(library, manifests, limited)
    assert heard > 0
    print(f"{len(limited) // STEP} rows, {heard} detections")


def _speech() -> list[Array]:
    folder = os.environ.get(SPEECH)
    clips: list[Array] = []
    for file in sorted(Path(folder).glob("*.wav")) if folder else ():
        with wave.open(str(file)) as sound:
            assert sound.getframerate() == 16_000, file
            frames = sound.readframes(sound.getnframes())
        clips.append(np.frombuffer(frames, np.int16).astype(np.float64))
    return clips


def test_a_phrase_and_a_file_may_have_names_that_c_has_not(
    component: Path, tmp_path: Path
) -> None:
    """The plain C of the component compiles without warnings."""
    header = (component / "wake_words.h").read_text(encoding="utf-8")
    assert "#define WAKE_WORDS_MY_WORD_2 0u" in header
    library = compile_library(component, tmp_path)
    assert library.wake_words_phrase(0).decode() == HOSTILE_PHRASE


def test_esphome_accepts_and_compiles_the_component(
    component: Path, tmp_path: Path
) -> None:
    """ESPHome's own validation reads the example, and g++ its headers."""
    place = os.environ.get(ESPHOME)
    if not place:
        pytest.skip(f"needs ESPHome's package in the folder ${ESPHOME}")
    package = component.parent.parent
    environment = {**os.environ, "PYTHONPATH": place}
    check = [sys.executable, "-m", "esphome", "config", "example.yaml"]
    subprocess.run(check, check=True, cwd=package, env=environment, timeout=120)
    core = tmp_path / "esphome/core"
    core.mkdir(parents=True)
    (core / "defines.h").write_text(_DEFINES, encoding="utf-8")
    flags = ["-std=gnu++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    folders = [f"-I{tmp_path}", f"-isystem{place}", f"-I{component}"]
    source = str(component / "firmwright_wake_words.cpp")
    subprocess.run(["g++", *flags, *folders, source], check=True, timeout=120)


_DEFINES = """\
#pragma once
#include "esphome/core/macros.h"
#define ESPHOME_COMPONENT_COUNT 1
#define ESPHOME_BOARD "host"
#define ESPHOME_THREAD_MULTI_ATOMICS
#define USE_HOST
#define USE_LOGGER
#define USE_MICROPHONE
"""
