"""firmwright.toml: found, read by every verb, below the command line, and checked."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from firmwright.cli.project_file import find_project_file


@pytest.fixture
def project(tmp_path: Path, digits_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(digits_path, tmp_path / "net.tflite")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    return tmp_path


def write(project: Path, text: str) -> None:
    (project / "firmwright.toml").write_text(text)


def test_options_of_the_file_apply_to_verbs_that_have_them(fw, project: Path):
    write(project, 'model = "net.tflite"\noptimize = "ram"\n[compile]\noutput = "out"')
    said = fw("inspect")
    assert said.status == 0
    assert said.err == "firmwright: model from ../firmwright.toml\n"
    said = fw("compile")
    assert said.err == "firmwright: model, optimize, output from ../firmwright.toml\n"
    assert '"optimize": "ram"' in (project / "out/metadata.json").read_text()
    assert fw("boards").err == ""


def test_the_command_line_takes_precedence(fw, project: Path, digits_path: Path):
    write(
        project,
        'model = "net.tflite"\npool = ["a"]\npreserve-input = true\nboard = "mps2-an386"',
    )
    said = fw("compile", str(digits_path), "--pool", "b", "--board=host", "--json").json
    assert (said["model"], said["board"], list(said["pools"])) == (
        "digits",
        "host",
        ["b"],
    )
    own = fw("compile", "--board", "host", "--json").json
    assert (own["model"], list(own["pools"])) == ("net", ["a"])
    said = fw("show", str(digits_path), "--pool", "sram")
    assert said.err == "firmwright: preserve-input, board from ../firmwright.toml\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bord = 'host'", ": 'bord' is not a shared option. Try: board."),
        ("[verfy]", ": 'verfy' is not a verb. Try: verify."),
        (
            "[verify]\nsample = 1",
            ": [verify]: 'sample' is not an option of verify. Try: samples.",
        ),
        (
            "optimize = 'fast'",
            ": argument --optimize: 'fast' is not one of speed, size, ram,",
        ),
        (
            "[verify]\nsamples = 0",
            ": argument --samples: '0': expected an integer >= 1.",
        ),
        ("board = ['a', 'b']", ": board: the option takes one value."),
        (
            "json = true",
            "'json' is not a shared option. Try: give it on the command line",
        ),
        (
            "[verify]\ndebug = true",
            "'debug' is not an option of verify. Try: give it on the command",
        ),
        (
            "[verify]\ncheck-plan = 'no'",
            ": check-plan: the option is true or false, not 'no'.",
        ),
        (
            "[verify]\nsamples = true",
            ": samples: the option takes a string or number, not True.",
        ),
        ("model = ''", ": model: the value is empty."),
        ("board = ''", ": argument --board: the value is empty."),
        (
            "trust = 'sh'",
            "'trust' is not a shared option. Try: give it on the command line",
        ),
        (
            "output = 'x'",
            "'output' is not a shared option. Try: put it into the table of a verb",
        ),
        ("board =", "the file cannot be read: Invalid value"),
    ],
)
def test_mistakes_are_named(fw, project: Path, text: str, message: str):
    write(project, text)
    said = fw("verify", "../net.tflite")
    assert said.status == 2
    assert f"{project}/firmwright.toml" in said.err
    assert message in said.err


def test_files_of_others_above_the_folder_do_not_count(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    write(project, "")
    assert find_project_file(project / "below") == project / "firmwright.toml"
    monkeypatch.setattr("os.getuid", lambda: -1)
    monkeypatch.setattr(
        Path,
        "stat",
        lambda path: SimpleNamespace(st_uid=1 + (path.name == "firmwright.toml")),
    )
    monkeypatch.setattr(Path, "is_file", lambda path: path.parent == project)
    assert find_project_file(project / "below") is None


def test_init_makes_a_project_that_builds(
    fw, tmp_path: Path, digits_path: Path, deep: bool, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "new"
    said = fw("init", str(digits_path), "-o", str(folder), "--json")
    assert said.json["files"] == [
        "firmwright.toml",
        "test_firmware.py",
        ".gitignore",
        "digits.tflite",
    ]
    if deep:
        subprocess.run([sys.executable, "-m", "pytest", "-q", folder], check=True)
    monkeypatch.chdir(folder)
    assert fw("build").err == "firmwright: model, board, output from firmwright.toml\n"
    again = fw("build", "firmware")
    assert (again.status, again.err) == (0, "")
    said = fw("init", "-o", str(folder))
    assert said.err == (
        f"firmwright: {folder}: firmwright.toml exists already. "
        "Try: use another folder, or remove the file.\n"
    )


def test_init_takes_the_model_of_the_folder(fw, project: Path):
    assert fw("init", "-o", str(project), "--json").json["model"] == "net.tflite"
    (project / "firmwright.toml").unlink()
    shutil.copy(project / "net.tflite", project / "b.tflite")
    assert "several models: b.tflite, net.tflite." in fw("init", "-o", str(project)).err


def test_init_needs_an_empty_folder_or_its_name(fw, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").touch()
    assert fw("init").err == (
        f"firmwright: {tmp_path}: the current folder is not empty; init would add firmwright.toml, "
        "test_firmware.py, .gitignore, digits.tflite. Try: -o DIR, or -o . for this folder.\n"
    )
    assert f"project  {tmp_path}\n" in fw("init", "-o", ".").out


def test_init_makes_the_package_of_a_backend(fw, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = fw("init", "--backend", "my-npu", "--json").json
    assert said["directory"] == "firmwright-my-npu"
    for name in said["files"]:
        text = (tmp_path / "firmwright-my-npu" / name).read_text()
        assert "npu1" not in text
        assert "{{" not in text
    package = (tmp_path / "firmwright-my-npu" / "my_npu" / "__init__.py").read_text()
    assert 'class MyNpu(Backend):\n    name = "my-npu"\n' in package
    assert "pyproject.toml exists already" in fw("init", "--backend", "my-npu").err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("Npu",), "'Npu' is no name of a target"),
        (("npu--1",), "'npu--1' is no name of a target"),
        (("vanilla",), "there is a target vanilla already"),
        (("cortex-m",), "there is a target cortex-m already"),
        (("numpy",), "there is a Python module numpy already"),
        (("npu1", "digits.tflite"), "a backend's package has no model and no board"),
        (("npu1", "--board", "host"), "a backend's package has no model and no board"),
    ],
)
def test_init_refuses_names_and_models_of_backends(
    fw, words: tuple[str, ...], problem: str, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    said = fw("init", "--backend", *words)
    assert said.status == 2
    assert problem in said.err
    assert not list(tmp_path.iterdir())
