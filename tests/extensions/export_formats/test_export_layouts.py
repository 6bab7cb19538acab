"""Layouts of exported packages, and their metadata about owner and files."""

import json
import tarfile
import xml.etree.ElementTree as ET
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.flows.export.package_export import export_model
from firmwright.package.export_format import export_formats
from firmwright.package.export_input import PackageMetadata
from firmwright.pipeline import Compilation

ROOT = Path(__file__).resolve().parents[3]


def test_platformio_manifest_lists_existing_files(digits: Compilation, tmp_path: Path):
    export_model(digits, "platformio", tmp_path)
    facts = json.loads((tmp_path / "library.json").read_text(encoding="utf-8"))
    assert {"name", "version", "description", "frameworks", "platforms"} <= set(facts)
    (header,) = facts["headers"]
    assert (tmp_path / facts["build"]["srcDir"] / header).is_file()
    assert (tmp_path / "examples/run/platformio.ini").is_file()
    assert (tmp_path / "examples/run/src/main.c").is_file()


def test_a_pack_describes_every_file_and_is_the_same_twice(
    digits: Compilation, tmp_path: Path
):
    first, second = tmp_path / "a.pack", tmp_path / "b.pack"
    export_model(digits, "cmsis-pack", first)
    export_model(digits, "cmsis-pack", second)
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        names = set(archive.namelist())
        root = ET.fromstring(archive.read("Model-Owner.digits.pdsc"))
    assert root.attrib["schemaVersion"] == "1.7.7"
    wanted = ["vendor", "name", "description", "url", "license", "releases"]
    assert [child.tag for child in root][:6] == wanted
    listed = {file.attrib["name"] for file in root.iter("file")}
    assert {name for name in listed if not name.endswith("/")} <= names
    assert {"src/digits.c", "src/digits.h", "src/digits_weights.h"} <= listed


def test_the_library_format_has_its_layout_and_is_the_same_twice(
    digits: Compilation, tmp_path: Path
):
    first, second = tmp_path / "a.tar", tmp_path / "b.tar"
    export_model(digits, "mlf", first)
    export_model(digits, "mlf", second)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        assert {member.mtime for member in archive} == {0}
        names = archive.getnames()
        metadata = archive.extractfile("./metadata.json")
        assert metadata is not None
        facts = json.load(metadata)
    files = {name.removeprefix("./") for name in names}
    assert {
        "codegen/host/src/digits.c",
        "codegen/host/include/digits.h",
        "src/digits.fwir",
        "parameters/digits.params",
    } <= files
    module = facts["modules"]["digits"]
    assert facts["version"] == 7
    assert (module["executors"], module["style"]) == (["aot"], "full-model")
    (main,) = module["memory"]["functions"]["main"]
    assert main["workspace_size_bytes"] == digits.metadata["workspace_bytes"]
    assert main["inputs"]["image"] == {
        "size": 64,
        "dtype": "int8",
        "shape": [1, 8, 8, 1],
    }


FACTS = PackageMetadata(
    name="sensor",
    version="1.4.0-rc.1",
    maintainer='Ada & "Co" <ml@ada.example>',
    url="https://ada.example/?a=1&b=2",
    license="MIT",
    license_text="Permission is granted\n",
)


@pytest.mark.parametrize("form", export_formats())
def test_packages_state_what_their_owner_gave(
    form: str, digits: Compilation, tmp_path: Path
):
    owned = replace(digits, options=replace(digits.options, license="MIT"))
    package = export_model(owned, form, tmp_path / "x", metadata=FACTS)
    files, path = package.tree, package.path
    assert path == tmp_path / "x"
    assert files.files["LICENSE"] == "Permission is granted\n"
    readme = str(files.files["README.md"])
    assert "| version | 1.4.0-rc.1 |" in readme
    assert "| license | MIT, see LICENSE |" in readme
    match form:
        case "platformio":
            facts = json.loads(str(files.files["library.json"]))
            assert facts["authors"] == [
                {"name": 'Ada & "Co"', "email": "ml@ada.example"}
            ]
            assert (facts["license"], facts["homepage"]) == ("MIT", FACTS.url)
        case "cmsis-pack":
            root = ET.fromstring(str(files.files["Ada-Co.sensor.pdsc"]))
            assert (root.findtext("vendor"), root.findtext("url")) == (
                "Ada-Co",
                FACTS.url,
            )
        case "arduino":
            assert "version=1.4.0-rc.1\n" in str(files.files["library.properties"])
        case "zephyr":
            assert "config FIRMWRIGHT_SENSOR\n" in str(files.files["Kconfig"])
        case "cmake":
            text = str(files.files["CMakeLists.txt"])
            assert "project(firmwright_sensor VERSION 1.4.0 LANGUAGES C)" in text
        case _:
            pass


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"name": "my-net"}, "--package-name 'my-net'"),
        ({"version": "1.4"}, "--package-version '1.4'"),
        ({"maintainer": "Ada\nurl=evil"}, "--maintainer"),
        ({"url": "javascript:x"}, "--url"),
    ],
)
def test_wrong_facts_about_a_package_are_refused(facts: dict[str, str], problem: str):
    with pytest.raises(UsageError, match=f"invalid {problem}"):
        PackageMetadata(**facts)


def test_the_page_describes_every_format():
    page = (ROOT / "docs" / "firmware.md").read_text(encoding="utf-8")
    assert [f for f in export_formats() if f"--format {f}" not in page] == []
