"""Proof bundles, and faults in them that the checker must reject.

The claims are those of docs/reference/proof-bundles.md.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import firmwright as fw
from firmwright.artifacts import Image
from firmwright.base.errors import FirmwrightError, UsageError
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import ModelSession, open_session
from firmwright.flows.certify import check_bundle as checker
from firmwright.flows.certify.bundle import (
    CHECKER,
    CertifyRequest,
    ProofBundle,
    record_runs,
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
IN_ALL = 20
WEIGHT_FAULTS = 60
RUNS = 32
MODELS = ("ad", "kws", "ww", "vww", "ic")


def certify(compiled: Compilation, folder: Path) -> ProofBundle:
    samples = verification_samples(compiled, RUNS, 0).samples
    return write_bundle(compiled, CertifyRequest(open_session, samples), folder)


@pytest.fixture(scope="module")
def compiled() -> Compilation:
    path = Path(__file__).parents[2] / "examples/01_digits/digits.tflite"
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
    assert "biases of 5 layers are those of the model" in lines[2]
    assert "6 layers requantize every reachable sum as defined" in lines[3]
    assert "not claimed" not in lines[3]
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


class _WrongConstants:
    """Opens sessions with images in which a bit of a constant of a layer differs."""

    def __init__(self, folder: Path, draw: Random) -> None:
        self._folder = folder
        self._draw = draw
        self._place: tuple[str, int, int] | None = None

    def __call__(self, compiled: Compilation, /, **options: Any) -> ModelSession:
        variant = options["variant"]
        image = build_image(compiled, variant)
        return open_session(compiled, **options, image=self._damaged(image, variant))

    def _damaged(self, image: Image, variant: str) -> Image:
        data = bytearray(image.elf.read_bytes())
        elf = checker.Firmware(bytes(data))
        if self._place is None:
            names = [n for n in elf.symbols if n.endswith(("_weights", "_bias"))]
            name = self._draw.choice(sorted(names))
            at = self._draw.randrange(elf.symbols[name][1])
            self._place = name, at, 1 << self._draw.randrange(8)
        name, at, mask = self._place
        address, size = elf.symbols[name]
        data[data.index(elf.read(address, size)) + at] ^= mask
        damaged = self._folder / f"{variant}.elf"
        damaged.write_bytes(data)
        return replace(image, elf=damaged)


@pytest.mark.qemu
@pytest.mark.parametrize(
    "number",
    [0, *(pytest.param(n, marks=pytest.mark.deep) for n in range(1, WEIGHT_FAULTS))],
)
def test_wrong_constants_are_rejected(
    number: int, compiled: Compilation, bundle: Path, tmp_path: Path
) -> None:
    """A firmware with another weight or bias than the model, with its own runs."""
    original = BundleFiles.read(bundle)
    graph = checker.Graph(original.files["model.tflite"])
    samples = verification_samples(compiled, RUNS, 0).samples
    opener = _WrongConstants(tmp_path, Random(number))
    runs = record_runs(compiled, graph, samples, opener)
    runs[0]["instructions"] = original.facts["vectors"][0]["instructions"]
    original.facts["vectors"] = runs
    original.files["image/firmware.elf"] = (tmp_path / "release.elf").read_bytes()
    original.write(tmp_path / "bundle")
    assert first_reason(tmp_path / "bundle")


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
@pytest.mark.parametrize("inline_asm", [True, False], ids=["assembly", "portable"])
@pytest.mark.parametrize("board", ["mps2-an386", "qemu-riscv32-virt"])
@pytest.mark.parametrize("name", MODELS)
def test_five_models(
    name: str, board: str, inline_asm: bool, model_file: Any, tmp_path: Path
) -> None:
    compiled = fw.compile(
        fw.load(model_file(name)),
        board=board,
        analysis_hints=True,
        inline_asm=inline_asm,
    )
    bundle = certify(compiled, tmp_path / "bundle")
    assert len(bundle.claims) == len(checker.CLAIMS)
    print(name, board, inline_asm, bundle.size_bytes, *bundle.claims, sep="\n")
