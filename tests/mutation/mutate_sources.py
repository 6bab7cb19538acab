"""Mutants of sources: of the C runtime and of the checkers in Python.

A mutant is an edit of one file, out of source_edits.py, in a copy of the checkout.
Tests run in the copy in their own process; a mutant is caught if they fail.
`check_sound` first runs all of them without an edit.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.mutation.mutants import SURVIVED, Mutant, Outcome, caught
from tests.mutation.source_edits import EDITS, Edit
from tests.mutation.subjects import models_file

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("toolchain", "runtime_c", "tests", "boards", "examples", "pyproject.toml")
TIMEOUT_S = 180


def copy_of(root: Path, folder: Path) -> Path:
    """Return a copy of all files that tests read, without build products."""
    target = folder / "copy"
    skipped = shutil.ignore_patterns("__pycache__", "*.pyc", ".git")
    target.mkdir()
    for path in sorted(root.iterdir()):
        if path.name in COPIED:
            if path.is_dir():
                shutil.copytree(path, target / path.name, ignore=skipped)
            else:
                shutil.copy(path, target / path.name)
        elif not path.name.startswith("."):
            (target / path.name).symlink_to(path)
    return target


def check_sound(copy: Path) -> None:
    """Check that all of the tests pass without an edit."""
    for tests in dict.fromkeys(edit.tests for edit in EDITS):
        failed = failure(copy, tests)
        assert not failed, f"without any defect: {failed}"


def mutants(copy: Path, edits: Sequence[Edit] = EDITS) -> Iterator[Mutant]:
    """Return the edits as mutants, with the changed text as site."""
    for edit in edits:
        site = f"{edit.file}: {' '.join(edit.old.split())[:60]}"
        yield Mutant(edit.kind, site, partial(judge, copy, edit))


def judge(copy: Path, edit: Edit) -> Outcome:
    """Return whether the tests fail with the edit."""
    path = copy / edit.file
    sound = path.read_text()
    if sound.count(edit.old) != 1:
        return Outcome(
            said=f"{sound.count(edit.old)} places hold the text that it changes"
        )
    path.write_text(sound.replace(edit.old, edit.new))
    try:
        failed = failure(copy, edit.tests)
    finally:
        path.write_text(sound)
    return caught("tests", failed) if failed else SURVIVED


def failure(copy: Path, tests: str) -> str:
    """Return the first failing test, or ""."""
    words = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy / "toolchain"),
        "PYTEST_ADDOPTS": "",
    }
    environment["FIRMWRIGHT_MODELS"] = str(
        models_file("kws").parent
    )  # beside the tree, not its copy
    for name in (
        "PYTEST_XDIST_WORKER",
        "PYTHONPYCACHEPREFIX",
    ):  # bytecode of the sound sources
        environment.pop(name, None)
    words += shlex.split(tests)
    try:
        ran = subprocess.run(
            words,
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return "the tests hang"
    if ran.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return found[1] if found else ran.stdout[-200:]
