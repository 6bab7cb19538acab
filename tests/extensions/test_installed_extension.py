"""The package of docs/extensions.md adds what the page says, through an entry point alone."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "extensions.md"
FILE = re.compile(r"^File `([\w./]+)`[^`]*?```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages with the one of the page."""
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as part:
            part.write(text)
    install(tmp_path, "weigh", "firmwright_weigh")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("firmwright_weigh")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def install(site: Path, name: str, package: str) -> None:
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    points = f"[firmwright.extensions]\n{name} = {package}:EXTENSION\n"
    (info / "entry_points.txt").write_text(points)
    os.utime(site, (0, 0))  # the clock of a file system may be too coarse to tell


@pytest.mark.usefixtures("site")
def test_the_verb_is_listed_described_and_run(fw: Callable[..., Any], digits_path: Path) -> None:
    overview = fw("--help").out
    group, _ = overview.partition("Look at a model:")[2].split("\n\n", 1)
    assert re.search(r"^  weigh +list a model's constants by their sizes$", group, re.MULTILINE)
    described = fw("weigh", "--help").out
    for words in ("--largest N", "--reference-model FILE", "--json", "  firmwright weigh kws.tfl"):
        assert words in described
    said = fw("weigh", digits_path, "--largest", "2", "--json").json
    assert said["ok"], said["error"]
    assert (said["verb"], said["ok"], said["model"], len(said["bytes"])) == (
        "weigh",
        True,
        "digits",
        2,
    )
    wrong = fw("weigh", digits_path, "--largest", "0")
    assert (wrong.status, "argument --largest" in wrong.err) == (2, True)


@pytest.mark.usefixtures("site")
def test_the_export_format_makes_a_package_with_license_readme_and_build_file(
    fw: Callable[..., Any], digits_path: Path, tmp_path: Path
) -> None:
    assert "cmake" in fw("export", "--help").out
    output = tmp_path / "package"
    said = fw("export", digits_path, "--format", "bazel", "-o", output, "--json").json
    assert (said["ok"], said["format"]) == (True, "bazel")
    assert (output / "LICENSE").is_file()
    assert (
        "Add `//path/to/digits` to the deps of your target." in (output / "README.md").read_text()
    )
    build = (output / "BUILD.bazel").read_text()
    for words in ('name = "digits"', '"src/digits.h", ', 'glob(["src/*.c"])'):
        assert words in build
    assert (output / "src" / "digits.c").is_file()
    assert "'bazle' is not one of" in fw("export", digits_path, "--format", "bazle").err


def test_a_defect_of_the_verb_is_one_of_the_extension(
    site: Path, fw: Callable[..., Any], digits_path: Path
) -> None:
    (site / "firmwright_weigh" / "weigh.py").write_text("def run(args):\n    return 1 // 0\n")
    said = fw("weigh", digits_path)
    assert said.status == 2
    assert "the verb weigh of firmwright_weigh raised ZeroDivisionError" in said.err
    assert "weigh.py:2, in run" in said.err


def test_two_packages_with_a_verb_of_one_name_are_both_named(
    site: Path, fw: Callable[..., Any]
) -> None:
    (site / "firmwright_weigh" / "help.toml").write_text('[groups]\n"Ship" = ["compile"]\n')
    said = fw("ops")
    assert said.status == 2
    both = "two packages have a verb compile: firmwright.cli and firmwright_weigh."
    assert both in said.err
