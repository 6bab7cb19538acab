"""Hardened C on the host: equal results, and flipped bits that end a run."""

import ctypes
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from firmwright.artifacts import SourceTree
from firmwright.base.dtypes import Array
from firmwright.base.errors import UsageError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.certify.bundle import CertifyRequest, write_bundle
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.reference_outputs import run_numpy_reference
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.pipeline import Compilation

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
E_CORRUPT = -13
FLIPS = 300
"""Flips in memory at each operator; with --deep, fifty times as many."""


@dataclass(frozen=True)
class Corruptible:
    """The hardened C of digits, whose constants and workspace a test can change."""

    compiled: Compilation
    library: ctypes.CDLL
    image: Array
    expected: Array
    constants: dict[str, int]

    def bytes_of(self, constant: str) -> ctypes.Array[ctypes.c_uint8]:
        kind = ctypes.c_uint8 * self.constants[constant]
        return kind.in_dll(self.library, constant)

    def run(
        self, operator: int = -1, phase: int = 0, byte: int = 0, mask: int = 0
    ) -> tuple[int, bytes]:
        """Return the status and the output of a run with a flip at a probe."""
        digit = ctypes.create_string_buffer(10)
        image = self.image.tobytes()
        flip = operator, phase, byte, mask
        status = self.library.run_with_flip(image, digit, *flip)
        return status, digit.raw


@pytest.fixture(scope="module")
def corruptible(tmp_path_factory: pytest.TempPathFactory) -> Corruptible:
    folder = tmp_path_factory.mktemp("hardened")
    compiled = compile_for(load_model(DIGITS), "host", harden=True)
    sample = generate_samples(compiled.module.io.inputs, 1).samples[0]
    outputs = run_numpy_reference(compiled.imported, [sample]).outputs[0]
    for name, text in compiled.tree.files.items():
        if name.startswith("model/") and isinstance(text, str):
            (folder / Path(name).name).write_text(text, encoding="utf-8")
    library = folder / "model.so"
    compile_library(folder, library)
    sizes = _constant_sizes(compiled.tree)
    return Corruptible(
        compiled, ctypes.CDLL(str(library)), sample["image"], outputs["digit"], sizes
    )


def compile_library(folder: Path, library: Path) -> None:
    """Compile the C in `folder`, with constants that are writable and have symbols."""
    source = Path(__file__).parent / "corruptible.c"
    options = ["-O2", "-shared", "-fPIC", "-Dconst=", "-Dstatic=", f"-I{folder}", "-w"]
    subprocess.run(["cc", *options, source, "-o", library], check=True, timeout=120)


def _constant_sizes(tree: SourceTree) -> dict[str, int]:
    """Return the bytes of each array of constants, by its name in C."""
    header = tree.files["model/digits_weights.h"]
    assert isinstance(header, str)
    sizes: dict[str, int] = {}
    for bits, name, count in re.findall(r"u?int(\d+)_t (\w+)\[(\d+)\]", header):
        sizes[name] = int(bits) // 8 * int(count)
    return sizes


@pytest.mark.host_c
def test_hardened_code_computes_the_same(corruptible: Corruptible) -> None:
    assert corruptible.run() == (0, corruptible.expected.tobytes())


@pytest.mark.host_c
def test_every_flipped_bit_of_a_constant_ends_the_run(
    corruptible: Corruptible, deep: bool
) -> None:
    rng = np.random.default_rng(1)
    assert sum(corruptible.constants.values()) > 4000
    for name, size_bytes in corruptible.constants.items():
        memory = corruptible.bytes_of(name)
        for at in range(size_bytes):
            bits = range(8) if deep else [int(rng.integers(8))]
            for bit in bits:
                memory[at] ^= 1 << bit
                status, _ = corruptible.run()
                memory[at] ^= 1 << bit
                assert status == E_CORRUPT, (name, at, bit)


@pytest.mark.host_c
def test_no_flip_between_operators_changes_an_output_silently(
    corruptible: Corruptible, deep: bool
) -> None:
    rng = np.random.default_rng(2)
    expected = corruptible.expected.tobytes()
    workspace = corruptible.compiled.summary.workspace_bytes
    operators = [row.index for row in corruptible.compiled.summary.operators]
    detected = 0
    for operator in operators:
        for phase in (0, 1):
            for byte in rng.integers(workspace, size=FLIPS * (50 if deep else 1)):
                mask = 1 << int(rng.integers(8))
                status, digit = corruptible.run(operator, phase, int(byte), mask)
                assert status == E_CORRUPT or (status, digit) == (0, expected)
                detected += status == E_CORRUPT
    assert detected > FLIPS


@pytest.mark.host_c
def test_an_operator_that_is_left_out_ends_the_run(
    corruptible: Corruptible, tmp_path: Path
) -> None:
    for name, text in corruptible.compiled.tree.files.items():
        if name.startswith("model/") and isinstance(text, str):
            left_out = re.sub(r"\n    digits_max_pool2d_3\(.*?;", "", text, flags=re.S)
            (tmp_path / Path(name).name).write_text(left_out, encoding="utf-8")
            assert (left_out != text) == name.endswith("digits.c")
    compile_library(tmp_path, tmp_path / "model.so")
    library = ctypes.CDLL(str(tmp_path / "model.so"))
    assert replace(corruptible, library=library).run()[0] == E_CORRUPT


def test_the_plan_has_an_operator_for_each_time(corruptible: Corruptible) -> None:
    plan = corruptible.compiled.summary.plan
    assert plan is not None
    ends = [end for buffer in plan.buffers for _, end in buffer.live]
    assert len(plan.operator_by_time) == max(ends)


def test_options_without_checks_are_refused(digits_path: Path) -> None:
    model = load_model(digits_path)
    with pytest.raises(UsageError, match="--harden and --stream-input-rows do not go"):
        compile_for(model, harden=True, stream_input_rows=True)


def test_a_proof_bundle_is_refused(corruptible: Corruptible, tmp_path: Path) -> None:
    request = CertifyRequest(open_with=open_session, samples=[])
    compiled = replace(corruptible.compiled, source=DIGITS.read_bytes())
    with pytest.raises(UsageError, match="does not read hardened firmware"):
        write_bundle(compiled, request, tmp_path / "bundle")


@pytest.mark.deep
@pytest.mark.host_c
@pytest.mark.parametrize(
    "options",
    [
        {"optimize": "ram"},
        {"link_params": False},
        {"io_buffers": "caller"},
        {"emit_step_api": True, "preserve_input": True},
        pytest.param(
            {"board": "qemu-riscv32-virt", "optimize": "speed"},
            marks=pytest.mark.qemu("riscv32"),
        ),
        pytest.param({"board": "mps3-an547"}, marks=pytest.mark.qemu),
    ],
)
def test_options_go_with_hardening(
    options: dict[str, object], digits_path: Path
) -> None:
    compiled = compile_for(load_model(digits_path), harden=True, **options)
    samples = generate_samples(compiled.module.io.inputs, 3).samples
    with open_session(compiled) as session:
        outputs = session.run_all(samples)
    expected = run_numpy_reference(compiled.imported, samples).outputs
    for ours, theirs in zip(outputs, expected, strict=True):
        assert np.array_equal(ours["digit"], theirs["digit"])
