"""Platform differences, as far as they can be tested on one system."""

from __future__ import annotations

import ast
import subprocess
import sys
import types
from pathlib import Path, PureWindowsPath

import pytest

from firmwright.artifacts import SourceTree
from firmwright.base import platform_compat
from firmwright.base.errors import InternalError
from firmwright.base.platform_compat import current_user_tag, lock_file
from firmwright.cli.verb_texts import command_packages

PACKAGE = Path(platform_compat.__file__).resolve().parents[1]
POSIX_ALONE = ("fcntl", "termios", "tty", "pty", "pwd", "grp", "resource")


@pytest.mark.parametrize("wait", [False, True])
def test_a_lock_keeps_others_out_until_its_file_is_closed(
    tmp_path: Path, wait: bool
) -> None:
    path = tmp_path / "a.lock"
    with open(path, "w") as first, open(path, "w") as second:
        assert lock_file(first, wait=wait)
        assert not lock_file(second, wait=False)
        first.close()
        assert lock_file(second, wait=wait)


def test_on_windows_a_lock_is_retried_until_acquired(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries: list[int] = []

    def locking(handle: int, mode: int, size: int) -> None:
        tries.append(size)
        if len(tries) < 3:
            raise OSError("taken")

    stand_in = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
    monkeypatch.setitem(sys.modules, "msvcrt", stand_in)
    monkeypatch.setattr(platform_compat, "_RETRY_S", 0.0)
    with open(tmp_path / "a.lock", "w") as file:
        assert not lock_file(file, wait=False, system="nt")
        assert lock_file(file, system="nt")
    assert tries == [1, 1, 1]


def test_without_user_ids_the_user_name_becomes_a_file_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("os.getuid")
    monkeypatch.setattr("getpass.getuser", lambda: r"DOMAIN\Jane Doe")
    assert current_user_tag() == "DOMAIN_Jane_Doe"


def test_every_text_file_is_written_with_the_same_line_ends_everywhere() -> None:
    """Check that text files are opened with `newline`: Windows translates line ends."""
    missing = [
        f"{file.relative_to(PACKAGE)}:{node.lineno}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and writes_text(node)
        if "newline" not in {keyword.arg for keyword in node.keywords}
    ]
    assert missing == []


def writes_text(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    modes = [
        a.value
        for a in call.args
        if isinstance(a, ast.Constant) and a.value in ("w", "a")
    ]
    return name == "write_text" or (name == "open" and bool(modes))


def test_posix_modules_are_not_imported_with_the_package() -> None:
    """Import the command line and device modules without POSIX ones, as on Windows."""
    hidden = "".join(f"sys.modules[{name!r}] = None\n" for name in POSIX_ALONE)
    others = (
        "import multiprocessing, serial, subprocess, sys\n"  # they know their systems
    )
    modules = "firmwright.cli.main, firmwright.extensions.mlperf.session, firmwright.device.serial_port"
    packages = command_packages().items()
    verbs = ", ".join(f"{package.name}.{verb}" for verb, package in packages)
    code = f"{others}{hidden}import {modules}, {verbs}\n"
    environment = {"PYTHONPATH": str(PACKAGE.parent)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_a_path_that_leaves_the_folder_on_windows_is_always_refused() -> None:
    for path in (r"..\x.c", "C:/x.c", "C:x.c", r"model\x.c", "//server/share/x.c"):
        with pytest.raises(InternalError):
            SourceTree({path: ""})
    inside = PureWindowsPath(r"model\x.c").as_posix()
    assert set(SourceTree({inside: ""}).files) == {"model/x.c"}
