"""Named input files: devices, pipes and unusable paths end in a message."""

import os
from pathlib import Path

import pytest

from firmwright.base.input_files import (
    INPUT_BYTES_MAX,
    TEXT_BYTES_MAX,
    check_regular_file,
    read_input_bytes,
    read_input_text,
)
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


def sparse_file(path: Path, size: int) -> Path:
    """Return a file of `size` bytes that takes no room on the disk."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_files_above_the_limits_are_not_read(tmp_path: Path) -> None:
    text = sparse_file(tmp_path / "log.json", TEXT_BYTES_MAX + 1)
    model = sparse_file(tmp_path / "model.tflite", INPUT_BYTES_MAX + 1)
    with pytest.raises(
        OSError, match="it has 268,435,457 bytes, more than 268,435,456"
    ):
        read_input_text(text)
    with pytest.raises(
        OSError, match="it has 4,294,967,297 bytes, more than 4,294,967,296"
    ):
        read_input_bytes(model)


@pytest.mark.parametrize("verb", ["inspect", "compile", "verify"])
def test_verbs_name_the_size_of_a_model_above_the_limit(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = sparse_file(tmp_path / "model.onnx", INPUT_BYTES_MAX + 1)
    assert main([verb, str(model)]) == 2
    assert "it has 4,294,967,297 bytes" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "{special}"],
        ["compile", "{digits}", "--tuning", "{special}"],
        ["run", "{digits}", "--input", "{special}"],
    ],
)
def test_verbs_name_devices_and_pipes(
    words: list[str],
    special: Path,
    digits_path: Path,
    capsys: pytest.CaptureFixture[str],
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
