"""firmwright.toml of a folder from anywhere runs nothing unless the user trusts it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.cli.main import _parser, verbs
from firmwright.cli.project_file import code_keys

CODE = "open('PWNED', 'w')\nCUSTOM_OPS = []\ndef f(m=None):\n    return m or []\n"
CODE_OPTIONS = {
    ("address", "flash"): "localhost:1",
    ("cmsis-nn", "verify"): "library",
    ("custom-op", "verify"): "evil.py",
    ("esp-nn", "verify"): "library",
    ("ethos-u-driver", "verify"): "library",
    ("flash-command", "partition"): "touch PWNED",
    ("imgtool-args", "export"): "--encrypt x",
    ("main", "compile"): "evil.c",
    ("other-version", "bench"): ".",
    ("pass", "verify"): "evil:f",
    ("port", "verify"): "spy://x?file=PWNED",
    ("scheduler", "verify"): "tcp://localhost:1",
    ("data", "evaluate"): "evil.py:f",
}
DATA_OPTIONS = """
    activations after against all all-boards all-chips allow-stack assign-device assign-pool backend baseline baud board
    boards boards-dir c-api c-standard check-plan chip chips classes clock compare compile-time
    compiler compress-weights concurrent confirm console const-pool count-instructions cycles
    dataset debug devices dry-run elide-constants emit-descriptor emit-probe-callback emit-step-api
    exclude expect fallback find find-first-divergence firmware fit fix-input flash format from harden
    header-only-constants help image in-process input input-shape io-buffers iterations jobs json
    key labels license license-file limit-factor maintainer matrix measure measure-stack method
    metric models modes name no-browser no-constant-channels no-inline-asm no-link-params no-nan no-tradeoffs numerics offload
    one-each op operator optimize output-name package-name package-version pareto partition pattern peers
    per-image per-tensor pipeline-runs planner pool predict prefix preserve-input print-after
    print-pipeline profile ram ranges recompute reference-model runner runs samples seconds section
    security-counter seed serve silicon strategy stream-input-rows strict target task tcp-port
    timeout timing-board toolchain trials tuning update-of url variant verbose verify verify-passes
    warmups weight-independent with-tests with-weights
"""
"""Options that only read data, checked, or choose among what is installed."""
OUTPUTS = {
    "dump-dir": "compile",
    "evidence": "verify",
    "node-data": "profile",
    "out": "quantize",
    "output": "run",
    "partition-log": "verify",
    "save-partition": "partition",
    "trace": "profile",
    "write": "bench",
}


@pytest.fixture
def project(tmp_path: Path, digits_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, in which the command runs."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(digits_path, folder / "net.tflite")
    (folder / "evil.py").write_text(CODE)
    monkeypatch.chdir(folder)
    return folder


def write(verb: str, key: str, value: str) -> None:
    Path("firmwright.toml").write_text(
        f"model = 'net.tflite'\n[{verb}]\n{key} = '{value}'\n"
    )


NEEDED = {
    "export": ("--format", "cmake"),
    "partition": ("--target", "vanilla"),
    "quantize": ("--data", "x"),
}
"""Options without which the verbs refuse the command line."""


@pytest.mark.parametrize(("key", "verb"), CODE_OPTIONS)
def test_options_of_the_project_file_that_run_code_require_trust(
    key: str, verb: str, project: Path, fw: Callable
) -> None:
    write(verb, key, CODE_OPTIONS[key, verb])
    said = fw(verb, *NEEDED.get(verb, ()))
    assert said.status == 2, said.err
    assert f"{project}/firmwright.toml" in said.err
    assert f"{key} = " in said.err
    assert "add --trust" in said.err
    assert not (project / "PWNED").exists()


def test_a_trusted_project_file_may_run_code(project: Path, fw: Callable) -> None:
    write("show", "custom-op", "evil.py")
    assert fw("show").status == 2
    assert not (project / "PWNED").exists()
    assert fw("show", "--trust", "firmwright.toml").status == 0
    assert (project / "PWNED").exists()


@pytest.mark.parametrize(("key", "verb"), OUTPUTS.items())
def test_the_project_file_writes_into_its_folder_only(
    key: str, verb: str, project: Path, fw: Callable
) -> None:
    for value in ("../x", str(project.parent / "x"), ".git/x", "a/../../x"):
        write(verb, key, value)
        said = fw(verb, *NEEDED.get(verb, ()))
        assert said.status == 2, said.err
        assert f"{key} = '{value}' writes " in said.err
    assert not (project.parent / "x").exists()


def test_every_option_is_known_to_run_code_or_not() -> None:
    parser = _parser(verbs())
    actions = [action for verb in parser.verbs.values() for action in verb._actions]
    options = {word[2:] for action in actions for word in action.option_strings}
    options = {
        option for option in options if len(option) > 1 and not option.startswith("-")
    }
    known = (
        {*DATA_OPTIONS.split()}
        | code_keys()
        | OUTPUTS.keys()
        | {"data", "port", "trust"}
    )
    assert options == known
    assert {key for key, _ in CODE_OPTIONS} == {*code_keys(), "data", "port"}
