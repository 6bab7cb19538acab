"""Proof bundles, and faults in them that the checker must reject.

The claims are those of docs/reference/proof-bundles.md.
"""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import firmwright as fw
from firmwright.base.errors import FirmwrightError, UsageError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.certify import check_bundle as checker
from firmwright.flows.certify.bundle import (
    CHECKER,
    CertifyRequest,
    ProofBundle,
    write_bundle,
)
from firmwright.flows.verify.verification import verification_samples
from firmwright.pipeline import Compilation
from tests.certify.planted_faults import (
    KINDS,
    BundleFiles,
    Plant,
    first_reason,
    planted,
)

IN_THE_GATE = 2
IN_ALL = 22
RUNS = 32
REACHED_MIN = 0.99
ROOT = Path(__file__).parents[2]
TABLE = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "proof_bundles_table.py")))


def certify(compiled: Compilation, folder: Path) -> ProofBundle:
    samples = verification_samples(compiled, RUNS, 0).samples
    return write_bundle(compiled, CertifyRequest(open_session, samples), folder)


@pytest.fixture(scope="module")
def compiled() -> Compilation:
    path = ROOT / "examples/01_digits/digits.tflite"
    return fw.compile(fw.load(path), board="mps2-an386", analysis_hints=True)


@pytest.fixture(scope="module")
def bundle(compiled: Compilation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certify(compiled, tmp_path_factory.mktemp("certify") / "bundle").folder


@pytest.mark.qemu
def test_the_checker_needs_only_the_bundle(bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    command = [sys.executable, "-I", copy / CHECKER.name, copy]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(checker.CLAIMS)
    assert all(line.startswith("holds: ") for line in lines)
    assert "3,392 weights are those of the model" in lines[2]
    assert "layers are those of the model" in lines[3]
    assert "6 layers requantize every reachable sum as defined" in lines[4]
    assert "not claimed" not in lines[2] + lines[4]
    (copy / "source" / "SConstruct").write_text("changed")
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "source/SConstruct was changed" in done.stdout


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("push\t{r4, r5, lr}", 12),
        ("vpush\t{d8-d15}", 64),
        ("stmdb\tsp!, {r4, r5, r6, lr}", 16),
        ("sub\tsp, #28", 28),
        ("sub.w\tsp, sp, #1024", 1024),
        ("str.w\tlr, [sp, #-4]!", 4),
        ("add\tsp,sp,-48", 48),
        ("addi\tsp,sp,-16", 16),
        ("add\tsp,sp,48", 0),
        ("ldr\tr0, [sp, #4]", 0),
    ],
)
def test_instructions_that_lower_the_stack(text: str, size_bytes: int) -> None:
    code = checker.Code.__new__(checker.Code)
    code.text = {0: text}
    assert code.lowering(0) == size_bytes


def test_the_checker_imports_nothing_of_ours() -> None:
    imports = [
        line.split()[1]
        for line in CHECKER.read_text().splitlines()
        if line.startswith(("import ", "from "))
    ]
    outside = {name.partition(".")[0] for name in imports} - set(
        sys.stdlib_module_names
    )
    assert outside == {"numpy"}


@pytest.mark.qemu
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_planted_faults_are_rejected(
    kind: Plant, bundle: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    original = BundleFiles.read(bundle)
    if kind.__name__ == "alarms" and "analysis" not in original.facts:
        pytest.skip("needs frama-c, not found on PATH")
    count = IN_ALL if request.config.getoption("--deep") else IN_THE_GATE
    for number, faulty in enumerate(planted(original, kind, count)):
        folder = tmp_path / str(number)
        faulty.write(folder)
        assert first_reason(folder), f"{kind.__name__} {number}"


@pytest.mark.qemu
def test_a_bundle_without_faults_is_accepted_when_written_again(
    bundle: Path, tmp_path: Path
) -> None:
    BundleFiles.read(bundle).write(tmp_path / "same")
    assert first_reason(tmp_path / "same") == ""


def test_a_model_that_the_checker_does_not_read_is_refused(tmp_path: Path) -> None:
    networks = Path(__file__).parents[1] / "onnx" / "networks"
    model = fw.load(sorted(networks.glob("*.onnx"))[0])
    compiled = fw.compile(model, board="mps2-an386")
    with pytest.raises(UsageError, match=r"reads \.tflite files only"):
        certify(compiled, tmp_path / "bundle")


@pytest.mark.qemu
def test_a_folder_with_files_is_refused(compiled: Compilation, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine")
    with pytest.raises(FirmwrightError, match="needs a new or empty folder"):
        certify(compiled, tmp_path)
    assert (tmp_path / "note").read_text() == "mine"


@pytest.mark.deep
@pytest.mark.models
@pytest.mark.qemu
@pytest.mark.parametrize("form", TABLE.FORMS)
@pytest.mark.parametrize("name", TABLE.MODELS)
def test_five_models(name: str, form: str, model_file: Any, tmp_path: Path) -> None:
    bundle = TABLE.certify(model_file(name), TABLE.FORMS[form], tmp_path / "bundle")
    assert len(bundle.claims) == len(checker.CLAIMS)
    assert bundle.alarms == 0
    assert bundle.reached >= REACHED_MIN * bundle.statements
