"""libFuzzer on the C side of link and loader, with ASan and UBSan: some thousand inputs, or many.

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
LOADERS_BOARD = """
#include <stdint.h>
extern uint8_t *fuzz_flash;
extern struct fwr_handoff fuzz_handoff;
#define FWR_BOARD_NAME "fuzz"
#define FWR_CLOCK_HZ 1000000u
#define FWR_SLOT_COUNT 3u
#define FWR_SLOT_BASE 0x1000u
#define FWR_SLOT_BYTES 0x400u
#define FWR_SLOT_PAGE 0x100u
#define FWR_HANDOFF 0x2000u
#define FWR_HANDOFF_AT (&fuzz_handoff)
#define FWR_FLASH_PLACE(address) (fuzz_flash + ((address) - FWR_SLOT_BASE))
"""


def has_fuzzer() -> bool:
    """Whether there is a clang, and the library that Debian has in a package of its own."""
    if shutil.which("clang") is None:
        return False
    words = ["clang", "-fsanitize=fuzzer", "-x", "c", "-", "-o", os.devnull]
    source = b"int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n);\n"
    source += b"int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return 0; }\n"
    return subprocess.run(words, input=source, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(("name", "runs"), [("fuzz_link", 20_000), ("fuzz_loader", 5_000)])
def test_no_input_makes_the_firmware_leave_its_memory(
    name: str, runs: int, tmp_path: Path, deep: bool
) -> None:
    if not has_fuzzer():
        pytest.skip("needs clang with its libFuzzer: clang and libclang-rt-dev on Debian")
    program = tmp_path / name
    source = ROOT / f"tests/runtime/{name}.c"
    (tmp_path / "fwr_board.h").write_text(LOADERS_BOARD)
    folders = (ROOT / "runtime_c", ROOT / "runtime_c/port", ROOT / "runtime_c/bootloader", tmp_path)
    flags = ["-std=c99", "-O1", "-g", SANITIZERS, "-fno-sanitize-recover=all", "-DFWR_PROFILE=1"]
    places = [f"-I{folder}" for folder in folders]
    subprocess.run(["clang", *flags, *places, str(source), "-o", str(program)], check=True)
    seconds = os.environ.get("FIRMWRIGHT_FUZZ_SECONDS", "600")
    most = [f"-max_total_time={seconds}"] if deep else [f"-runs={runs}"]
    found = subprocess.run(
        [str(program), "-seed=1", "-max_len=2048", "-print_final_stats=1", *most],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-4000:]
