"""Child processes take no modules, programs or settings from the current folder."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import firmwright
from firmwright.base.child_process import (
    child_environment,
    command_words,
    empty_folder,
    find_program,
    python_command,
    run_program,
)
from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.base.import_path import trusted_import_path
from firmwright.base.process_pool import open_process_pool
from firmwright.flows.executors import package_version

PACKAGE = Path(firmwright.__file__).parent
DOORS = {"base/child_process.py", "base/process_pool.py"}
SHADOWED = (
    "pickle",
    "configparser",
    "json",
    "numpy",
    "sitecustomize",
    "usercustomize",
    "conftest",
)
"""Modules that Python, its tools and our children import."""
DIGITS = PACKAGE.parents[1] / "examples" / "01_digits" / "digits.tflite"
VERBS = {
    "census": "census . --board host -o census.html",
    "verify": "verify digits.tflite --board host",
    "run": "run digits.tflite --board host --samples 2",
    "profile": "profile digits.tflite --board mps2-an386",
    "report": "report digits.tflite --board mps2-an386 -o report.html",
    "compile": "compile digits.tflite --board mps2-an386 -o out",
    "Vela": "compile digits.tflite --board mps2-an386 --target ethos-u55-128 -o out",
    "doctor": "doctor",
}
"""Verbs that start Python, compilers, QEMU or the reference runtimes."""
HOSTILE = """
import os
open({marker!r}, "a").write(__name__)
os._exit(9)
"""


# ---- one door ------------------------------------------------------------------------


def is_start(call: str) -> bool:
    """Return whether a dotted name starts a program or an interpreter."""
    module, _, name = call.rpartition(".")
    starts = ("system", "popen", "exec", "spawn", "posix_spawn", "fork", "startfile")
    return (
        module in ("subprocess", "multiprocessing", "pty", "concurrent.futures.process")
        or (module == "os" and name.startswith(starts))
        or name.startswith(
            ("create_subprocess", "ProcessPoolExecutor", "subprocess_exec")
        )
        or call in ("shutil.which", "subprocess", "multiprocessing", "pty")
    )


def started_in(tree: ast.AST) -> Iterator[str]:
    """Yield the names that start processes, by imports and by attributes of modules."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                yield from filter(is_start, [f"{module}.{name}"])
            case ast.ImportFrom(module=str(module), names=names):
                yield from filter(
                    is_start, [f"{module}.{alias.name}" for alias in names]
                )


HARMLESS = {
    "subprocess.PIPE",
    "subprocess.DEVNULL",
    "subprocess.TimeoutExpired",
    "subprocess.Popen[bytes]",
    "concurrent.futures.process.BrokenProcessPool",
}


def test_only_the_doors_start_processes() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if name not in DOORS and (starts := set(started_in(tree)) - HARMLESS):
            found[name] = starts
    # A type of the pool that process_pool.py opens.
    assert found == {"flows/executors.py": {"concurrent.futures.ProcessPoolExecutor"}}


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess\nsubprocess.run(['x'])",
        "from subprocess import check_output",
        "import os\nos.system('x')",
        "import os\nos.execvp('x', [])",
        "import os\nos.posix_spawn('x', [], {})",
        "from os import popen",
        "import pty\npty.spawn('x')",
        "import asyncio\nasyncio.create_subprocess_exec('x')",
        "import multiprocessing\nmultiprocessing.Process()",
        "from multiprocessing import Pool",
        "import shutil\nshutil.which('x')",
    ],
)
def test_the_search_finds_every_way_to_start_a_process(source: str) -> None:
    assert list(started_in(ast.parse(source)))


# ---- program, folder, environment ----------------------------------------------------


def write_program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(os.name == "nt", reason="shell scripts")
@pytest.mark.parametrize("path", [".", "", ":", "bin", "./bin:"])
def test_programs_of_the_current_folder_are_not_run(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    write_program(tmp_path / "arm-none-eabi-gcc", "echo hostile")
    write_program(tmp_path / "bin" / "arm-none-eabi-gcc", "echo hostile")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    assert find_program("arm-none-eabi-gcc") is None
    with pytest.raises(ToolMissingError, match="arm-none-eabi-gcc is not installed"):
        run_program(["arm-none-eabi-gcc", "--version"], "the compiler", timeout_s=9)
    assert child_environment()["PATH"] == ""


@pytest.mark.skipif(os.name == "nt", reason="shell scripts")
def test_programs_are_run_by_absolute_paths_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = write_program(tmp_path / "tool", 'echo "$0" "$1"; pwd; ls -A')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), "/usr/bin", "/bin"]))
    _, printed = run_program(["tool", Path("model.elf")], "tool", timeout_s=9)
    assert printed.splitlines() == [
        f"{tool} {tmp_path / 'model.elf'}",
        str(empty_folder()),
    ]
    assert command_words(["./tool"]) == [str(tool)]


@pytest.mark.skipif(os.name == "nt", reason="shell scripts")
def test_output_without_end_ends_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firmwright.base.child_process.OUTPUT_BYTES_MAX", 1 << 16)
    tool = write_program(tmp_path / "tool", "yes")
    with pytest.raises(
        ToolFailedError, match=r"the tool printed more than 65,536 bytes"
    ) as caught:
        run_program([tool], "the tool", timeout_s=60)
    assert len(str(caught.value)) < 1000


def is_running(process: int) -> bool:
    """Return whether a process runs; one that has ended may remain in the table."""
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
@pytest.mark.parametrize("ending", ["sleep 999", "exit 0"])
def test_programs_end_with_all_that_they_have_started(
    ending: str, tmp_path: Path
) -> None:
    tool = write_program(
        tmp_path / "tool", f"sleep 999 & echo $! > {tmp_path}/child; {ending}"
    )
    with pytest.raises(ToolFailedError, match="the tool did not finish within 2 s"):
        run_program([tool], "the tool", timeout_s=2)
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 60
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(child)


def test_variables_that_load_code_or_change_a_tool_are_not_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dropped = (
        "PYTHONSTARTUP",
        "PYTHONHOME",
        "PYTHONINSPECT",
        "SCONSFLAGS",
        "GCC_EXEC_PREFIX",
        "COMPILER_PATH",
        "CPATH",
        "C_INCLUDE_PATH",
        "LIBRARY_PATH",
        "LD_PRELOAD",
        "LD_AUDIT",
        "BASH_ENV",
        "ENV",
        "PYOCD_PROJECT_DIR",
        "ESPTOOL_CFGFILE",
        "QEMU_MODULE_DIR",
        "UNKNOWN",
    )
    for name in dropped:
        monkeypatch.setenv(name, "/hostile")
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join(["", "/opt/lib", "lib"]))
    monkeypatch.setenv("FIRMWRIGHT_PASS_ENV", "LIBRARY_PATH")
    passed = child_environment({"LC_ALL": "C"})
    assert {*dropped} & passed.keys() == {"LIBRARY_PATH"}
    assert passed["LD_LIBRARY_PATH"] == "/opt/lib"
    assert passed["HOME"] == os.environ["HOME"]
    assert passed["LC_ALL"] == "C"


# ---- Python --------------------------------------------------------------------------


@pytest.fixture
def hostile_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder of modules that leave marks; PYTHONPATH has an empty part."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name in SHADOWED:
        (folder / f"{name}.py").write_text(
            HOSTILE.format(marker=str(tmp_path / "marker"))
        )
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", f"{PACKAGE.parent}{os.pathsep}")
    return folder


def test_children_in_python_import_nothing_from_the_current_folder(
    hostile_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(hostile_folder)
    command = python_command("firmwright.oracle.reference_worker", Path("none"))
    status, printed = run_program(
        command, "Python", timeout_s=60, folder=hostile_folder
    )
    assert "No such file" in printed
    assert status == 1
    assert not (hostile_folder.parent / "marker").exists()


def test_pools_import_nothing_from_the_current_folder(hostile_folder: Path) -> None:
    before = dict(os.environ)
    with open_process_pool(1) as pool:
        assert pool.submit(package_version).result() == package_version()
    assert dict(os.environ) == before
    assert not (hostile_folder.parent / "marker").exists()


@pytest.mark.parametrize("start", [["-P"], []])
def test_the_command_line_imports_nothing_from_the_current_folder(
    start: list[str], hostile_folder: Path
) -> None:
    """Without -P, Python itself already imports some modules before this package."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, *start, "-m", "firmwright", "inspect", str(DIGITS)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (hostile_folder.parent / "marker").exists()


def test_a_current_folder_that_the_user_names_stays_importable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "path", ["", str(tmp_path), "relative", str(PACKAGE.parent)]
    )
    monkeypatch.setenv("PYTHONPATH", "")
    assert trusted_import_path() == [str(PACKAGE.parent)]
    monkeypatch.setenv("PYTHONPATH", ".")
    assert trusted_import_path() == [str(tmp_path), str(PACKAGE.parent)]


@pytest.mark.deep
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_imports_or_runs_files_of_the_current_folder(
    verb: str, hostile_folder: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    shutil.copy(DIGITS, hostile_folder)
    command = [sys.executable, "-P", "-m", "firmwright", *VERBS[verb].split()]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not (hostile_folder.parent / "marker").exists()
