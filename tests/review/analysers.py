"""What gcc -fanalyzer, clang-tidy, cppcheck and MISRA find in a written project.

In: the folder of a project as `firmwright compile` writes it; its board.json says which
files the board takes and how they are compiled. Out: findings with paths relative to
that folder, sorted, each once. A tool that breaks off, or that cannot read a file,
raises `RuntimeError`: silence of a tool that did not look is no finding of its own.

What a tool is told to leave out stands, each with its reason, in clang-tidy.yaml and
cppcheck-suppressions.txt beside this file; what of MISRA C is not kept, in
docs/reference/misra.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TIDY_CONFIG = HERE / "clang-tidy.yaml"
TIDY_MODEL_CHECKS = "--checks=-bugprone-macro-parentheses"
"""A model's macros take an assembly template, which cannot be parenthesized."""
SUPPRESSIONS = HERE / "cppcheck-suppressions.txt"
MISRA = "misra-c2012-"

CORTEX_M4 = (
    "__GNUC__=12",
    "__clang__=1",
    "__OPTIMIZE__=1",
    "__arm__=1",
    "__ARM_ARCH_ISA_THUMB=2",
    "__ARM_FEATURE_DSP=1",
    "__ARM_FEATURE_SAT=1",
)
"""What cppcheck, which is no compiler, must be told to see what gcc sees: the assembly.

For clang it has no register names, which Cppcheck 2.17 cannot read beside an initial
value.
"""

PORTABLE = ("FWR_REVIEW_PORTABLE=1",)
"""The C beside the assembly, for every other compiler: no compiler names itself."""

_GCC = re.compile(
    r"(?P<file>\S+?):(?P<line>\d+):\d+: (?:warning|error): .*\[-W(?P<rule>[\w=-]+)\]"
)
_TIDY = re.compile(
    r"(?P<file>\S+?):(?P<line>\d+):\d+: (?:warning|error): .*\[(?P<rule>[\w.,-]+)\]"
)
_CPPCHECK = re.compile(r"(?P<file>[^:\n]+):(?P<line>\d+):(?P<rule>[\w.-]+)")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One remark of a tool about one place."""

    file: str
    line: int
    tool: str
    rule: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.tool} {self.rule}"


@dataclass(frozen=True, slots=True)
class Project:
    """A written project: where it lies, and what its board.json says."""

    folder: Path
    facts: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Project:
        return cls(
            folder, json.loads((folder / "board" / "board.json").read_text("utf-8"))
        )

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(
            sorted(f"model/{file.name}" for file in self.folder.glob("model/*.c"))
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """Every C file that the board's firmware is made of."""
        return (*self.models, "firmware/fwr_app.c", *self.facts["runtime_sources"])

    @property
    def includes(self) -> list[str]:
        port = f"runtime/port/{self.facts['port']}"
        return [
            f"-I{path}" for path in ("board", "runtime", "runtime/port", port, "model")
        ]

    def optimisation(self, file: str) -> str:
        kind = "model" if file in self.models else "runtime"
        return str(self.facts[f"{kind}_optimization"])

    @property
    def cross_gcc(self) -> str:
        return f"{self.facts['toolchain']}-gcc" if self.facts["toolchain"] else "gcc"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )


def gcc_analyzer(project: Project, file: str, *, host: bool = False) -> list[Finding]:
    """gcc's own path-sensitive analysis, by the board's compiler or this machine's."""
    if host:
        command = ["gcc", "-std=c99"]
    else:
        # No figures of stacks: they would be written beside the null device.
        flags = [
            f
            for f in project.facts["compile_flags"]
            if f not in ("-fstack-usage", "-g")
        ]
        command = [project.cross_gcc, *flags]
    command += [project.optimisation(file), "-fanalyzer", *project.includes]
    done = project.run(*command, "-c", file, "-o", os.devnull)
    if done.returncode:
        raise RuntimeError(f"{command[0]} -fanalyzer {file}:\n{done.stderr}")
    return _findings(_GCC, done.stderr, command[0])


def clang_tidy(project: Project, file: str) -> list[Finding]:
    """clang-tidy with the checks of clang-tidy.yaml, for the board's core."""
    flags = [
        f for f in project.facts["clang_flags"] if f not in ("-fstack-usage", "-g")
    ]
    headers = library_headers(project)
    words = [*flags, project.optimisation(file), *project.includes, *headers]
    options = ["--quiet", f"--config-file={TIDY_CONFIG}"]
    if file in project.models:
        options.append(TIDY_MODEL_CHECKS)
    done = project.run("clang-tidy", *options, file, "--", *words)
    if "[clang-diagnostic-error]" in done.stdout or done.returncode not in (0, 1):
        raise RuntimeError(f"clang-tidy {file}:\n{done.stdout}{done.stderr}")
    root = f"{project.folder.resolve()}/"
    return _findings(_TIDY, done.stdout.replace(root, ""), "clang-tidy")


def library_headers(project: Project) -> list[str]:
    """Where the C library's headers are: gcc knows, clang has none for a bare board."""
    if not project.facts["toolchain"]:
        return []
    said = project.run(
        project.cross_gcc,
        *project.facts["library_flags"],
        "-E",
        "-v",
        "-xc",
        os.devnull,
    ).stderr
    listed = (
        said.split("search starts here:")[-1].split("End of search list")[0].split()
    )
    places = [os.path.realpath(place) for place in listed]
    return [f"-isystem{place}" for place in places if "/gcc/" not in place]


def cppcheck(
    project: Project, defines: Sequence[str], *, misra: bool = True
) -> list[Finding]:
    """All that cppcheck and its MISRA C:2012 addon find in the program as a whole."""
    with tempfile.TemporaryDirectory(prefix="firmwright-review-") as scratch:
        found = _cppcheck(project, defines, scratch, misra=misra)
    broken = [
        f for f in found if f.rule in ("syntaxError", "internalError", "cppcheckError")
    ]
    if broken:
        raise RuntimeError(f"cppcheck breaks off: {', '.join(map(str, broken))}")
    return found


def _cppcheck(
    project: Project, defines: Sequence[str], scratch: str, *, misra: bool
) -> list[Finding]:
    """One run; its dumps lie in `scratch`, so that several may work on one project.

    Values are followed once: loops within loops within loops, which kernels are, take
    minutes otherwise, and no finding was ever owed to that.
    """
    command = [
        "cppcheck",
        "--quiet",
        "--std=c99",
        "--platform=unix32",
        "--template={file}:{line}:{id}",
        "--enable=all",
        *(["--addon=misra"] if misra else []),
        "--valueflow-max-iterations=1",
        "--inline-suppr",
        f"--suppressions-list={SUPPRESSIONS}",
        f"--cppcheck-build-dir={scratch}",
        *(f"-D{word}" for word in defines),
        *project.includes,
    ]
    done = project.run(*command, *project.sources)
    if done.returncode:
        raise RuntimeError(f"cppcheck {project.folder}:\n{done.stdout}{done.stderr}")
    return _findings(_CPPCHECK, done.stderr, "cppcheck")


def review(project: Project, jobs: int = 1) -> list[Finding]:
    """Everything: `jobs` tools at a time."""
    work = [
        *((cppcheck, (project, defines), {}) for defines in (CORTEX_M4, PORTABLE)),
        *((gcc_analyzer, (project, file), {"host": True}) for file in project.models),
        *((gcc_analyzer, (project, file), {}) for file in project.sources),
        *((clang_tidy, (project, file), {}) for file in project.sources),
    ]
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(tool, *words, **named) for tool, words, named in work]
        return sorted({finding for one in running for finding in one.result()})


def misra_rules(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are about rules of MISRA C:2012, with the bare number as rule."""
    return [
        Finding(f.file, f.line, "misra", f.rule.removeprefix(MISRA))
        for f in findings
        if f.rule.startswith(MISRA)
    ]


def others(findings: Iterable[Finding]) -> list[Finding]:
    """Those that are not."""
    return [finding for finding in findings if not finding.rule.startswith(MISRA)]


def _findings(pattern: re.Pattern[str], text: str, tool: str) -> list[Finding]:
    found = {
        Finding(m["file"], int(m["line"]), tool, m["rule"])
        for m in pattern.finditer(text)
    }
    return sorted(found)
