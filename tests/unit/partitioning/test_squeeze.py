"""A backend that generates C and packs weights, and modules that include its output."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from firmwright.base.errors import DeviceError, UsageError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model, partition, save_module
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.access_checking import build_checked_library
from firmwright.flows.verify.verification import verify
from firmwright.ir.printer import parse_module, print_module
from firmwright.pipeline import bundle
from firmwright.targets.backend_registry import BACKENDS

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
OTHER = ROOT / "examples" / "02_keyword" / "keyword.tflite"
MODELS = Path(os.environ.get("FIRMWRIGHT_MODELS", ROOT.parent / "shared" / "models"))
KEYWORD = MODELS / "kws_ref_model.tflite"


@pytest.mark.qemu
@pytest.mark.usefixtures("squeeze")
def test_it_verifies_in_qemu_with_fewer_bytes_of_weights():
    squeezed = compile_for(load_model(DIGITS), board="mps2-an386", target="squeeze, c")
    assert verify(squeezed, samples=3).mismatches == 0
    kernels = [k for k in squeezed.module.functions if k.startswith("squeeze_")]
    assert len(kernels) == 3
    written = [f for f in squeezed.tree.files if f.startswith("backend/squeeze/")]
    assert len(written) == 3
    packed = [c for n, c in squeezed.module.constants.items() if n.endswith(".packed")]
    chosen = ("conv_2d_2/weights", "conv_2d_3/weights", "fully_connected_1/weights")
    weights = [load_model(DIGITS).module.constants[name] for name in chosen]
    assert sum(c.size_bytes for c in packed) < sum(c.size_bytes for c in weights)


@pytest.mark.usefixtures("squeeze")
def test_generated_c_is_part_of_the_module_text():
    def after(module, options_target):
        seen = {}
        compile_for(
            module, target=options_target, watch=lambda name, m: seen.update({name: m})
        )
        return seen

    stages = after(load_model(DIGITS), "squeeze")
    lowered = stages["relay-to-runtime"]
    assert len(lowered.files) == 3
    assert parse_module(print_module(lowered)) == lowered
    again = compile_for(parse_module(print_module(lowered)))
    assert (
        again.tree.files == compile_for(load_model(DIGITS), target="squeeze").tree.files
    )


TARGETS = ("npu1", "squeeze, c", "npu1 -columns=64, squeeze")


@pytest.mark.deep
@pytest.mark.parametrize(
    "model",
    [
        DIGITS,
        OTHER,
        pytest.param(KEYWORD, marks=(pytest.mark.models, pytest.mark.deep)),
    ],
)
@pytest.mark.usefixtures("npu1", "squeeze")
def test_three_partitionings_compile_elsewhere_to_the_same_bytes(
    model: Path, tmp_path: Path
):
    trees = []
    for index, targets in enumerate(TARGETS):
        folder = tmp_path / f"elsewhere{index}"
        folder.mkdir()
        save_module(partition(load_model(model), targets).module, folder / "it.fwir")
        compiled = compile_for(
            load_model(folder / "it.fwir"), board="mps2-an386", planner="greedy_by_size"
        )
        straight = compile_for(
            load_model(model),
            board="mps2-an386",
            target=targets,
            planner="greedy_by_size",
        )
        assert compiled.tree.files == straight.tree.files
        trees.append(compiled.tree.files)
    assert trees[0] != trees[1] != trees[2] != trees[0]


@pytest.mark.usefixtures("squeeze")
def test_models_of_one_firmware_share_a_backends_folder():
    models = [load_model(DIGITS, name=name) for name in ("one", "two")]
    parts = [compile_for(m, target="squeeze", planner="greedy_by_size") for m in models]
    files = bundle(parts).tree.files
    for name in ("one", "two"):
        written = f"backend/squeeze/{name}_squeeze_fully_connected_0_run.c"
        assert f"void {name}_squeeze_fully_connected_0_run(" in str(files[written])
    with pytest.raises(UsageError, match="memory accesses cannot be checked in C that"):
        build_checked_library(parts[0], Path("unused"))


def compiled_elsewhere(source: bytes, archive: str) -> bytes:
    """Compile a region as a vendor's compiler does: to an object or an archive."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "it.c").write_bytes(source)
        flags = [
            "-mcpu=cortex-m4",
            "-mthumb",
            "-mfloat-abi=hard",
            "-mfpu=fpv4-sp-d16",
            "-O2",
        ]
        words = [
            "arm-none-eabi-gcc",
            *flags,
            "-ffreestanding",
            "-c",
            "it.c",
            "-o",
            "it.o",
        ]
        subprocess.run(words, cwd=folder, check=True)
        subprocess.run(
            ["arm-none-eabi-ar", "rcsD", "it.a", "it.o"], cwd=folder, check=True
        )
        return (folder / f"it.{archive}").read_bytes()


@pytest.mark.sampled(2)
@pytest.mark.qemu
@pytest.mark.parametrize("kind", ["o", "a"])
@pytest.mark.usefixtures("squeeze")
def test_a_backend_may_bring_objects_instead_of_sources(
    kind: str, monkeypatch: pytest.MonkeyPatch
):
    squeeze = type(BACKENDS.all()["squeeze"])
    generate = squeeze.generate

    def as_objects(self, kernel):
        generate(self, kernel)
        result = {
            name.removesuffix("c") + kind: data for name, data in kernel.files.items()
        }
        kernel.files = {
            name: compiled_elsewhere(data, kind) for name, data in result.items()
        }

    monkeypatch.setattr(squeeze, "generate", as_objects)
    compiled = compile_for(load_model(DIGITS), board="mps2-an386", target="squeeze")
    written = [f for f in compiled.tree.files if f.startswith("backend/squeeze/")]
    assert len(written) == 3
    assert all(name.endswith(f".{kind}") for name in written)
    assert verify(compiled, samples=1).mismatches == 0


@pytest.mark.host_c
@pytest.mark.usefixtures("npu1")
def test_run_checks_the_data_version_of_a_backend(monkeypatch: pytest.MonkeyPatch):
    npu1 = type(BACKENDS.all()["npu1"])
    check = b'#include "npu1.h"\nint32_t npu1_reads(uint32_t version) { return version != 3; }\n'
    files = npu1.c_files

    def with_check(self, target, symbols):
        assert "npu1_reads" in symbols
        return {**files(self, target, symbols), "npu1_check.c": check}

    monkeypatch.setattr(npu1, "c_files", with_check)
    monkeypatch.setattr(npu1, "check", "npu1_reads")
    monkeypatch.setattr(npu1, "data_version", 3)
    right = compile_for(load_model(DIGITS), target="npu1")
    (sample,) = generate_samples(right.module.io.inputs, 1).samples
    with open_session(right, in_process=True) as session:
        session.run(sample)
    monkeypatch.setattr(npu1, "data_version", 2)
    wrong = compile_for(load_model(DIGITS), target="npu1")
    assert "#define DIGITS_E_BACKEND (-7)" in str(wrong.tree.files["model/digits.h"])
    assert "npu1_reads(2u) != 0" in str(wrong.tree.files["model/digits.c"])
    with (
        open_session(wrong, in_process=True) as session,
        pytest.raises(DeviceError, match=r"the model's run returned -7"),
    ):
        session.run(sample)
