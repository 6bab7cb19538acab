"""The pictures of the README and of pages show what the project produces today.

`--update-golden` draws them again.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
IMAGES = DOCS / "images"


@dataclass(frozen=True)
class MapPicture:
    """A memory map of the pool sram."""

    model: str
    optimize: str
    title: str


MAPS = {
    "kws_memory": MapPicture(
        "kws_ref_model",
        "balanced",
        "Keyword spotting (kws_ref_model) on a Cortex-M4: the memory plan over a run",
    ),
    "ic_memory": MapPicture(
        "pretrainedResnet_quant",
        "speed",
        "ResNet-8 (pretrainedResnet_quant) on a Cortex-M4: the memory plan over a run",
    ),
}


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="module")
def draw_memory_map() -> Callable[..., str]:
    """Return the function of docs/memory_map.py."""
    path = DOCS / "memory_map.py"
    spec = importlib.util.spec_from_file_location("memory_map_script", path)
    assert spec
    assert spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    draw: Callable[..., str] = script.draw
    return draw


@pytest.mark.models
@pytest.mark.parametrize("name", MAPS)
def test_memory_maps_are_current(
    name: str,
    update: bool,
    model_path: Callable[[str], Path],
    draw_memory_map: Callable[..., str],
) -> None:
    picture, file = MAPS[name], IMAGES / f"{name}.svg"
    drawn = draw_memory_map(
        model_path(f"{picture.model}.tflite"),
        optimize=picture.optimize,
        title=picture.title,
    )
    if update:
        file.write_text(drawn, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == drawn, "--update-golden draws it again"
