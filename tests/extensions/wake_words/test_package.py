"""Manifests in the formats for C sources: their examples listen; refused options."""

import ctypes
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from firmwright.cli.main import main
from firmwright.extensions.wake_words.front_end import FRONT_END
from firmwright.extensions.wake_words.listening import PREFIX
from tests.extensions.wake_words.conftest import MANIFEST, copy_word
from tests.extensions.wake_words.listening import (
    STEP,
    feature_rows,
    listeners,
    sounds,
    write_wav,
)
from tests.extensions.wake_words.test_component import (
    hear_step,
    load_library,
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


@dataclass(frozen=True, slots=True)
class Exported:
    """A package of words that low probabilities detect, and what its Makefile does.

    Attributes:
        words: The manifests of a word, of the same with another name, and of a voice.
        package: The folder.
        checked: The output of `make check`.
        library: Its C for this machine.
        ram_bytes: The variables of the library.
    """

    words: Sequence[Path]
    package: Path
    checked: str
    library: ctypes.CDLL
    ram_bytes: int


@pytest.fixture(scope="module")
def exported(
    manifests: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    jarvis, _, alexa = manifests
    folder = tmp_path_factory.mktemp("words")
    low = {"micro__probability_cutoff": 0.004, "micro__sliding_window_size": 2}
    quiet = {"micro__probability_cutoff": 0, "micro__sliding_window_size": 60}
    words = [
        copy_word(alexa, folder, "first", **low),
        copy_word(alexa, folder, "second", **low),
        copy_word(jarvis, folder, "voice", wake_word="vad", **quiet),
    ]
    package = _export("makefile", words, folder / "package")
    flags = ["CFLAGS=-O1 -fPIC -Wall -Wextra -Werror", "check"]
    checked = _run_program("make", "-C", package, *flags)
    objects = (package / "build").glob("*.o")
    shared = folder / "wake_words.so"
    _run_program("gcc", "-shared", "-o", shared, *objects)
    _, data, bss, *_ = _run_program("size", shared).splitlines()[1].split()
    ram = int(data) + int(bss)
    return Exported(words, package, checked, load_library(shared), ram)


def _run_program(*command: str | Path) -> str:
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=120
    )
    return done.stdout


@dataclass(frozen=True, slots=True)
class Expected:
    """TFLM's results for each row of `SOUND`: bits of words, and probabilities."""

    heard: Sequence[int]
    blocked: Sequence[int]
    latest: Sequence[tuple[int, int]]
    greatest: int
    """The greatest average of the first word, which is always enabled."""


SOUND = sounds(8, seed=14)
SECOND_ENABLED = 101
"""The row before which the second word is enabled."""


@pytest.fixture(scope="module")
def expected(exported: Exported) -> Expected:
    require_front_end()
    first, second, voice = listeners(exported.words)
    heard: list[int] = []
    blocked: list[int] = []
    latest: list[tuple[int, int]] = []
    greatest = 0
    for number, row in enumerate(feature_rows(SOUND)):
        voice.take(row)
        bits = int(first.hears(row, voice))
        blocked_bits = int(first.is_blocked)
        greatest = max(greatest, sum(first.recent) // first.window)
        if number >= SECOND_ENABLED:
            bits |= second.hears(row, voice) << 1
            blocked_bits |= second.is_blocked << 1
        heard.append(bits)
        blocked.append(blocked_bits)
        latest.append((first.recent[first.last], second.recent[second.last]))
    assert any(heard)
    assert any(blocked)
    return Expected(heard, blocked, latest, greatest)


def test_the_example_of_a_package_listens_to_a_file(
    exported: Exported, expected: Expected, tmp_path: Path
) -> None:
    """The greatest average of a word is TFLM's."""
    assert "Alexa: probability 0 of 255, heard above 1\n" in exported.checked
    file = tmp_path / "sound.wav"
    write_wav(file, SOUND)
    heard = _run_program(exported.package / "build/example", file)
    assert expected.greatest > 0
    first = f"Alexa: at most {expected.greatest} of 255, heard above 1"
    assert first in heard.splitlines()


def test_three_models_and_their_front_end_take_less_than_16_kb(
    exported: Exported,
) -> None:
    assert 12_000 < exported.ram_bytes < 16 * 1024


def test_the_example_refuses_sound_of_another_form(
    exported: Exported, tmp_path: Path
) -> None:
    file = tmp_path / "stereo.wav"
    write_wav(file, SOUND[:STEP], channels=2)
    command = [exported.package / "build/example", file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "stereo.wav: 2 channels of 16 bits, 16000 samples per second" in done.stderr


def test_a_voice_model_blocks_words_and_equal_models_have_states_of_their_own(
    exported: Exported, expected: Expected
) -> None:
    """The rules are those of ESPHome, whose words are heard only with a voice."""
    library = exported.library
    for start in range(0, 16_000, STEP):
        hear_step(library, SOUND[start : start + STEP])
    library.wake_words_reset()  # all sound is forgotten
    library.wake_words_enable(1, False)
    assert not library.wake_words_state(1).is_enabled
    for number, latest in enumerate(expected.latest):
        if number == SECOND_ENABLED:
            library.wake_words_enable(1, True)
        bits = hear_step(library, SOUND[number * STEP : (number + 1) * STEP])
        assert bits == expected.heard[number], number
        assert library.wake_words_blocked() == expected.blocked[number], number
        states = (library.wake_words_state(0), library.wake_words_state(1))
        assert tuple(state.latest for state in states) == latest, number


@pytest.mark.deep
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
