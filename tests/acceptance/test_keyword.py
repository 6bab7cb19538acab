"""The keyword example on an emulated board, against TFLM and with its own ear."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import SampleBatch
from firmwright.flows.verify.verification import verify

FOLDER = Path(__file__).parents[2] / "examples" / "02_keyword"


@pytest.fixture(scope="module")
def example() -> Iterator[tuple[ModuleType, ModuleType]]:
    """The example's own modules: its words, and its ear."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield _module("speech"), _module("listen")
    finally:
        sys.path.remove(str(FOLDER))
        sys.modules.pop("speech", None)


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.deep
@pytest.mark.qemu
def test_words_in_a_wav_are_recognized(
    example: tuple[ModuleType, ModuleType], tmp_path: Path
) -> None:
    speech, listen = example
    said = [(0.5, "down"), (1.3, "up")]
    speech.write_wav(
        tmp_path / "s.wav", speech.scene(said, 2.0, np.random.default_rng(12))
    )
    hops = speech.hops(speech.read_wav(tmp_path / "s.wav"))
    batch = SampleBatch(tuple({"samples": hop[None]} for hop in hops))
    compiled = compile_for(
        load_model(FOLDER / "keyword.tflite"), "mps2-an386", numerics="tflm"
    )
    assert [state.name for state in compiled.module.io.state] == [
        "frames/past",
        "clear/estimate",
        "history",
    ]
    found = verify(compiled, batch=batch)
    assert found.samples == 100
    assert found.exact
    words = np.stack([sample["words"] for sample in found.outputs])
    heard = [(second, name) for second, name in listen.heard(words)]
    assert [name for _, name in heard] == ["down", "up"]
    for (second, _), (start, _) in zip(heard, said, strict=True):
        assert start < second < start + 0.6
