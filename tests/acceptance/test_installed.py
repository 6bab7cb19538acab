"""Tests in clean environments, as after `pip install`.

The light one has neither the checkout, nor a reference runtime, nor a compiler in
reach, until it is given the last two. With --deep, wheel and sdist are built, installed
with their extras, and pass the host's part of the suite (docs/developing/releasing.md), by gcc
and, with no compiler on PATH, by zig.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from firmwright.pipeline import Compilation
from tests.archives import unpack_tar

ROOT = Path(__file__).resolve().parents[2]
INSTALL_TIMEOUT_S = 600

HOST_PART = (
    "tests/test_api.py",
    "tests/test_filetests.py",
    "tests/state",
    "tests/unit/build",
    "tests/unit/codegen",
    "tests/unit/device",
    "tests/unit/frontends",
    "tests/unit/ir",
)
"""The tests that need neither a cross-compiler nor QEMU nor the larger models."""

Firmwright = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.host_c
def test_installed_package_is_self_contained(
    digits_path: Path, compiled: Callable[..., Compilation], tmp_path: Path
) -> None:
    """One test, as the installation takes most of its time; the reference is last."""
    firmwright = installed(tmp_path)
    it_stands_alone(firmwright)
    it_finds_its_boards(firmwright)
    it_names_the_tools_that_it_lacks(firmwright, digits_path)
    out = tmp_path / "out"
    done = firmwright(
        "compile", str(digits_path), "--board", "mps2-an386", "-o", str(out)
    )
    assert done.returncode == 0, done.stderr
    expected = compiled("digits", board="mps2-an386").project().files
    assert {
        p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()
    } == set(expected)
    for path, content in expected.items():
        data = content.encode() if isinstance(content, str) else content
        assert (out / path).read_bytes() == data, path
    lend_packages(tmp_path / "environment")
    it_verifies_what_it_builds(firmwright, digits_path)


@pytest.mark.deep
@pytest.mark.zig
@pytest.mark.parametrize("toolchain", ["gcc", "zig"])
@pytest.mark.parametrize("form", ["wheel", "sdist"])
def test_host_tests_pass_in_a_clean_environment(
    form: str, toolchain: str, tmp_path: Path
) -> None:
    home = tmp_path / "environment"
    run([sys.executable, "-m", "venv", str(home)])
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q"]
    run([*pip, "hatchling"])
    dist = tmp_path / "dist"
    run(
        [str(home / "bin" / "python"), "-m", "hatchling", "build", "-d", str(dist)],
        cwd=ROOT,
    )
    (archive,) = dist.glob("*.tar.gz")
    (made,) = [archive] if form == "sdist" else dist.glob("*.whl")
    run([*pip, f"{made}[verify,onnx,zig,dev]"])
    suite = unpacked(archive, tmp_path / "suite")
    shutil.rmtree(suite / "toolchain")  # test the installed package
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    if toolchain == "zig":
        environment = {**environment, "PATH": without_compilers(tmp_path / "bin")}
        environment["FIRMWRIGHT_TOOLCHAIN"] = "zig"
    marks = ["-m", "not qemu and not board and not models and not deep"]
    command = [
        str(home / "bin" / "python"),
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        *marks,
        *HOST_PART,
    ]
    done = run(command, cwd=suite, env=environment)
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 500, done.stdout


def test_documented_test_selection_is_the_one_run() -> None:
    text = (ROOT / "docs" / "developing" / "releasing.md").read_text(encoding="utf-8")
    shown = re.search(
        r"```text\nFIRMWRIGHT_TOOLCHAIN=\w+ pytest (.*?)\n```", text, re.DOTALL
    )
    assert shown is not None
    words = [
        word
        for word in shown[1].replace("\\", " ").split()
        if word.startswith("tests/")
    ]
    assert tuple(words) == HOST_PART
    assert all((ROOT / word).exists() for word in words)


def run(
    command: Sequence[str],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command and require success."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=None if env is None else dict(env),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (
        f"{command}\n{done.stdout[-8000:]}{done.stderr[-2000:]}"
    )
    return done


def lend_packages(home: Path) -> None:
    """Add this environment's reference runtimes to the installation in `home`."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    lent = home / "lib" / version / "site-packages" / "lent.pth"
    lent.write_text(
        sysconfig.get_path("purelib") + "\n", encoding="utf-8", newline="\n"
    )


def unpacked(archive: Path, folder: Path) -> Path:
    unpack_tar(archive, folder)
    (suite,) = folder.iterdir()
    return suite


def without_compilers(folder: Path) -> str:
    """Return a PATH with a shell and the tools to start Python, without compilers."""
    folder.mkdir()
    for name in ("sh", "env", "sleep"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return str(folder)


def installed(folder: Path) -> Firmwright:
    """`firmwright("boards")`: the installed command's result in an empty folder."""
    home, place = folder / "environment", folder / "place"
    place.mkdir()
    python = home / "bin" / "python"
    make = [sys.executable, "-m", "venv", "--without-pip", str(home)]
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    # Not compiled, as few of the modules are used.
    install = [
        *pip,
        "install",
        "-q",
        "--no-compile",
        str(ROOT),
    ]
    for command in (make, install):
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def run(
        *words: str, program: str = "firmwright", path: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(home / "bin" / program), *words],
            cwd=place,
            env={
                "PATH": os.pathsep.join(filter(None, (str(home / "bin"), path))),
                "HOME": str(place),
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def it_stands_alone(firmwright: Firmwright) -> None:
    where = firmwright(
        "-c", "import firmwright; print(firmwright.__file__)", program="python"
    )
    assert "site-packages" in where.stdout, where
    for absent in ("ai_edge_litert", "tflite_micro", "onnx"):
        assert firmwright("-c", f"import {absent}", program="python").returncode == 1


def it_finds_its_boards(firmwright: Firmwright) -> None:
    done = firmwright("boards", "--json")
    assert done.returncode == 0, done.stderr
    names = {board["name"] for board in json.loads(done.stdout)["boards"]}
    assert names == {
        path.parent.name for path in (ROOT / "boards").glob("*/board.toml")
    }


def it_names_the_tools_that_it_lacks(firmwright: Firmwright, digits_path: Path) -> None:
    done = firmwright("build", str(digits_path), "--board", "mps2-an386", "--json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "tool_missing"
    assert "gcc-arm-none-eabi" in error["hint"]


def it_verifies_what_it_builds(firmwright: Firmwright, digits_path: Path) -> None:
    verify = ("verify", str(digits_path), "--board", "host", "--samples", "5", "--json")
    done = firmwright(*verify, path=os.environ["PATH"])
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["mismatches"], found["values"]) == (0, 50)
