"""Files that a user or a project names: devices, pipes and unusable paths end in a message."""

import os
from pathlib import Path

import pytest

from firmwright.base.input_files import check_regular_file, read_input_bytes
from firmwright.cli.main import main


@pytest.fixture(params=["device", "pipe"])
def special(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "special"
    if request.param == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path


def test_devices_and_pipes_are_not_read(special: Path) -> None:
    with pytest.raises(OSError, match="it is a device or pipe, not a file"):
        read_input_bytes(special)


def test_files_are_read_and_folders_left_to_the_caller(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_input_bytes(tmp_path / "file") == b"content"
    check_regular_file(tmp_path)
    check_regular_file(tmp_path / "absent")


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "{special}"],
        ["compile", "{digits}", "--tuning", "{special}"],
        ["run", "{digits}", "--input", "{special}"],
    ],
)
def test_verbs_name_devices_and_pipes(
    words: list[str], special: Path, digits_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(special=special, digits=digits_path) for word in words]
    assert main(given) == 2
    assert "it is a device or pipe, not a file" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b"])
@pytest.mark.parametrize("verb", ["inspect", "census", "sbom", "build"])
def test_paths_that_the_system_refuses_are_usage_errors(
    verb: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, path]) == 2
    assert "Traceback" not in capsys.readouterr().err
