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
    """Return the folder of the component with the three words.

    The last one has a phrase that would end a comment or a string.
    """
    folder = tmp_path_factory.mktemp("esphome")
    words: list[str] = []
    for manifest in manifests:
        model = manifest.with_suffix(".tflite")
        (folder / model.name).write_bytes(model.read_bytes())
        values = json.loads(manifest.read_text(encoding="utf-8"))
        if manifest == manifests[-1]:
            values["wake_word"] = HOSTILE_PHRASE
        words.append(str(folder / manifest.name))
        Path(words[-1]).write_text(json.dumps(values), encoding="utf-8")
    command = ["export", "--format", "esphome", *words, "--board", "esp32c3"]
    package = folder / "package"
    assert main([*command, "-o", str(package)]) == 0
    return package / "components/firmwright_wake_words"


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
