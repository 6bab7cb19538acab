"""A whole model on the LX106: outputs of the reference, and fewer instructions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.kernels.lx106 import run_model

INPUT_BYTES, OUTPUT_BYTES = 64, 10


@pytest.mark.host_c
@pytest.mark.qemu("xtensa")
def test_digits_has_the_outputs_of_the_host(
    fw, digits_path: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    data = rng.integers(-128, 128, INPUT_BYTES).astype(np.int8)
    files = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(files[0], image=data.reshape(1, 8, 8, 1))
    assert fw("run", digits_path, "--input", files[0], "--output", files[1]).status == 0
    (expected,) = np.load(files[1]).values()
    instructions = []
    for target in ("xtensa", "c"):
        project = tmp_path / target
        assert fw("compile", digits_path, "--target", target, "-o", project).status == 0
        output, count = run_model(project, tmp_path, data, OUTPUT_BYTES, "-O2")
        assert output.tolist() == expected.ravel().tolist()
        instructions.append(count)
    assert instructions[0] < 0.6 * instructions[1]
