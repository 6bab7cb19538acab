"""Manifests of wake words: both versions, and what invalid ones say."""

import copy
import json
from pathlib import Path

import pytest

from firmwright.base.errors import FirmwrightError, UsageError
from firmwright.cli.main import main
from firmwright.extensions.wake_words.manifest import read_manifest
from tests.extensions.wake_words.conftest import MANIFEST


def _write(tmp_path: Path, **changes: object) -> Path:
    """Write the manifest with changes; `micro__NAME` is a field of `micro`."""
    values = copy.deepcopy(MANIFEST)
    micro = values["micro"]
    assert isinstance(micro, dict)
    for key, value in changes.items():
        table, name = (micro, key[7:]) if key.startswith("micro__") else (values, key)
        if value is None:
            del table[name]
        else:
            table[name] = value
    manifest = tmp_path / "word.json"
    manifest.write_text(json.dumps(values), encoding="utf-8")
    return manifest


def test_a_manifest_says_how_to_listen(small_manifest: Path) -> None:
    word = read_manifest(small_manifest)
    assert word.phrase == "Open sesame"
    assert word.model == small_manifest.parent / "word.tflite"
    assert (word.cutoff, word.window, word.step_ms) == (229, 5, 10)


def test_a_manifest_of_the_first_version_has_steps_of_20_ms(tmp_path: Path) -> None:
    manifest = _write(
        tmp_path,
        version=1,
        micro__sliding_window_size=None,
        micro__feature_step_size=None,
        micro__sliding_window_average_size=10,
    )
    word = read_manifest(manifest)
    assert (word.window, word.step_ms) == (10, 20)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 3}, "has the version 3, which is not 1 or 2"),
        ({"type": "tiny"}, "has the type 'tiny', which is not micro"),
        ({"model": "../word.tflite"}, "which is not the name of a .tflite file"),
        ({"model": None}, "has no model"),
        ({"wake_word": "a\nb"}, "which is not 1 to 60 printable characters"),
        ({"micro": []}, "has the micro [], which is not an object"),
        ({"micro__probability_cutoff": 1.5}, "which is not a number from 0 to 1"),
        ({"micro__probability_cutoff": float("nan")}, "not a number from 0 to 1"),
        ({"micro__probability_cutoff": 10**400}, "not a number from 0 to 1"),
        ({"micro__sliding_window_size": 0}, "which is not an integer from 1 to 255"),
        ({"micro__feature_step_size": 15}, "which is not 10, 20 or 30"),
    ],
)
def test_an_invalid_manifest_is_refused_by_its_field(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    manifest = _write(tmp_path, **changes)
    with pytest.raises(FirmwrightError) as caught:
        read_manifest(manifest)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000, "\xff"])
def test_other_text_is_refused(tmp_path: Path, text: str) -> None:
    manifest = tmp_path / "word.json"
    manifest.write_bytes(text.encode("latin-1"))
    with pytest.raises(FirmwrightError):
        read_manifest(manifest)


def test_a_model_is_not_a_manifest(digits_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a manifest of a wake word"):
        read_manifest(digits_path)


def test_another_model_is_refused_by_its_type(
    small_manifest: Path, digits_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_manifest.parent / "word.tflite").write_bytes(digits_path.read_bytes())
    command = ["export", "--format", "esphome", str(small_manifest)]
    assert main([*command, "--board", "esp32c3"]) == 2
    assert "not int8 [1, rows, 40]" in capsys.readouterr().err


def test_words_with_different_steps_are_refused(
    tmp_path: Path, small_manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    second = _write(other, micro__feature_step_size=20, model="other.tflite")
    command = ["export", "--format", "esphome", str(small_manifest), str(second)]
    assert main([*command, "--board", "esp32c3"]) == 2
    assert "the models take features every 10 ms and 20 ms" in capsys.readouterr().err
