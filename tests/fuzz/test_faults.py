"""Full disks, links, signals and endless peers leave nothing behind and end in time."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firmwright.artifacts import SourceTree, replace_file
from firmwright.base.errors import DeviceTimeoutError, UsageError
from firmwright.cli.printing import print_text, write_traceback
from firmwright.device.errors import Timeouts
from firmwright.device.link_protocol import (
    KIND_ANSWER,
    KIND_DAMAGED,
    KIND_STARTED,
    Frame,
    FrameReader,
    Status,
    encode_frame,
)
from firmwright.device.session import Session
from firmwright.package.project_writer import write_project

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
COMMAND = (sys.executable, "-m", "firmwright")
PATIENCE_S = 0.3
OLD = SourceTree({"SConstruct": "old", "metadata.json": "{}", "model/a.c": "old"})
NEW = SourceTree(
    {"SConstruct": "old", "metadata.json": "{1}", "model/a.c": "new", "model/b.c": ""}
)


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


# ---- disks ---------------------------------------------------------------------------


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_full_disk_leaves_the_old_project(
    writes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    OLD.write(tmp_path)
    before, write = contents(tmp_path), Path.write_bytes
    made = []

    def limited(path: Path, data: bytes) -> int:
        if len(made) == writes:
            write(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        made.append(path)
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", limited)
    with pytest.raises(OSError, match="No space left"):
        NEW.write(tmp_path, [tmp_path / "model/a.c"])
    assert contents(tmp_path) == before


@pytest.mark.parametrize("renames", range(5))
def test_an_end_in_between_leaves_no_half_that_builds(
    renames: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    OLD.write(tmp_path)
    old, replace, made = contents(tmp_path), Path.replace, []

    def killed(path: Path, target: Path) -> Path:
        if len(made) == renames:
            os._exit(9)
        made.append(path)
        return replace(path, target)

    child = os.fork()
    if not child:
        monkeypatch.setattr(Path, "replace", killed)
        NEW.write(tmp_path)
        os._exit(0)
    os.waitpid(child, 0)
    found = {
        name: value for name, value in contents(tmp_path).items() if ".new" not in name
    }
    if "SConstruct" in found:
        NEW.write(tmp_path / "whole")
        whole = contents(tmp_path / "whole")
        assert found in (old, whole)
    NEW.write(tmp_path)
    names = {"SConstruct", "metadata.json", "model/a.c", "model/b.c"}
    assert {
        name for name in contents(tmp_path) if not name.startswith("whole")
    } >= names


@pytest.mark.parametrize("steps", range(1, 8))
def test_a_project_that_was_ended_while_it_was_new_is_completed(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = '{"schema": 1, "model": "m", "files": ["model/a.c"]}'
    tree = SourceTree({"SConstruct": "s", "metadata.json": metadata, "model/a.c": "a"})
    replace, write, made = Path.replace, Path.write_bytes, []

    def counted(step: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object) -> object:
            made.append(step)
            if len(made) == steps:
                os._exit(9)
            return step(*args)

        return run

    child = os.fork()
    if not child:
        monkeypatch.setattr(Path, "replace", counted(replace))
        monkeypatch.setattr(Path, "write_bytes", counted(write))
        write_project(tree, tmp_path / "new")
        os._exit(0)
    os.waitpid(child, 0)
    write_project(tree, tmp_path / "new")
    assert set(contents(tmp_path / "new")) == set(tree.files)


def test_a_folder_with_other_files_is_still_refused(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / ".a.c.new").write_text("")
    (tmp_path / "src" / "mine.c").write_text("")
    with pytest.raises(UsageError, match="not empty"):
        write_project(NEW, tmp_path)


def test_links_are_replaced_and_not_written_through(tmp_path: Path) -> None:
    mine, folder = tmp_path / "mine.c", tmp_path / "project"
    mine.write_text("mine")
    OLD.write(folder)
    (folder / "model/a.c").unlink()
    (folder / "model/a.c").hardlink_to(mine)
    (folder / "model/b.c").hardlink_to(mine)
    NEW.write(folder)
    (tmp_path / "saved.fwir").hardlink_to(mine)
    replace_file(tmp_path / "saved.fwir", b"saved")
    assert (folder / "model/a.c").read_text() == "new"
    assert (tmp_path / "saved.fwir").read_bytes() == b"saved"
    assert mine.read_text() == "mine"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(mount)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("file systems can only be mounted by root")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_a_small_disk_keeps_the_project(small_disk: Path, deep: bool) -> None:
    if not deep:
        pytest.skip("part of the larger grid; --deep runs it")
    command = [*COMMAND, "compile", str(DIGITS), "-o", str(small_disk / "project")]
    subprocess.run(command, check=True, capture_output=True)
    before = contents(small_disk)
    (small_disk / "rest").write_bytes(bytes(16_000))
    for options in (["--name", "other"], ["--optimize", "ram"]):
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert done.stderr.endswith(
            "No space left on device. Try: another directory.\n"
        )
        assert done.stderr.count("\n") == 1
    (small_disk / "rest").unlink()
    assert contents(small_disk) == before


# ---- signals -------------------------------------------------------------------------

WAITING = """
import sys, tempfile, time
from firmwright.cli import main, inspect
def wait(args):
    with tempfile.TemporaryDirectory():
        print("ready", flush=True)
        time.sleep(60)
inspect.run = wait
sys.exit(main.main(["inspect", "x.tflite"]))
"""


def test_a_termination_removes_temporary_folders(tmp_path: Path) -> None:
    environment = os.environ | {
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(ROOT / "toolchain"),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert list(tmp_path.iterdir())
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[1] == "firmwright: interrupted.\n"
    assert process.returncode == 143
    assert not list(tmp_path.iterdir())


@pytest.mark.host_c
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_a_build_that_was_ended_is_repeated(
    stop: int, tmp_path: Path, deep: bool
) -> None:
    if not deep:
        pytest.skip("part of the larger grid; --deep runs it")
    environment = os.environ | {
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(ROOT / "toolchain"),
    }
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    command = [*COMMAND, "verify", str(DIGITS)]
    for delay_s in (4, 6, 8, 10):
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        time.sleep(delay_s)
        process.send_signal(stop)
        process.wait(20)
        if stop == signal.SIGTERM:
            assert not list(tmp_path.glob("firmwright-*"))
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# ---- streams and peers ---------------------------------------------------------------


def test_a_traceback_has_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        raise ValueError("a\x1b[2Jb")
    except ValueError:
        write_traceback()
    print_text("\x9b31m", sys.stdout, end="")
    said = capsys.readouterr()
    assert r"ValueError: a\x1b[2Jb" in said.err
    assert said.out == r"\x9b31m"


class EndlessPeer:
    """A peer that is busy after each request, or keeps sending without an end."""

    name = "the peer"

    def __init__(self, kind: str) -> None:
        self.kind, self.heard, self.waiting, self.answer = kind, FrameReader(), b"", b""

    def read(self, limit: int, timeout_s: float) -> bytes:
        match self.kind:
            case "busy again":
                self.waiting += 50 * self.answer
            case "noise":
                self.waiting += 300 * b"\x01\x02\0"
            case "text":
                self.waiting += 300 * b"hello"
            case "damaged":
                self.waiting += 20 * encode_frame(Frame(0, 0, KIND_DAMAGED, 0, b""))
            case "started":
                self.waiting += 20 * encode_frame(Frame(0, 0, KIND_STARTED, 0, b""))
        if not self.waiting:
            time.sleep(min(timeout_s, 0.02))
        data, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return data

    def write(self, data: bytes) -> None:
        for request in filter(None, self.heard.feed(data)):
            kind = request.kind | KIND_ANSWER
            busy = Frame(request.session, request.sequence, kind, Status.BUSY, b"")
            self.answer = encode_frame(busy)
            self.waiting += self.answer

    def close(self) -> None:
        self.kind = ""


@pytest.mark.parametrize(
    "kind", ["busy", "busy again", "noise", "text", "damaged", "started"]
)
def test_a_peer_without_end_ends_with_the_timeout(kind: str) -> None:
    begin = time.monotonic()
    with pytest.raises(DeviceTimeoutError, match=rf"within {PATIENCE_S:g} s"):
        Session(EndlessPeer(kind), timeouts=Timeouts.within(PATIENCE_S))
    assert time.monotonic() - begin < 3
