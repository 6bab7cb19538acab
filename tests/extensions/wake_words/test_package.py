"""Manifests in the formats for C sources: their examples listen; refused options."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from firmwright.cli.main import main
from firmwright.extensions.wake_words.front_end import FRONT_END
from firmwright.extensions.wake_words.listening import PREFIX
from tests.extensions.wake_words.conftest import MANIFEST
from tests.extensions.wake_words.listening import (
    STEP,
    feature_rows,
    listeners,
    sounds,
    write_wav,
)
from tests.extensions.wake_words.test_component import (
    compile_library,
    hear_step,
    require_front_end,
)

_SKETCH_STUB = """\
#include <stdint.h>
struct { void begin(long) {} void println(const char *) {} } Serial;
#include SKETCH
"""
_C = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]


def _export(form: str, manifests: Sequence[Path], package: Path) -> Path:
    words = ["export", "--format", form, *map(str, manifests), "--board", "esp32c3"]
    assert main([*words, "-o", str(package)]) == 0
    return package


def _copy(manifest: Path, folder: Path, name: str, **changes: object) -> Path:
    """Copy a word as NAME; `micro__FIELD` is a field of `micro`."""
    values = json.loads(manifest.read_text(encoding="utf-8"))
    model = manifest.parent / values["model"]
    (folder / f"{name}.tflite").write_bytes(model.read_bytes())
    values["model"] = f"{name}.tflite"
    for key, value in changes.items():
        table = values["micro"] if key.startswith("micro__") else values
        table[key.removeprefix("micro__")] = value
    copy = folder / f"{name}.json"
    copy.write_text(json.dumps(values), encoding="utf-8")
    return copy


def test_the_example_of_a_package_listens_to_a_file(
    manifests: list[Path], tmp_path: Path
) -> None:
    """The greatest averages of each word are TFLM's."""
    require_front_end()
    package = _export("makefile", manifests[1:2], tmp_path / "package")
    flags = ["CFLAGS=-O2 -Wall -Wextra -Werror", "check"]
    made = subprocess.run(
        ["make", "-C", str(package), *flags],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Okay Nabu: probability 0 of 255, heard above 216\n" in made.stdout
    sound = sounds(8, seed=7)
    write_wav(tmp_path / "sound.wav", sound)
    heard = subprocess.run(
        [package / "build/example", tmp_path / "sound.wav"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    (word,) = listeners(manifests[1:2])
    greatest = 0
    for row in feature_rows(sound):
        word.hears(row)
        greatest = max(greatest, sum(word.recent) // word.window)
    assert greatest > 0
    assert f"Okay Nabu: at most {greatest} of 255" in heard.stdout


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("form", "folder", "example"),
    [
        ("cmake", "model", "example/main.c"),
        ("esp-idf", "src", "examples/run/main/main.c"),
        ("platformio", "src", "examples/run/src/main.c"),
        ("arduino", "src", "examples/wake_words_run/wake_words_run.ino"),
    ],
)
def test_a_package_of_every_format_has_an_example_that_listens(
    form: str, folder: str, example: str, manifests: list[Path], tmp_path: Path
) -> None:
    package = _export(form, manifests[-1:], tmp_path / "package")
    file, stub = package / example, tmp_path / "sketch.cpp"
    assert "wake_words_step(" in file.read_text(encoding="utf-8")
    command = [*_C, f"-I{package / folder}", str(file)]
    if form == "arduino":
        stub.write_text(_SKETCH_STUB, encoding="utf-8")
        command = ["g++", "-fsyntax-only", f'-DSKETCH="{file}"', *command[-2:-1]]
        command.append(str(stub))
    subprocess.run(command, check=True, timeout=60)
    readme = (package / "README.md").read_text(encoding="utf-8")
    assert "call wake_words_reset once" in readme
    assert "_selftest" not in readme


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--format", "mlf"], "the format mlf has no place for wake_words.c"),
        (["--name", "ear"], "--name does not suit wake words"),
        (["--with-tests"], "--with-tests does not suit wake words"),
        (["--pipeline-runs"], "--pipeline-runs does not suit wake words"),
        (["--io-buffers", "caller"], "--io-buffers caller does not suit wake words"),
    ],
)
def test_options_for_callers_of_models_are_refused(
    option: list[str],
    said: str,
    small_manifest: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["export", "--format", "cmake", str(small_manifest), *option]
    assert main(words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("word", "word"), "two models have the name word"),
        (("word", "Word"), "two models have the name word"),
        ((PREFIX,), f"the name {PREFIX} is that of other C in the package"),
        ((FRONT_END,), f"the name {FRONT_END} is that of other C in the package"),
        (tuple(f"word{i}" for i in range(33)), "33 wake words are more than 32"),
        (("nowhere",), "nowhere.tflite: the model cannot be read"),
    ],
)
def test_names_that_c_cannot_have_are_refused(
    names: Sequence[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files: list[str] = []
    for index, name in enumerate(names):
        file = tmp_path / f"{index}.json"
        values = {**MANIFEST, "model": f"{name}.tflite"}
        file.write_text(json.dumps(values), encoding="utf-8")
        files.append(str(file))
    assert main(["export", "--format", "makefile", *files]) == 2
    assert said in capsys.readouterr().err


def test_a_voice_model_blocks_words_and_equal_models_have_states_of_their_own(
    manifests: list[Path], tmp_path: Path
) -> None:
    """The rules are those of ESPHome, whose words are heard only with a voice."""
    require_front_end()
    jarvis, nabu, _ = manifests
    low = {"micro__probability_cutoff": 0.004, "micro__sliding_window_size": 1}
    quiet = {"micro__probability_cutoff": 0, "micro__sliding_window_size": 60}
    words = [
        _copy(nabu, tmp_path, "first", **low),
        _copy(nabu, tmp_path, "second", **low),
        _copy(jarvis, tmp_path, "voice", wake_word="vad", **quiet),
    ]
    package = _export("makefile", words, tmp_path / "package")
    library = compile_library(package / "model", tmp_path)
    sound = sounds(18, seed=5)
    for _ in range(2):  # after a reset all sound is forgotten
        library.wake_words_reset()
        first, second, voice = listeners(words)
        library.wake_words_enable(1, False)
        heard = blocked = 0
        for number, row in enumerate(feature_rows(sound)):
            if number == 901:
                library.wake_words_enable(1, True)
            bits = hear_step(library, sound[number * STEP : (number + 1) * STEP])
            voice.take(row)
            expected = int(first.hears(row, voice))
            expected_blocked = int(first.is_blocked)
            if number >= 901:
                expected |= second.hears(row, voice) << 1
                expected_blocked |= second.is_blocked << 1
                state = library.wake_words_state(1)
                assert state.latest == second.recent[second.last], number
            assert library.wake_words_state(0).latest == first.recent[first.last]
            assert bits == expected, number
            assert library.wake_words_blocked() == expected_blocked, number
            heard += bits.bit_count()
            blocked += expected_blocked.bit_count()
        assert np.all([heard > 0, blocked > 0]), (heard, blocked)
