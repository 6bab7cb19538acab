"""Causes of failed builds, recognized in the output of SCons and the compilers."""

import re
from dataclasses import dataclass
from pathlib import Path

_MISSING_FILE = re.compile(
    r"error: '?([^\s']+)(?:: No such file|' file not found)|"
    r"undefined (?:reference to|symbol:) \W?(\w+)"
)


@dataclass(frozen=True, slots=True)
class BuildFailure:
    """The sentence that names the cause, and the remedy, if one is known."""

    what: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class _MachineLimit:
    """A resource of this machine that a build used up, and compilers' words for it."""

    pattern: re.Pattern[str]
    failure: BuildFailure


_MACHINE_LIMITS = (
    _MachineLimit(
        re.compile("file size limit exceeded|file too large", re.IGNORECASE),
        BuildFailure(
            "the build reached this shell's limit on the size of a file.",
            "`ulimit -f unlimited`, then build again.",
        ),
    ),
    _MachineLimit(
        re.compile("no space left on device|disk quota exceeded", re.IGNORECASE),
        BuildFailure(
            "the build found no space left on the disk.",
            "free space in the project's folder, in the cache (`firmwright cache`) and "
            "in /tmp.",
        ),
    ),
    _MachineLimit(
        re.compile("cannot allocate memory|out of memory|killed signal", re.IGNORECASE),
        BuildFailure(
            "a compiler of the build had too little memory.",
            "close other programs or raise the memory limit, then build again.",
        ),
    ),
)


def explain_failure(project: Path, output: str) -> BuildFailure:
    """Return the cause of a failed build of the folder `project` from its output."""
    for limit in _MACHINE_LIMITS:
        if limit.pattern.search(output):
            return limit.failure
    return BuildFailure(
        "SCons could not build the firmware.", _missing_file_hint(project, output)
    )


def _missing_file_hint(project: Path, output: str) -> str:
    """Return a hint if a header or function of a backend is missing."""
    missing = _MISSING_FILE.search(output)
    if missing is None:
        return ""
    header, function = missing.groups()
    wanted = header or f"that defines {function}"
    for folder in sorted(project.glob("backend/*")):
        files = sorted(folder.iterdir())
        # Any backend may lack a header; a function, one whose files mention it.
        texts = (file.read_text(errors="replace") for file in files)
        if header or any(function in text for text in texts):
            names = ", ".join(file.name for file in files)
            missing_in = f"`c_files` of the backend {folder.name}"
            return f"add the file {wanted} to {missing_in}: now {names}."
    return ""
