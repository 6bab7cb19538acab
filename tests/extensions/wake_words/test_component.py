"""The component listens as ESPHome does, with TFLM's probabilities."""

import ctypes
import json
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
_RAM_LIMIT = 16 * 1024


class WordState(ctypes.Structure):
    _fields_ = (
        ("latest", ctypes.c_uint8),
        ("average", ctypes.c_uint8),
        ("maximum", ctypes.c_uint8),
        ("cutoff", ctypes.c_uint8),
        ("is_enabled", ctypes.c_bool),
    )


@pytest.fixture(scope="session")
def library(component: Path, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Return the component's plain C, compiled for this machine without warnings."""
    return compile_library(component, tmp_path_factory.mktemp("library"))


def compile_library(sources: Path, folder: Path) -> ctypes.CDLL:
    file = folder / "wake_words.so"
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion"]
    command = ["gcc", *flags, "-Werror", "-shared", "-fPIC", "-o", str(file)]
    files = sorted(map(str, sources.glob("*.c")))
    subprocess.run([*command, *files], check=True, timeout=120)
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


def test_a_phrase_may_have_any_printable_character(library: ctypes.CDLL) -> None:
    assert library.wake_words_phrase(2).decode() == HOSTILE_PHRASE


def test_a_disabled_word_is_not_run(library: ctypes.CDLL) -> None:
    library.wake_words_reset()
    library.wake_words_enable(1, False)
    for start in range(0, 16_000, STEP):
        hear_step(library, sounds(2, seed=3)[start : start + STEP])
    assert library.wake_words_state(1).latest == 0
    assert not library.wake_words_state(1).is_enabled


def test_three_words_and_their_front_end_take_less_than_16_kb(
    component: Path, tmp_path: Path
) -> None:
    objects = []
    for source in sorted(component.glob("*.c")):
        if source.name.endswith("_selftest.c"):
            continue
        objects.append(tmp_path / f"{source.stem}.o")
        compiler = ["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb", "-O2"]
        command = [*compiler, "-c", str(source), "-o", str(objects[-1])]
        try:
            subprocess.run(command, check=True, timeout=60)
        except FileNotFoundError:
            pytest.skip("needs arm-none-eabi-gcc")
    sizes = subprocess.run(
        ["arm-none-eabi-size", *map(str, objects)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    ram = 0
    for line in sizes.stdout.splitlines()[1:]:
        _, data, bss, *_ = line.split()
        ram += int(data) + int(bss)
    assert 12_000 < ram < _RAM_LIMIT


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


def test_a_file_may_have_a_name_that_c_has_not(
    manifests: list[Path], tmp_path: Path
) -> None:
    facts = json.loads(manifests[2].read_text(encoding="utf-8"))
    model = manifests[2].parent / facts["model"]
    (tmp_path / "my word-2.tflite").write_bytes(model.read_bytes())
    manifest = tmp_path / "my word-2.json"
    manifest.write_text(json.dumps({**facts, "model": "my word-2.tflite"}), "utf-8")
    package = tmp_path / "package"
    words = ["export", "--format", "esphome", str(manifest), "--board", "esp32c3"]
    assert main([*words, "-o", str(package)]) == 0
    header = package / "components/firmwright_wake_words/wake_words.h"
    assert "#define WAKE_WORDS_MY_WORD_2 0u" in header.read_text(encoding="utf-8")
