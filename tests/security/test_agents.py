"""What agents ask the server for: they are not trusted, as their inputs are not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from firmwright.extensions.mcp.command_runner import CommandRunner, ToolCallError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def runner(tmp_path: Path, digits_path: Path) -> CommandRunner:
    """A runner with a model in its folder, and one beside the folder."""
    root = tmp_path / "models"
    (root / "more").mkdir(parents=True)
    shutil.copy(digits_path, root / "more" / "digits.tflite")
    shutil.copy(digits_path, tmp_path / "secret.tflite")
    (root / "link.tflite").symlink_to(tmp_path / "secret.tflite")
    (root / "folder").symlink_to(tmp_path)
    return CommandRunner(root.resolve(), timeout_s=60)


def test_paths_of_agents_stay_below_the_root(
    runner: CommandRunner, tmp_path: Path
) -> None:
    inside = runner.model("more/../more/digits.tflite")
    assert inside == str(runner.root / "more" / "digits.tflite")
    for path in (
        "../secret.tflite",
        "more/../../secret.tflite",
        "link.tflite",
        "folder/secret.tflite",
        str(tmp_path / "secret.tflite"),
        "/etc/passwd",
    ):
        with pytest.raises(ToolCallError, match="outside of the server's root"):
            runner.model(path)
    for path in ("", ".", "more", "absent.tflite", "--help", "a\0b"):
        with pytest.raises(ToolCallError, match="there is no such file"):
            runner.model(path)


def test_agents_reach_no_hardware(runner: CommandRunner) -> None:
    assert runner.emulated_board("mps2-an386") == "mps2-an386"
    with pytest.raises(ToolCallError, match="needs hardware"):
        runner.emulated_board("nucleo-l4r5zi")
    for name in ("../boards", "--port=x", ""):
        with pytest.raises(ToolCallError, match="there is no board"):
            runner.emulated_board(name)


def test_agents_run_no_code_in_files(
    runner: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = ROOT / "tests" / "acceptance" / "gated_delta.fwir"
    shutil.copy(code, runner.root / "code.fwir")
    monkeypatch.setenv("FIRMWRIGHT_TRUST", str(runner.root))
    with pytest.raises(ToolCallError, match="--trust"):
        runner.run("verify", runner.model("code.fwir"), "--samples", "1")
