"""Builds a model's C for this computer with access tracing.

gcc calls a function for each access, as for its thread sanitizer.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from firmwright.base.child_process import Word, find_program, run_program
from firmwright.base.errors import ToolMissingError
from firmwright.build.compiler_flags import WARNINGS, debian_packages, language_flags

COMPILER = "gcc"
TIMEOUT_S = 600.0
_CALLS = ("-fsanitize=thread", "-fno-inline-functions")
"""Flags with which gcc calls a function for each access to memory."""
_FILES = ("fwr_access_trace.c", "fwr_access_trace.h")


def build_instrumented_library(folder: Path, name: str) -> Path:
    """Compile the model `name` of a project, so that each access is recorded."""
    if find_program(COMPILER) is None:
        what = f"the compiler {COMPILER} is not installed."
        raise ToolMissingError(what, hint=f"apt install {debian_packages('')}.")
    sources = files("firmwright.build") / "access_trace"
    for file in _FILES:
        text = (sources / file).read_text(encoding="utf-8")
        (folder / file).write_text(text, encoding="utf-8", newline="\n")
    flags = (*language_flags(), "-O1", "-fPIC", "-iquote.", "-iquotemodel")
    probe = (
        f"-D{name.upper()}_PROBE(i, phase, output, bytes)=fwr_access_set_operator((i), "
        "(phase))"
    )
    header = f'-D{name.upper()}_PROBE_HEADER="fwr_access_trace.h"'
    model = ("-c", f"model/{name}.c", "-o", "model.o")
    _run(folder, (COMPILER, *flags, *_CALLS, header, probe, *model))
    trace = ("-c", "fwr_access_trace.c", "-o", "fwr_access_trace.o")
    _run(folder, (COMPILER, *flags, *WARNINGS, *trace))
    library = folder / f"lib{name}_watched.so"
    parts = ("model.o", "fwr_access_trace.o", "-lm")
    _run(folder, (COMPILER, "-shared", "-o", library, *parts))
    return library


def _run(folder: Path, command: Sequence[Word]) -> None:
    failure = "the model could not be compiled with access tracing."
    run_program(
        command,
        COMPILER,
        timeout_s=TIMEOUT_S,
        where=str(folder),
        folder=folder,
        failure=failure,
    )
