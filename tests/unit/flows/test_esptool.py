"""PyPI's esptool, as `flash` calls it, with a stand-in for the chip's loader."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.artifacts import Image
from firmwright.base.errors import ToolFailedError
from firmwright.boards import load_board
from firmwright.flows.board.flashing import flash, plan_flashing
from tests.esp_loader import ESP32_C6, EspLoader
from tests.runtime.stm32_image import stm32_image

IMAGE_BYTES = 70_000
Loader = Callable[..., EspLoader]

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(
        not shutil.which("esptool.py"), reason="needs esptool from PyPI on PATH"
    ),
]


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """Make an image that does not end at a sector or with one of esptool's blocks."""
    image = stm32_image(tmp_path)
    image.bin.write_bytes(bytes(i * i % 251 for i in range(IMAGE_BYTES)))
    return replace(image, board="esp32-c3-devkitm-1")


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loader]:
    """Return a function that starts a stand-in, to which esptool's port leads."""
    started: list[EspLoader] = []

    def start(**options: int) -> EspLoader:
        started.append(EspLoader(**options))
        monkeypatch.setenv("ESPTOOL_PORT", started[-1].port)
        return started[-1]

    yield start
    for item in started:
        item.close()


def flash_c3(image: Image, *, verify: bool = False) -> None:
    flash(
        plan_flashing(load_board("esp32-c3-devkitm-1"), image, "esptool"), verify=verify
    )


def test_the_exact_image_is_written(image: Image, loader: Loader) -> None:
    chip = loader()
    flash_c3(image)
    assert chip.flash[:IMAGE_BYTES] == image.bin.read_bytes()
    assert set(chip.flash[IMAGE_BYTES + 4096 :]) == {0xFF}


def test_another_chip_is_refused(image: Image, loader: Loader) -> None:
    chip = loader(chip=ESP32_C6)
    with pytest.raises(ToolFailedError) as error:
        flash_c3(image)
    assert "This chip is ESP32-C6, not ESP32-C3" in str(error.value)
    assert set(chip.flash) == {0xFF}


@pytest.mark.parametrize("requests", [0, 40])
def test_a_chip_that_falls_silent_ends_in_an_error(
    requests: int, image: Image, loader: Loader
) -> None:
    """At once, and while the stub is uploaded."""
    loader(silent_after=requests)
    before = time.monotonic()
    with pytest.raises(ToolFailedError) as error:
        flash_c3(image)
    assert time.monotonic() - before < 100
    assert str(error.value).count("\n") < 30


def test_a_port_without_a_device_is_named(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESPTOOL_PORT", os.fspath(image.directory / "absent"))
    with pytest.raises(ToolFailedError) as error:
        flash_c3(image)
    assert "absent" in str(error.value)
