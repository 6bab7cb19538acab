"""The package of docs/developing/extensions.md adds what it says through an entry point."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from firmwright.base.errors import BoardError
from firmwright.boards import load_board
from firmwright.flows.model.model import load_model
from firmwright.flows.model.partition_methods import PartitionRequest, partition_model

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "developing" / "extensions.md"
FILE = re.compile(
    r"^File `([\w./]+)`[^`]*?```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE
)


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
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
    )
    points = f"[firmwright.extensions]\n{name} = {package}:EXTENSION\n"
    (info / "entry_points.txt").write_text(points)
    os.utime(site, (0, 0))  # the clock of a file system may be too coarse to tell


@pytest.mark.usefixtures("site")
def test_the_verb_is_listed_described_and_run(
    fw: Callable[..., Any], digits_path: Path
) -> None:
    overview = fw("--help").out
    group, _ = overview.partition("Look at a model:")[2].split("\n\n", 1)
    assert re.search(
        r"^  weigh +list a model's constants by their sizes$", group, re.MULTILINE
    )
    described = fw("weigh", "--help").out
    for words in (
        "--largest N",
        "--reference-model FILE",
        "--json",
        "  firmwright weigh kws.tfl",
    ):
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
        "Add `//path/to/digits` to the deps of your target."
        in (output / "README.md").read_text()
    )
    build = (output / "BUILD.bazel").read_text()
    for words in ('name = "digits"', '"src/digits.h", ', 'glob(["src/*.c"])'):
        assert words in build
    assert (output / "src" / "digits.c").is_file()
    assert "'bazle' is not one of" in fw("export", digits_path, "--format", "bazle").err


def test_a_defect_of_the_verb_is_one_of_the_extension(
    site: Path, fw: Callable[..., Any], digits_path: Path
) -> None:
    (site / "firmwright_weigh" / "weigh.py").write_text(
        "def run(args):\n    return 1 // 0\n"
    )
    said = fw("weigh", digits_path)
    assert said.status == 2
    assert "the verb weigh of firmwright_weigh raised ZeroDivisionError" in said.err
    assert "weigh.py:2, in run" in said.err


def test_two_packages_with_a_verb_of_one_name_are_both_named(
    site: Path, fw: Callable[..., Any]
) -> None:
    (site / "firmwright_weigh" / "help.toml").write_text(
        '[groups]\n"Ship" = ["compile"]\n'
    )
    said = fw("ops")
    assert said.status == 2
    both = "two packages have a verb compile: firmwright.cli and firmwright_weigh."
    assert both in said.err


ACME = """
from dataclasses import dataclass, replace
from firmwright.base.extensions import Extension
from firmwright.boards.toml_table import read_table
from firmwright.cli.boot_loaders import BootLoader
from firmwright.cli.verb import Outcome
from firmwright.flows.model.partition_methods import PartitionChoice
from firmwright.package.custom_main import replace_main_loop

@dataclass(frozen=True)
class Siren:
    pin: int

class Button:
    def make_project(self, project, io, board):
        return replace_main_loop(project, {"firmware/button.c": "int main(void) { return 0; }"})

def first_only(model, options, request):
    return PartitionChoice(replace(model, file=request.how), {**options, "optimize": "size"})

BOARD_TABLES = {"siren": lambda table, memory: read_table(table, Siren)}
FIRMWARE_MAINS = {"button": lambda compiled: Button()}
PARTITION_METHODS = {"first": first_only}
EXPORT_COMMANDS = {"acme": lambda args: Outcome({"written": args.format})}
BOOT_LOADERS = {
    "acme": BootLoader(
        flash=lambda args: Outcome({"sent": args.model}),
        flash_options=("loud",),
    )
}
EXTENSION = Extension(
    name="acme",
    board_tables=("acme_extras",),
    export_commands=("acme_extras",),
    boot_loaders=("acme_extras",),
    command_line=("acme_extras",),
    firmware_mains=("acme_extras",),
    partition_methods=("acme_extras",),
)
"""
ACME_OPTIONS = """
---- choices
--firmware button  a button
--format acme
--runner acme

---- flash
--loud  for acme: with the siren
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An installed extension with the doors that the page has no program for."""
    folder = tmp_path / "acme_extras"
    folder.mkdir()
    (folder / "__init__.py").write_text(ACME)
    (folder / "options.txt").write_text(ACME_OPTIONS)
    install(tmp_path, "acme", "acme_extras")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "acme_extras", raising=False)
    return importlib.import_module("acme_extras")


def test_a_table_of_board_files_is_read_by_its_extension(
    acme: ModuleType, tmp_path: Path
) -> None:
    text = (ROOT / "boards" / "mps2-an386" / "board.toml").read_text(encoding="utf-8")
    file = tmp_path / "boards" / "loud" / "board.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text.replace('"mps2-an386"', '"loud"', 1) + "\n[siren]\npin = 7\n")
    board = load_board("loud", (tmp_path / "boards",))
    assert board.table(acme.Siren) == acme.Siren(7)
    assert load_board("mps2-an386").table(acme.Siren) is None
    file.write_text(file.read_text().replace("pin = 7", "pen = 7"))
    with pytest.raises(BoardError, match=r"siren\.pen: unknown key\. Try: write pin\."):
        load_board("loud", (tmp_path / "boards",))


@pytest.mark.usefixtures("acme")
def test_a_main_program_replaces_the_server(
    fw: Callable[..., Any], digits_path: Path, tmp_path: Path
) -> None:
    assert "serial link, or a button, or MLPerf" in " ".join(
        fw("build", "--help").out.split()
    )
    project = tmp_path / "project"
    words = ("--board", "mps2-an386", "--firmware", "button", "-o", project)
    assert fw("compile", digits_path, *words).status == 0
    assert (project / "firmware" / "button.c").is_file()
    assert not (project / "runtime" / "fwr_server.c").exists()


@pytest.mark.usefixtures("acme")
def test_a_partition_method_is_called_with_the_model_and_its_options(
    digits_path: Path,
) -> None:
    choice = partition_model(
        load_model(digits_path), {"name": "d"}, PartitionRequest("first")
    )
    assert (choice.model.file, choice.options) == (
        "first",
        {"name": "d", "optimize": "size"},
    )


@pytest.mark.usefixtures("acme")
def test_a_boot_loader_exports_and_sends_updates(
    fw: Callable[..., Any], digits_path: Path
) -> None:
    assert (
        fw("export", digits_path, "--format", "acme", "--json").json["written"]
        == "acme"
    )
    sent = fw("flash", digits_path, "--runner", "acme", "--loud", "--json").json
    assert sent["sent"] == str(digits_path)
    refused = fw("flash", digits_path, "--loud")
    assert refused.status == 2
    assert "--loud needs --runner acme" in refused.err
