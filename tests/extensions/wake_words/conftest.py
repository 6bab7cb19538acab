"""The public wake words of the package pymicro-wakeword, and their exported C."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from firmwright.cli.main import main

WORDS = ("hey_jarvis", "okay_nabu", "alexa")
HOSTILE_PHRASE = 'é */ "" \\ ??/'


@pytest.fixture(scope="session")
def manifests() -> list[Path]:
    """Return the manifests of three wake words, whose models are beside them."""
    found = find_spec("pymicro_wakeword")
    if found is None or found.origin is None:
        pytest.skip("needs its models (pip install pymicro-wakeword)")
    folder = Path(found.origin).parent / "models"
    return [folder / f"{word}.json" for word in WORDS]


@pytest.fixture(scope="session")
def component(manifests: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the component with a word.

    Its phrase would end a comment or a string, and its file has a name that C has not.
    """
    folder = tmp_path_factory.mktemp("esphome")
    word = copy_word(manifests[-1], folder, "my word-2", wake_word=HOSTILE_PHRASE)
    command = ["export", "--format", "esphome", str(word), "--board", "esp32c3"]
    package = folder / "package"
    assert main([*command, "-o", str(package)]) == 0
    return package / "components/firmwright_wake_words"


def copy_word(manifest: Path, folder: Path, name: str, **changes: object) -> Path:
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


@pytest.fixture
def small_manifest(tmp_path: Path) -> Path:
    """Return a valid manifest whose model does not exist."""
    manifest = tmp_path / "word.json"
    manifest.write_text(json.dumps(MANIFEST), encoding="utf-8")
    return manifest


MANIFEST: dict[str, object] = {
    "type": "micro",
    "wake_word": "Open sesame",
    "author": "Ali",
    "model": "word.tflite",
    "trained_languages": ["en"],
    "version": 2,
    "micro": {
        "probability_cutoff": 0.9,
        "sliding_window_size": 5,
        "feature_step_size": 10,
        "tensor_arena_size": 22348,
        "minimum_esphome_version": "2024.7.0",
    },
}
