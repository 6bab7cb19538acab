"""libFuzzer on the link's C side with ASan and UBSan: a few thousand inputs, or with --deep many.

FIRMWRIGHT_FUZZ_SECONDS sets how long the deep run goes on (600). A finding is a file that the
message names; the program takes it as an argument and fails again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.host_c

ROOT = Path(__file__).parents[2]
RUNS = 20_000
SANITIZERS = "-fsanitize=fuzzer,address,undefined"


def test_no_input_makes_the_firmware_leave_its_memory(tmp_path: Path, deep: bool) -> None:
    if shutil.which("clang") is None:
        pytest.skip("needs clang for libFuzzer")
    program = tmp_path / "fuzz_link"
    source = ROOT / "tests/runtime/fuzz_link.c"
    flags = ["-std=c99", "-O1", "-g", SANITIZERS, "-fno-sanitize-recover=all", "-DFWR_PROFILE=1"]
    subprocess.run(
        ["clang", *flags, f"-I{ROOT / 'runtime_c'}", str(source), "-o", str(program)], check=True
    )
    seconds = os.environ.get("FIRMWRIGHT_FUZZ_SECONDS", "600")
    most = [f"-max_total_time={seconds}"] if deep else [f"-runs={RUNS}"]
    found = subprocess.run(
        [str(program), "-seed=1", "-max_len=2048", "-print_final_stats=1", *most],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-4000:]
