"""Images in a cache: one build for equal projects, safe for two at once, bounded in number."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.flows import firmware_images
from firmwright.flows.compilation import compile_for
from firmwright.flows.firmware_images import (
    MAX_OBJECT_AGE_S,
    _objects,
    build_image,
    cache_root,
    remove_old_objects,
)
from firmwright.flows.model import load_model

RAM_BESIDE_WORKSPACE_MAX_BYTES = 512
BUILD = """
import sys
from firmwright.flows.compilation import compile_for
from firmwright.flows.firmware_images import build_image
from firmwright.flows.model import load_model
print(build_image(compile_for(load_model(sys.argv[1]))).elf)
"""


def test_cache_folder_from_environment(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("FIRMWRIGHT_CACHE", str(tmp_path / "named"))
    assert cache_root() == tmp_path / "named"
    monkeypatch.delenv("FIRMWRIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "firmwright"


def test_cache_falls_back_to_a_temporary_folder(monkeypatch, tmp_path: Path):
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("FIRMWRIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_root().name == f"firmwright-{os.getuid()}"


@pytest.mark.host_c
def test_concurrent_builds_of_the_same_image_share_the_work(
    monkeypatch, tmp_path: Path, digits_path: Path
):
    monkeypatch.setenv("FIRMWRIGHT_CACHE", str(tmp_path))
    toolchain = str(Path(firmware_images.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": toolchain}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", BUILD, str(digits_path)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    elves = [process.communicate(timeout=120)[0].strip() for process in running]
    assert elves[0] == elves[1]
    assert Path(elves[0]).is_file()
    assert len([entry for entry in (tmp_path / "builds").iterdir() if entry.is_dir()]) == 1


@pytest.mark.host_c
def test_given_folder_gets_the_whole_project(tmp_path: Path, digits_path: Path):
    image = build_image(compile_for(load_model(digits_path)), "release", tmp_path / "out")
    assert image.elf.is_relative_to(tmp_path / "out")
    assert (tmp_path / "out" / "model" / "digits.c").is_file()
    assert image.library is not None


def test_only_old_builds_over_the_limit_are_removed(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(firmware_images, "MAX_CACHED_BUILDS", 2)
    old = 1_000_000_000
    for number in range(4):
        folder = tmp_path / f"image{number}"
        folder.mkdir()
        os.utime(folder, (old + number, old + number))
    (tmp_path / "in_use").mkdir()
    firmware_images._remove_oldest(tmp_path)
    left = sorted(entry.name for entry in tmp_path.iterdir() if entry.is_dir())
    assert left == ["image3", "in_use"]


def test_old_objects_are_removed_after_a_week(tmp_path: Path):
    old, young = (tmp_path / "AB" / name for name in ("old", "young"))
    old.parent.mkdir()
    for file, age_s in ((old, MAX_OBJECT_AGE_S + 60), (young, MAX_OBJECT_AGE_S - 3600)):
        file.write_text("object", encoding="utf-8")
        os.utime(file, (time.time() - age_s,) * 2)
    remove_old_objects(tmp_path)
    assert young.is_file()
    assert not old.exists()


@pytest.mark.models
@pytest.mark.qemu
def test_runtime_ram_of_keyword_spotting_is_small(model_path: Callable[[str], Path]):
    compiled = compile_for(load_model(model_path("kws_ref_model.tflite")), "stm32vldiscovery")
    sizes = build_image(compiled).sizes
    pool = next(s.size_bytes for s in sizes.symbols if s.name == "pool_sram")
    assert sizes.ram_bytes - pool <= RAM_BESIDE_WORKSPACE_MAX_BYTES


def test_object_folder_is_created_atomically_by_scons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FIRMWRIGHT_CACHE", str(tmp_path / "cache"))
    assert not _objects().exists(), "two builds would both put settings into an empty one"
    assert _objects().parent.is_dir()
