"""The tiny firmware as a host process, built once for each set of options."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.build.compiler_flags import WARNINGS

ROOT = Path(__file__).parents[3]
RUNTIME = ROOT / "runtime_c"

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny_firmware(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """`tiny_firmware("TINY_IN_PLACE", "FWR_PROFILE=1")` is a host firmware's path."""
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for this machine")
    folder = tmp_path_factory.mktemp("tiny")

    def build(*defines: str) -> Path:
        program = folder / "_".join(["tiny", *sorted(defines)]).replace("=", "")
        if not program.exists():
            sources = [*sorted(RUNTIME.glob("*.c")), RUNTIME / "port/host/port.c"]
            tiny = ROOT / "tests/runtime/tiny_app.c"
            subprocess.run(
                [
                    compiler,
                    "-std=c99",
                    "-O1",
                    *WARNINGS,
                    f"-I{RUNTIME}",
                    *(f"-D{name}" for name in sorted(defines)),
                ]
                + [str(source) for source in [*sources, tiny]]
                + ["-o", str(program)],
                check=True,
            )
        return program

    return build
