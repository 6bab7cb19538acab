"""Kills, full disks and concurrent commands: a later run gives the same bytes.

The gate has one kill and one pair of each; --deep has dozens. The moments are shares of
the time that a whole run takes on this machine, from a seed.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
COMMAND = (sys.executable, "-m", "firmwright")
KILLS, KILLS_DEEP = 1, 12
VOLATILE = (".sconsign", ".lock", ".log", ".dblite", "paths.rsp")
"""Parts of the names of files that hold times, or the path of their folder."""


@dataclass(frozen=True, slots=True)
class Work:
    """A command that writes to `out`; `before` makes what it needs."""

    words: tuple[str, ...]
    before: tuple[str, ...] = ()


WORKS = {
    "compile": Work(("compile", str(DIGITS), "--board", "host", "-o", "out")),
    "build": Work(
        ("build", "out"), ("compile", str(DIGITS), "--board", "host", "-o", "out")
    ),
    "export": Work(("export", str(DIGITS), "--format", "cmake", "-o", "out")),
}


def with_deep(first: str, *others: str) -> list[object]:
    """Return parameters of which the gate has only the first."""
    return [first, *(pytest.param(other, marks=pytest.mark.deep) for other in others)]


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "TMPDIR": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONPATH": str(ROOT / "toolchain"),
    }


def start(
    words: Sequence[str], folder: Path, own: Path | None = None
) -> subprocess.Popen[str]:
    """Start a command in a folder; `own` has its cache and temporary files instead."""
    return subprocess.Popen(
        [*COMMAND, *words],
        cwd=folder,
        env=environment(own or folder),
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str]) -> None:
    _, said = process.communicate(timeout=500)
    assert process.returncode == 0, said


def contents(path: Path) -> dict[str, str]:
    """Return the digests of all files that are the same after each run."""
    files = (
        [path]
        if path.is_file()
        else [file for file in path.rglob("*") if file.is_file()]
    )
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if not any(part in file.name for part in VOLATILE)
    }


def make_place(parent: Path, name: str, work: Work) -> Path:
    folder = parent / name
    folder.mkdir()
    if work.before:
        finish(start(work.before, folder))
    return folder


@pytest.mark.host_c
@pytest.mark.parametrize("name", with_deep("compile", "build", "export"))
def test_a_killed_command_is_repeated_with_the_same_bytes(
    name: str, tmp_path: Path, deep: bool
) -> None:
    work, rng = WORKS[name], random.Random(name)
    whole = make_place(tmp_path, "whole", work)
    begin = time.monotonic()
    finish(start(work.words, whole))
    took_s = time.monotonic() - begin
    killed = make_place(tmp_path, "killed", work)
    for _ in range(KILLS_DEEP if deep else KILLS):
        process = start(work.words, killed)
        time.sleep(rng.uniform(0.2, 1.0) * took_s)
        process.kill()
        process.communicate()
    finish(start(work.words, killed))
    assert contents(killed / "out") == contents(whole / "out")
    assert not list(killed.rglob("*.new"))


@pytest.mark.host_c
@pytest.mark.deep
@pytest.mark.parametrize("name", ["compile", "build"])
def test_concurrent_commands_in_a_folder_and_a_cache_give_the_same_bytes(
    name: str, tmp_path: Path, deep: bool
) -> None:
    work = WORKS[name]
    whole, shared = (make_place(tmp_path, place, work) for place in ("whole", "shared"))
    finish(start(work.words, whole))
    running = [start(work.words, shared) for _ in range(4 if deep else 2)]
    for process in running:
        finish(process)
    assert contents(shared / "out") == contents(whole / "out")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)]
    if shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("file systems can only be mounted by root")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.deep
@pytest.mark.host_c
@pytest.mark.parametrize("name", ["compile", "build", "export"])
@pytest.mark.parametrize("free_bytes", [0, 10_000, 40_000])
def test_a_full_disk_is_an_error_and_a_later_run_succeeds(
    name: str, free_bytes: int, small_disk: Path, tmp_path: Path
) -> None:
    work = WORKS[name]
    if work.before:
        finish(start(work.before, small_disk, tmp_path))
    whole = make_place(tmp_path, "whole", work)
    finish(start(work.words, whole))
    usage = shutil.disk_usage(small_disk)
    (small_disk / "rest").write_bytes(bytes(max(0, usage.free - 8192 - free_bytes)))
    process = start(work.words, small_disk, tmp_path)
    _, said = process.communicate(timeout=500)
    assert process.returncode in (1, 2) or free_bytes, said
    assert "Traceback" not in said
    (small_disk / "rest").unlink()
    finish(start(work.words, small_disk, tmp_path))
    assert contents(small_disk / "out") == contents(whole / "out")
