"""`pip install .` into an environment of its own: what a user who only generates C has.

Neither the checkout, nor a reference runtime, nor a compiler is in reach of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from firmwright.pipeline import Compiled

ROOT = Path(__file__).resolve().parents[2]
INSTALL_TIMEOUT_S = 600

Firmwright = Callable[..., subprocess.CompletedProcess[str]]


def test_an_installed_copy_needs_nothing_else(
    digits_path: Path, compiled: Callable[..., Compiled], tmp_path: Path
) -> None:
    """One test, since the installation takes most of its time."""
    firmwright = installed(tmp_path)
    it_stands_alone(firmwright)
    it_finds_its_boards(firmwright)
    it_names_the_tools_that_it_lacks(firmwright, digits_path)
    out = tmp_path / "out"
    done = firmwright("compile", str(digits_path), "--board", "mps2-an386", "-o", str(out))
    assert done.returncode == 0, done.stderr
    expected = compiled("digits", board="mps2-an386").project().files
    assert {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()} == set(expected)
    for path, content in expected.items():
        data = content.encode() if isinstance(content, str) else content
        assert (out / path).read_bytes() == data, path


def installed(folder: Path) -> Firmwright:
    """`firmwright("boards")`: the installed command's result, in an empty working directory."""
    home, place = folder / "environment", folder / "place"
    place.mkdir()
    python = home / "bin" / "python"
    make = [sys.executable, "-m", "venv", "--without-pip", str(home)]
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", str(ROOT)]
    for command in (make, install):
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=INSTALL_TIMEOUT_S
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def run(*words: str, program: str = "firmwright") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(home / "bin" / program), *words],
            cwd=place,
            env={"PATH": str(home / "bin"), "HOME": str(place)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def it_stands_alone(firmwright: Firmwright) -> None:
    where = firmwright("-c", "import firmwright; print(firmwright.__file__)", program="python")
    assert "site-packages" in where.stdout, where
    for absent in ("ai_edge_litert", "tflite_micro", "onnx"):
        assert firmwright("-c", f"import {absent}", program="python").returncode == 1


def it_finds_its_boards(firmwright: Firmwright) -> None:
    done = firmwright("boards", "--json")
    assert done.returncode == 0, done.stderr
    names = {board["name"] for board in json.loads(done.stdout)["boards"]}
    assert names == {path.parent.name for path in (ROOT / "boards").glob("*/board.toml")}


def it_names_the_tools_that_it_lacks(firmwright: Firmwright, digits_path: Path) -> None:
    done = firmwright("build", str(digits_path), "--board", "mps2-an386", "--json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "tool_missing"
    assert "gcc-arm-none-eabi" in error["hint"]
