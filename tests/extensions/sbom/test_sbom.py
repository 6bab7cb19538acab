"""The bill of materials is sound CycloneDX, complete, and the same each time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import firmwright as fw
from firmwright.base.errors import FirmwrightError
from firmwright.cli.main import main
from firmwright.extensions.sbom.sbom import project_sbom

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
