"""Images in a cache: one build for equal projects, safe for two at once, bounded."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

import firmwright
from firmwright.base.errors import DoesNotFitError, UsageError
from firmwright.base.file_lock import hold_lock
from firmwright.cli.main import main
from firmwright.flows.board import build_cache
from firmwright.flows.board.build_cache import (
    cache_entries,
    cache_limit_bytes,
    cache_root,
    cached_folder,
    object_folder,
    trim_cache,
)
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model
from firmwright.graph_builder import GraphBuilder

RAM_BESIDE_WORKSPACE_MAX_BYTES = 512
BUILD = """
import sys
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.model.model import load_model
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
    toolchain = str(Path(firmwright.__file__).parents[1])
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
    assert (
        len([entry for entry in (tmp_path / "builds").iterdir() if entry.is_dir()]) == 1
    )


@pytest.mark.host_c
def test_given_folder_gets_the_whole_project(tmp_path: Path, digits_path: Path):
    image = build_image(
        compile_for(load_model(digits_path)), "release", tmp_path / "out"
    )
    assert image.elf.is_relative_to(tmp_path / "out")
    assert (tmp_path / "out" / "model" / "digits.c").is_file()
    assert image.library is not None


@pytest.mark.host_c
@pytest.mark.parametrize("name", ["features", "String", "cortex_m"])
def test_a_model_named_as_a_header_has_other_files(
    name: str, tmp_path: Path, digits_path: Path
):
    file = tmp_path / f"{name}.tflite"
    file.write_bytes(digits_path.read_bytes())
    image = build_image(compile_for(load_model(file)), "release", tmp_path / "out")
    assert image.library is not None
    headers = {header.name for header in (tmp_path / "out" / "model").glob("*.h")}
    assert headers == {f"{name}_.h", f"{name}__weights.h"}


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of two builds, an object and a model of 1,000 bytes, two of them in use."""
    monkeypatch.setenv("FIRMWRIGHT_CACHE", str(tmp_path))
    for number, name in enumerate(("builds/a", "objects/AB/b", "builds/c", "models/d")):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path
        if name.startswith("builds"):
            path.mkdir()
            file = path / "image.elf"
        file.write_bytes(bytes(1000))
        age_s = 0 if name[-1] in "cd" else 10_000 - number
        os.utime(path, (time.time() - age_s,) * 2)
    return tmp_path


def names_left() -> list[str]:
    return sorted(entry.path.name for entry in cache_entries())


@pytest.mark.parametrize(("limit", "left"), [(4000, "abcd"), (3000, "bcd"), (1, "cd")])
def test_least_recently_used_entries_beyond_the_limit_are_removed(
    filled: Path, limit, left
):
    assert trim_cache(limit) == 1000 * (4 - len(left))
    assert names_left() == list(left)


def test_entries_may_be_removed_by_another_process_meanwhile(filled: Path, monkeypatch):
    entries = cache_entries()
    monkeypatch.setattr(build_cache, "cache_entries", lambda: entries)
    shutil.rmtree(filled / "builds")
    shutil.rmtree(filled / "objects/AB")
    trim_cache(0, 0)
    assert not list(filled.glob("*/*"))


def test_waiting_build_does_not_hold_the_lock_of_a_removed_entry(filled: Path):
    builds, entered, done = filled / "builds", Event(), Event()

    def build() -> None:
        with cached_folder("a") as folder:
            assert folder.is_dir()
            entered.set()
            done.wait(10)

    waiting = Thread(target=build)
    with hold_lock(builds / "a.lock"):
        waiting.start()
        assert not entered.wait(0.1)
        (builds / "a.lock").unlink()  # as trim_cache does
    assert entered.wait(10)
    with hold_lock(builds / "a.lock", wait=False) as acquired:
        assert not acquired
    done.set()
    waiting.join()


def test_the_limit_is_applied_after_a_build_and_can_be_set(filled: Path, monkeypatch):
    assert cache_limit_bytes() == 256 << 20
    monkeypatch.setenv("FIRMWRIGHT_CACHE_SIZE", "2K")
    with cached_folder("new"):
        pass
    assert names_left() == ["c", "d", "new"]
    monkeypatch.setenv("FIRMWRIGHT_CACHE_SIZE", "much")
    with pytest.raises(
        UsageError, match=r"FIRMWRIGHT_CACHE_SIZE is 'much'\. Try: a size such as"
    ):
        cache_limit_bytes()


def test_cache_verb_shows_and_clears(filled: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["cache"]) == 0
    out = capsys.readouterr().out
    assert "4,000 bytes of 268,435,456 (FIRMWRIGHT_CACHE_SIZE)" in out
    assert out.split()[-6:] == ["builds", "2", "objects", "1", "models", "1"]
    assert main(["cache", "clear", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["size_bytes"], shown["removed_bytes"], shown["builds"]) == (
        0,
        4000,
        0,
    )


@pytest.mark.models
@pytest.mark.qemu
def test_runtime_ram_of_keyword_spotting_is_small(model_path: Callable[[str], Path]):
    compiled = compile_for(
        load_model(model_path("kws_ref_model.tflite")), "stm32vldiscovery"
    )
    sizes = build_image(compiled).sizes
    pool = next(s.size_bytes for s in sizes.symbols if s.name == "pool_sram")
    assert sizes.ram_bytes - pool <= RAM_BESIDE_WORKSPACE_MAX_BYTES


def test_object_folder_is_created_atomically_by_scons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FIRMWRIGHT_CACHE", str(tmp_path / "cache"))
    assert not object_folder().exists(), (
        "two builds would both put settings into an empty one"
    )
    assert object_folder().parent.is_dir()


def test_constants_beyond_all_memory_are_refused_before_a_build() -> None:
    g = GraphBuilder("net")
    x = g.input("x", (1, 1_000), scale=0.1)
    drawn = np.random.default_rng(0).integers(-127, 128, (320, 1_000), np.int8)
    weights = g.constant(drawn, scale=0.01)
    bias = g.constant(np.zeros(320, np.int32), scale=0.001)
    y = g.call(
        "fully_connected",
        x,
        weights,
        bias,
        scale=1.0,
        activation="none",
        keep_dims=False,
    )
    compiled = compile_for(g.model(y), "microbit")
    with pytest.raises(DoesNotFitError, match="the constants of the model take") as e:
        build_image(compiled)
    assert e.value.is_proven
    (region,) = e.value.regions
    assert region.need_bytes > region.have_bytes == 278_528


def large_layer(seed: int) -> Model:
    """Return a network whose layer has a constant of 66,560 bytes."""
    rng = np.random.default_rng(seed)
    g = GraphBuilder("large")
    x = g.input("x", (130, 128), "float32")
    weights = g.constant(rng.normal(size=(130, 128)).astype(np.float32))
    return g.model(g.call("add", x, weights, activation="none"))


@pytest.mark.host_c
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_large_constants_of_host_builds_are_no_c_arrays(
    compiler, monkeypatch, tmp_path: Path
):
    monkeypatch.setenv("FIRMWRIGHT_CACHE", str(tmp_path))
    for seed in (1, 2):  # the object cache must not confuse them
        compiled = compile_for(large_layer(seed), "host")
        image = build_image(compiled, compiler=compiler)
        header = image.directory / "model" / "large_weights.h"
        assert "extern const float large_" in header.read_text()
        array = str(compiled.project().files["model/large_weights.h"])
        assert "static const float large_" in array
        assert image.model_flash_bytes > 130 * 128 * 4
        with open_session(compiled, compiler=compiler) as session:
            y = session.run(np.zeros((130, 128), np.float32))
            (constant,) = compiled.module.constants.values()
            assert np.array_equal(y, constant.array())


def test_small_constants_and_those_of_boards_are_c_arrays(digits_path: Path):
    small = compile_for(load_model(str(digits_path)), "host")
    assert small.project_to_run() == small.project()
    on_board = compile_for(large_layer(1), "mps2-an386")
    assert on_board.project_to_run() == on_board.project()
