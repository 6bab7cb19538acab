"""The contents of bug reports, which are written even if the compilation fails."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from firmwright.base.errors import ModelError
from firmwright.cli.bugreport import BugReport, BugReportRequest, make_bug_report
from firmwright.cli.doctor import ToolStatus
from firmwright.cli.main import main
from firmwright.flows.model.model import Model, load_model
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module

DIGITS = (
    Path(__file__).resolve().parents[3] / "examples" / "01_digits" / "digits.tflite"
)
HOME = "/home/somebody"
FOUND = (ToolStatus("compilers", "gcc", "everything", f"{HOME}/get gcc", "12.2.0"),)


def report(read: Any = None, *, with_weights: bool = False) -> BugReport:
    def digits() -> tuple[Model, Mapping[str, Any]]:
        return load_model(DIGITS), {"board": "mps2-an386", "optimize": "size"}

    words = ("bugreport", f"{HOME}/models/digits.tflite")
    return make_bug_report(
        BugReportRequest(read or digits, words, FOUND, with_weights, HOME)
    )


def files_of(found: BugReport) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(found.data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def constants(module: IRModule) -> list[bytes]:
    return [
        constant.data
        for constant in module.constants.values()
        if len(constant.data) >= 64
    ]


@pytest.fixture(scope="module")
def packed() -> BugReport:
    return report()


def test_archive_has_versions_options_tools_and_outcome(packed: BugReport) -> None:
    files = files_of(packed)
    assert json.loads(files["command.json"])["options"]["optimize"] == "size"
    assert json.loads(files["doctor.json"])[0]["found"] == "12.2.0"
    assert {"firmwright", "python", "system"} <= set(json.loads(files["versions.json"]))
    assert files["outcome.txt"].startswith(b"compiled: model id ")
    assert "ir/00-import.fwir" in files
    assert any(name.endswith("lower-select.fwir") for name in files)
    assert packed.files == {name: len(data) for name, data in files.items()}


def test_archive_has_no_weights_by_default(packed: BugReport) -> None:
    files = files_of(packed)
    everything = b"".join(files.values())
    module = load_model(DIGITS).module
    assert constants(module)
    for data in constants(module):
        assert data not in everything
        assert base64.b64encode(data)[:40] not in everything
    assert not any(name.startswith("model/") for name in files)


def test_archive_with_weights_can_be_compiled() -> None:
    files = files_of(report(with_weights=True))
    module = parse_module(files["ir/00-import.fwir"].decode())
    assert constants(module) == constants(load_model(DIGITS).module)
    assert files["model/digits.bin"] == DIGITS.read_bytes()


def test_the_same_arguments_give_the_same_bytes(packed: BugReport) -> None:
    assert report().data == packed.data


def test_home_folder_is_hidden(packed: BugReport) -> None:
    everything = b"".join(files_of(packed).values())
    assert HOME.encode() not in everything
    assert b"~/models/digits.tflite" in everything
    assert b"~/get gcc" in everything


@pytest.mark.parametrize(
    "error", [ModelError("it is broken."), ZeroDivisionError("by zero")]
)
def test_unreadable_model_is_reported(error: Exception) -> None:
    def read() -> tuple[Model, Mapping[str, Any]]:
        raise error

    found = report(read)
    files = files_of(found)
    assert str(error) in files["outcome.txt"].decode()
    assert b"Traceback" in files["outcome.txt"]
    assert str(error) in found.outcome
    assert not any(name.startswith("ir/") for name in files)


def test_bugreport_lists_the_packed_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.zip"
    assert main(["bugreport", str(DIGITS), "-o", str(file)]) == 0
    said = capsys.readouterr().out
    assert "without weights" in said
    with zipfile.ZipFile(file) as archive:
        assert all(name in said for name in archive.namelist())
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(b"\0" * 64)
    assert main(["bugreport", str(broken), "-o", str(file), "--json"]) == 0
    assert "broken.tflite" in json.loads(capsys.readouterr().out)["outcome"]
