"""libFuzzer on the C side of the link, with ASan and UBSan: some thousand inputs, or many.

FIRMWRIGHT_FUZZ_SECONDS sets how long a run with --deep goes on (600). A finding is a file that the
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
SANITIZERS = "-fsanitize=fuzzer,address,undefined"


def has_fuzzer() -> bool:
    """Whether there is a clang, and the library that Debian has in a package of its own."""
    if shutil.which("clang") is None:
        return False
    words = ["clang", "-fsanitize=fuzzer", "-x", "c", "-", "-o", os.devnull]
    source = b"int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n);\n"
    source += b"int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return 0; }\n"
    return subprocess.run(words, input=source, capture_output=True, check=False).returncode == 0


def test_no_input_makes_the_firmware_leave_its_memory(tmp_path: Path, deep: bool) -> None:
    if not has_fuzzer():
        pytest.skip("needs clang with its libFuzzer: clang and libclang-rt-dev on Debian")
    program = tmp_path / "fuzz_link"
    source = ROOT / "tests/runtime/fuzz_link.c"
    folders = (ROOT / "runtime_c", ROOT / "runtime_c/port")
    flags = ["-std=c99", "-O1", "-g", SANITIZERS, "-fno-sanitize-recover=all", "-DFWR_PROFILE=1"]
    places = [f"-I{folder}" for folder in folders]
    subprocess.run(["clang", *flags, *places, str(source), "-o", str(program)], check=True)
    seconds = os.environ.get("FIRMWRIGHT_FUZZ_SECONDS", "600")
    most = [f"-max_total_time={seconds}"] if deep else ["-runs=20000"]
    found = subprocess.run(
        [str(program), "-seed=1", "-max_len=2048", "-print_final_stats=1", *most],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-4000:]
