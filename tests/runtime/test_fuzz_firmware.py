"""Structure-aware fuzz tests of what a device receives, with ASan and UBSan.

Each program is a `fuzz_*.c`: valid frames, commands or command streams around hostile
values. The gate runs random inputs. With --deep, libFuzzer looks for inputs that reach
new code, for about ten minutes a subject; FIRMWRIGHT_FUZZ_CASES sets another number of
cases, FIRMWRIGHT_FUZZ_SEED another seed. A finding is a file that the message names;
the program takes it as an argument and fails again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.host_c

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
RUNTIME = ROOT / "runtime_c"
EXTENSIONS = ROOT / "toolchain" / "firmwright" / "extensions"
ETHOS_U, MLPERF = EXTENSIONS / "ethos_u" / "c", EXTENSIONS / "mlperf" / "c"
INCLUDES = (TESTS / "runtime", RUNTIME, RUNTIME / "port", ETHOS_U, MLPERF)
SEED = os.environ.get("FIRMWRIGHT_FUZZ_SEED", "1")
SANITIZERS = "address,undefined,float-cast-overflow"
INPUT_BYTES = "1024"


@dataclass(frozen=True, slots=True)
class Subject:
    """A fuzz test (a C file below tests/) with its build options and case counts."""

    source: str
    defines: tuple[str, ...] = ()
    others: str = ""
    cases: int = 3_000
    cases_deep: int = 130_000


SUBJECTS = {
    "server of a profile image": Subject("runtime/fuzz_link", ("FWR_PROFILE=1",)),
    "server with small frames": Subject(
        "runtime/fuzz_link", ("FWR_PROFILE=1", "FWR_LINK_PAYLOAD_MAX=64")
    ),
    "server with all options": Subject(
        "runtime/fuzz_link", ("FWR_PRIVATE_IO=1", "FWR_WATCHDOG=1", "FWR_GUARDS=1")
    ),
    "commands of MLPerf Tiny": Subject(
        "extensions/mlperf/fuzz_mlperf", cases_deep=1_000_000
    ),
    "command streams of Ethos-U": Subject(
        "extensions/ethos_u/fuzz_ethos_u",
        others="ethos_u/c/*.c",
        cases=10_000,
        cases_deep=2_000_000,
    ),
}


def has_fuzzer() -> bool:
    """Return whether clang and its fuzzer library, a separate Debian package, exist."""
    if shutil.which("clang") is None:
        return False
    words = ["clang", "-fsanitize=fuzzer", "-x", "c", "-", "-o", os.devnull]
    source = b"int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n);\n"
    source += b"int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return 0; }\n"
    return (
        subprocess.run(words, input=source, capture_output=True, check=False).returncode
        == 0
    )


def build(subject: Subject, folder: Path, *, with_fuzzer: bool) -> Path:
    """Compile a fuzz test with libFuzzer, or with `fuzz_main.c` and any compiler."""
    source = TESTS / f"{subject.source}.c"
    program = folder / source.stem
    sources = [source, *(EXTENSIONS.glob(subject.others or "none"))]
    sanitizers = f"fuzzer,{SANITIZERS}" if with_fuzzer else SANITIZERS
    compiler = (
        "clang" if with_fuzzer else shutil.which("gcc") or shutil.which("clang") or "cc"
    )
    if not with_fuzzer:
        sources.append(TESTS / "runtime" / "fuzz_main.c")
    flags = [
        "-std=c99",
        "-D_DEFAULT_SOURCE",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    flags += [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"]
    flags += [f"-D{define}" for define in ("FWR_ASSERTIONS=1", *subject.defines)]
    flags += [f"-I{include}" for include in INCLUDES]
    subprocess.run(
        [compiler, *flags, *map(str, sources), "-o", str(program)], check=True
    )
    return program


def run(program: Path, words: Sequence[str]) -> None:
    found = subprocess.run(
        [str(program), *words], cwd=program.parent, capture_output=True, check=False
    )
    said = found.stderr.decode(errors="replace")
    assert found.returncode == 0, f"in {program.parent}: {said[-6000:]}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SUBJECTS)
def test_hostile_input_stays_within_the_memory(name: str, tmp_path: Path) -> None:
    subject = SUBJECTS[name]
    cases = os.environ.get("FIRMWRIGHT_FUZZ_CASES", str(subject.cases))
    run(build(subject, tmp_path, with_fuzzer=False), [cases, SEED, INPUT_BYTES])


@pytest.mark.deep
@pytest.mark.parametrize("name", SUBJECTS)
def test_inputs_that_reach_new_code_stay_within_the_memory(
    name: str, tmp_path: Path
) -> None:
    if not has_fuzzer():
        pytest.skip(
            "needs clang with its libFuzzer: clang and libclang-rt-dev on Debian"
        )
    subject = SUBJECTS[name]
    cases = os.environ.get("FIRMWRIGHT_FUZZ_CASES", str(subject.cases_deep))
    words = [
        f"-runs={cases}",
        f"-seed={SEED}",
        f"-max_len={INPUT_BYTES}",
        "-len_control=0",
    ]
    words += ["-verbosity=0", "-print_final_stats=1"]
    run(build(subject, tmp_path, with_fuzzer=True), words)
