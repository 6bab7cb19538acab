"""The package of docs/reference/adding-an-accelerator.md, installed and used."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import FirmwrightError, PluginError, UsageError
from firmwright.cli.main import main
from firmwright.cli.verify import format_verdict
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model, partition, save_module
from firmwright.flows.samples.reference_outputs import run_interpreter
from firmwright.flows.verify.backend_conformance import run_backend_test
from firmwright.flows.verify.verification import verify
from firmwright.ir import tir
from firmwright.ir.pass_results import PassResults
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.interpreter import interpret
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.partitioning.target_resolution import target_of
from firmwright.schedules.registry import INTRINSICS
from firmwright.targets.backend_registry import BACKENDS

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "adding-an-accelerator.md"
ZEROS = {"image": np.zeros((1, 8, 8, 1), np.int8)}
Install = Callable[[str, str, dict[str, str]], None]
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
FUNCTION = "npu1_fully_connected_0"


def test_the_package_is_under_150_lines(page_files: dict[str, str]):
    assert sum(len(text.splitlines()) for text in page_files.values()) < 150


def test_init_writes_the_package_of_the_page(
    page_files: dict[str, str], tmp_path: Path
):
    # In a process of its own: other tests import a module of the same name.
    command = [sys.executable, "-m", "firmwright", "init", "--backend", "npu1"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    for name, text in page_files.items():
        assert (tmp_path / "firmwright-npu1" / name).read_text() == text


@pytest.mark.host_c
@pytest.mark.usefixtures("npu1")
def test_a_notebook_registers_the_class_of_the_page(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    cell, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(cell, {})
    monkeypatch.setattr(BACKENDS, "_known", {})
    monkeypatch.setattr(
        "firmwright.targets.backend_registry.entry_points", lambda group: []
    )
    for columns in (1024, 64):  # the cell that defines the class, executed again
        scope = {"__name__": "__main__", "columns": columns}
        exec(DEFINITION, scope)
        kept = partition(load_model(DIGITS), "npu1").module.functions
        assert (FUNCTION in kept) == (columns == 1024)


DEFINITION = """
import firmwright as fw
from npu1 import Npu1 as PageNpu1, TargetAttribute

@fw.register_backend
class Npu1(PageNpu1):
    attrs = {"columns": TargetAttribute(columns, "the longest vector it takes")}

assert isinstance(Npu1, type)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the build backend, and with this one's packages."""
    home = tmp_path_factory.mktemp("environment")
    command([sys.executable, "-m", "venv", "--without-pip", str(home)])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    lent = home / "lib" / version / "site-packages" / "lent.pth"
    lent.write_text("\n".join(filter(None, sys.path)))
    pip(home, "hatchling", "editables")
    return home


def command(words: Sequence[str], cwd: Path | None = None) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(home: Path, *words: str) -> None:
    python = str(home / "bin" / "python")
    command([sys.executable, "-m", "pip", "--python", python, "install", "-q", *words])


@pytest.mark.sampled(3)
@pytest.mark.host_c
@pytest.mark.parametrize("form", ["wheel", "sdist", "editable"])
def test_pip_installs_the_package_of_the_page(
    form: str, environment: Path, page_files: dict[str, str], tmp_path: Path
):
    python, folder = str(environment / "bin" / "python"), tmp_path / "firmwright-npu1"
    for name, text in page_files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    package = ["-e", str(folder)]
    if form != "editable":
        command([python, "-m", "hatchling", "build", "-t", form], cwd=folder)
        package = [str(file) for file in (folder / "dist").iterdir()]
    pip(environment, "--force-reinstall", "--no-deps", "--no-build-isolation", *package)
    names = ("npu1.h", "npu1.c")
    if form == "wheel":
        command(
            [python, "-m", "firmwright", "compile", str(DIGITS), *OPTIONS], cwd=tmp_path
        )
        for name in names:
            copied = tmp_path / "out" / "backend" / "npu1" / name
            assert copied.read_text() == page_files[f"npu1/{name}"]
    else:
        command([python, "-c", "import npu1; npu1.Npu1().c_files(None, frozenset())"])


OPTIONS = ("--target", "npu1", "--planner", "greedy_by_size", "-o", "out")


@pytest.mark.usefixtures("npu1")
def test_installed_backend_has_no_effect_until_it_is_requested():
    before = compile_for(load_model(DIGITS), target="host").tree.files
    with_backend = compile_for(load_model(DIGITS), target="npu1").tree.files
    assert compile_for(load_model(DIGITS)).tree.files == before
    assert set(with_backend) - set(before) == {
        "backend/npu1/npu1.c",
        "backend/npu1/npu1.h",
    }
    assert '#include "npu1.h"' in with_backend["model/digits.c"]


@pytest.mark.usefixtures("npu1")
def test_partitioned_function_has_target_symbol_and_composite():
    module = partition(load_model(DIGITS), "npu1 -columns=128").module
    assert module.functions[FUNCTION].attrs == {
        "target": "npu1",
        "symbol": "digits_npu1_fully_connected_0",
        "composite": "npu1.dense",
    }
    assert parse_module(print_module(module)) == module
    assert list(
        partition(load_model(DIGITS), "npu1 -columns=127").module.functions
    ) == ["main"]


@pytest.mark.usefixtures("npu1")
def test_a_partitioned_module_compiles_to_the_same_bytes_elsewhere(tmp_path: Path):
    module = partition(load_model(DIGITS), "npu1").module
    (tmp_path / "elsewhere").mkdir()
    save_module(module, tmp_path / "elsewhere" / "digits.fwir")
    loaded = load_model(tmp_path / "elsewhere" / "digits.fwir")
    assert loaded.source is None
    compiled = compile_for(loaded, board="mps2-an386")
    straight = compile_for(load_model(DIGITS), board="mps2-an386", target="npu1")
    assert compiled.tree.files == straight.tree.files
    edited = replace(loaded.module, results=PassResults())
    with pytest.raises(
        UsageError, match=r"@npu1_\w+ has the target npu1, which is not among"
    ) as error:
        compile_for(edited, target="host")
    assert "omit --target" in str(error.value)


@pytest.mark.usefixtures("npu1")
def test_kernel_equals_the_operator_in_numpy():
    compiled = compile_for(load_model(DIGITS), target="npu1")
    module = compiled.module
    kernel = module.functions[FUNCTION]
    assert isinstance(kernel, tir.PrimFunc)
    assert target_of(kernel) == "npu1"
    assert kernel.attrs["schedule"] == "npu1"
    x = np.random.Generator(np.random.PCG64(3)).integers(-128, 128, 128).astype(np.int8)
    got, expected = (np.zeros((1, 10), np.int8) for _ in range(2))
    table = collect_intrinsics(module, INTRINSICS)
    interpret(kernel, {"x": x, "y": got}, table, constants=module.constants)
    plain = compile_for(load_model(DIGITS)).module
    own = plain.functions["fully_connected_8"]
    assert isinstance(own, tir.PrimFunc)
    names = {
        param.name: value
        for param, value in zip(own.params, (x, expected), strict=False)
    }
    interpret(own, names, INTRINSICS, constants=plain.constants)
    assert np.array_equal(got, expected)


@pytest.mark.qemu
@pytest.mark.usefixtures("npu1")
def test_firmware_with_it_verifies_in_qemu():
    compiled = compile_for(load_model(DIGITS), board="mps2-an386", target="npu1")
    result = verify(compiled, samples=3)
    assert result.mismatches == 0
    assert format_verdict(result).endswith("Operators: 8 on cpu, 1 on npu1.")


@pytest.mark.usefixtures("npu1")
def test_backend_is_listed_and_its_attributes_are_checked(
    capfd: pytest.CaptureFixture[str],
):
    with pytest.raises(
        UsageError, match=r"target npu1 has no attribute 'colums' .*Try: columns"
    ):
        partition(load_model(DIGITS), "npu1 -colums=3")
    assert main(["backends", "--json"]) == 0
    listed = {
        row["name"]: row for row in json.loads(capfd.readouterr().out)["backends"]
    }
    assert {"cmsis-nn", "npu1", "vanilla"} <= set(listed)
    result = listed["npu1"]
    assert result["patterns"] == [
        {"name": "npu1.dense", "pattern": "fully_connected(any, constant, constant?)"}
    ]
    assert main(["backends", "npu1"]) == 0
    assert "npu1.dense" in (text := capfd.readouterr().out)
    assert "none, calls run on the core" in text
    assert main(["backends", "npu2"]) == 2


@pytest.mark.host_c
@pytest.mark.usefixtures("npu1")
def test_every_pattern_runs_over_the_cases_of_its_operators(
    capfd: pytest.CaptureFixture[str],
):
    assert main(["backend", "test", "npu1", "--samples", "3", "--json"]) == 0
    said = json.loads(capfd.readouterr().out)
    (result,) = said["patterns"]
    assert result["differing"] == []
    is_low = 2 * len(result["taken"]) < result["cases"]
    assert [f"of the {result['cases']} cases" in text for text in said["warnings"]] == (
        [True] if is_low else []
    )
    assert "fully_connected long_int8" in result["taken"]
    assert "fully_connected long_float32" in result["rejected"]
    assert len(result["taken"]) + len(result["rejected"]) == result["cases"]


@pytest.mark.host_c
def test_a_write_past_an_operand_and_another_numpy_meaning_are_found(
    page_files: dict[str, str], install: Install, capfd: pytest.CaptureFixture[str]
):
    code = page_files["npu1/npu1.c"].replace("o < outputs", "o <= outputs")
    text = page_files["npu1/__init__.py"].replace(
        "scaled + y_zero,", "scaled - y_zero,"
    )
    header = page_files["npu1/npu1.h"]
    install(
        "npu1", "npu1:Npu1", {"__init__.py": text, "npu1.c": code, "npu1.h": header}
    )
    assert main(["backend", "test", "npu1", "--json"]) == 1
    data = json.loads(capfd.readouterr().out)
    (row,) = data["patterns"]
    tested = len(row["taken"]) + len(row["variants"])
    assert data["error"]["what"] == f"{tested} cases differ."
    found = {d["check"]: d for d in row["differing"] if d["case"].endswith("long_int8")}
    assert set(found) >= {"guard byte", "numpy meaning"}
    guard, value = found["guard byte"], found["numpy meaning"]
    assert (guard["tensor"], guard["index"]) == ("n0_y0", [7])
    assert (value["tensor"], value["index"]) == ("0.y0", [0, 0])
    accesses = [d for d in row["differing"] if d["check"] == "operand access"]
    assert {access["place"].partition(":")[0] for access in accesses} == {
        "npu1_multiply, npu1.c"
    }
    assert value["actual"] != value["expected"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ("[0, 1, 2]", "npu1_multiply: y: the numpy meaning returns 3 elements of 10."),
        (
            "missing",
            r"in multiply: the numpy meaning of npu1_multiply raised NameError",
        ),
    ],
)
def test_a_defect_of_a_numpy_meaning_is_the_extensions(
    result: str, problem: str, page_files: dict[str, str], install: Install
):
    text = re.sub(r"np\.clip\(.*\)", result, page_files["npu1/__init__.py"])
    install("npu1", "npu1:Npu1", {"npu1.c": "", "npu1.h": "", "__init__.py": text})
    with pytest.raises(PluginError, match=problem):
        run_interpreter(compile_for(load_model(DIGITS), target="npu1").module, [ZEROS])


@pytest.mark.sampled(3)
@pytest.mark.host_c
@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (
            '"npu1.h",',
            "add the file that defines npu1_multiply to `c_files` of the backend npu1",
        ),
        (
            '"npu1.c",',
            "add the file npu1.h to `c_files` of the backend npu1: now npu1.c.",
        ),
        (
            '"npu2.c",',
            "add it to the package's data (hatchling: packages, setuptools: package-data)",
        ),
    ],
)
def test_a_missing_c_file_is_named(
    names: str, hint: str, page_files: dict[str, str], install: Install
):
    text = page_files["npu1/__init__.py"].replace('"npu1.h", "npu1.c"', names)
    files = {n: page_files[f"npu1/{n}"] for n in ("npu1.c", "npu1.h")}
    install("npu1", "npu1:Npu1", {**files, "__init__.py": text})
    with pytest.raises(FirmwrightError) as error:
        build_image(compile_for(load_model(DIGITS), target="npu1"))
    assert hint in error.value.hint


@pytest.mark.usefixtures("npu1")
def test_a_pattern_that_matches_nothing_is_an_error():
    with pytest.raises(UsageError) as error:
        run_backend_test("npu1 -columns=0")
    assert re.fullmatch(
        r"backend npu1: the pattern npu1\.dense matches none of the \d+ cases of fully_connected\. "
        r"Try: relax the pattern or its predicate, or change the target's attributes\.",
        str(error.value),
    )
