"""The bill of materials is sound CycloneDX, complete, and the same each time."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import firmwright as fw
from firmwright.base.errors import FirmwrightError
from firmwright.cli.main import main
from firmwright.extensions.sbom.sbom import project_sbom
from firmwright.extensions.sbom.toolchain_libraries import find_toolchain

DIGITS = (
    Path(__file__).resolve().parents[3] / "examples" / "01_digits" / "digits.tflite"
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bill") / "project"
    fw.compile(fw.load(DIGITS), board="mps2-an386").save(folder)
    return folder


def parts(found: Any) -> Iterator[dict[str, Any]]:
    for component in found.get("components", ()):
        yield component
        yield from parts(component)


def test_the_document_is_valid_cyclonedx(project: Path) -> None:
    schema = pytest.importorskip("cyclonedx.schema")
    validation = pytest.importorskip("cyclonedx.validation.json")
    validator = validation.JsonStrictValidator(schema.SchemaVersion.V1_6)
    text = json.dumps(project_sbom(project, {"SOURCE_DATE_EPOCH": "1700000000"}))
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"firmware"', '"banana"', 1)) is not None


def test_every_project_file_is_listed_once_with_its_hash(project: Path) -> None:
    files = [
        part for part in parts(project_sbom(project, {})) if part["type"] == "file"
    ]
    found = {part["name"]: part["hashes"][0]["content"] for part in files}
    on_disk = {
        p.relative_to(project).as_posix() for p in project.rglob("*") if p.is_file()
    }
    assert set(found) == on_disk
    assert len(files) == len(found)


def test_model_runtime_libraries_compiler_and_tool_are_named(project: Path) -> None:
    bill = project_sbom(project, {})
    kinds = {(part["type"], part["name"]) for part in bill["components"]}
    assert {
        ("machine-learning-model", "digits"),
        ("library", "firmwright-runtime"),
        ("library", "newlib-nano"),
        ("application", "arm-none-eabi-gcc"),
    } <= kinds
    (tool,) = bill["metadata"]["tools"]["components"]
    assert (tool["name"], tool["version"]) == ("firmwright", fw.__version__)


def by_name(bill: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {part["name"]: part for part in bill["components"]}


def test_models_runtime_and_glue_have_the_licenses_that_their_files_state(
    tmp_path: Path,
) -> None:
    options = ["--board", "mps2-an386", "--license", "MIT OR Apache-2.0"]
    assert main(["compile", str(DIGITS), *options, "-o", str(tmp_path)]) == 0
    found = by_name(project_sbom(tmp_path, {}))
    assert found["digits"]["licenses"] == [{"expression": "MIT OR Apache-2.0"}]
    assert found["firmwright-runtime"]["licenses"] == [{"expression": "Apache-2.0"}]
    both = {"expression": "Apache-2.0 AND (MIT OR Apache-2.0)"}
    assert found["glue-and-build"]["licenses"] == [both]


@pytest.mark.parametrize(
    ("board", "library"),
    [
        pytest.param("mps2-an386", "newlib-nano", marks=pytest.mark.qemu),
        pytest.param("hifive1-revb", "picolibc", marks=pytest.mark.qemu("riscv32")),
    ],
)
def test_linked_libraries_have_the_versions_of_the_installed_compiler(
    board: str, library: str, tmp_path: Path
) -> None:
    compiled = fw.compile(fw.load(DIGITS), board=board)
    compiled.save(tmp_path)
    found = by_name(project_sbom(tmp_path, {}))
    gcc = f"{compiled.board.toolchain}-gcc"
    version = subprocess.run(
        [gcc, "-dumpfullversion"], capture_output=True, text=True, check=True
    ).stdout.strip()
    libgcc = found["libgcc"]
    assert libgcc["version"] == found[gcc]["version"] == version
    exception = "GPL-3.0-or-later WITH GCC-exception-3.1"
    assert libgcc["licenses"] == [{"expression": exception}]
    command = [gcc, *compiled.board.cpu_flags, "-print-libgcc-file-name"]
    archive = subprocess.run(command, capture_output=True, text=True, check=True)
    content = Path(archive.stdout.strip()).read_bytes()
    assert libgcc["hashes"][0]["content"] == hashlib.sha256(content).hexdigest()
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", found[library]["version"])
    assert found[library]["licenses"][0]["license"]["url"].startswith("https://")


def test_libraries_of_another_compiler_have_no_version(project: Path) -> None:
    known = find_toolchain("arm-none-eabi", ["--specs=nano.specs"], [], "GCC: 1.2.3")
    assert [library.version for library in known.libraries] == ["", ""]
    assert known.libraries[0].license.name
    hostile = ["-B/tmp", "--specs=/tmp/evil.specs", "-fplugin=/tmp/x.so", "-wrapper"]
    assert find_toolchain("arm-none-eabi", hostile, hostile).libraries == ()
    assert find_toolchain("/tmp/evil", ["--specs=nano.specs"], hostile).version == ""


def test_library_folder_is_a_component(project: Path) -> None:
    file = project / "backend" / "cmsis-nn" / "arm_convolve.c"
    file.parent.mkdir(parents=True)
    file.write_text("/* external */\n")
    before = project_sbom(project, {})
    (library,) = [part for part in before["components"] if part["name"] == "cmsis-nn"]
    assert [part["name"] for part in library["components"]] == [
        "backend/cmsis-nn/arm_convolve.c"
    ]
    file.write_text("/* changed */\n")
    assert project_sbom(project, {})["serialNumber"] != before["serialNumber"]
    file.unlink()
    file.parent.rmdir()


def test_sbom_is_deterministic_with_optional_time(project: Path) -> None:
    bill = project_sbom(project, {})
    assert bill == project_sbom(project, {})
    assert "timestamp" not in bill["metadata"]
    stated = project_sbom(project, {"SOURCE_DATE_EPOCH": "1700000000"})
    assert stated["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"


def test_built_image_is_listed_with_hash_and_compiler(project: Path) -> None:
    elf = project / "build" / "release" / "firmware.elf"
    elf.parent.mkdir(parents=True)
    elf.write_bytes(b"\x7fELF..GCC: (15:12.2.rel1-1) 12.2.1 20221205\0")
    bill = project_sbom(project, {})
    elf.unlink()
    assert len(bill["metadata"]["component"]["hashes"][0]["content"]) == 64
    (compiler,) = [part for part in bill["components"] if part["bom-ref"] == "compiler"]
    assert {
        "name": "firmwright:built_by",
        "value": "GCC: (15:12.2.rel1-1) 12.2.1",
    } in compiler["properties"]


@pytest.mark.parametrize("text", ["{", "[]", '{"model": "x"}'])
def test_folder_with_invalid_metadata_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "board").mkdir()
    (tmp_path / "board" / "board.json").write_text(text)
    (tmp_path / "metadata.json").write_text(text)
    with pytest.raises(FirmwrightError):
        project_sbom(tmp_path, {})


def test_sbom_is_written_or_printed(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sbom", str(project)]) == 0
    said = json.loads(capsys.readouterr().out)
    file = tmp_path / "bom.json"
    assert main(["sbom", str(project), "-o", str(file)]) == 0
    assert json.loads(file.read_text(encoding="utf-8")) == said
    assert "CycloneDX 1.6" in capsys.readouterr().out
    assert main(["sbom", str(tmp_path)]) == 2
