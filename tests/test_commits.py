"""Subjects of commits, and the hooks that check a commit before it is made."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from tests.project_files import project_files

ROOT = Path(__file__).resolve().parent.parent
CHECKED_FROM = "a51fefb0f372"
"""Subjects after this commit are checked; earlier ones do not all have the form."""


@pytest.fixture(scope="module")
def commit_subject(ci_script: Callable[[str], ModuleType]) -> ModuleType:
    return ci_script("commit_subject")


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_subjects_of_commits_have_the_form_and_length(
    commit_subject: ModuleType,
) -> None:
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("needs git, and the repository that the files belong to")
    if git("merge-base", "--is-ancestor", CHECKED_FROM, "HEAD").returncode:
        pytest.skip(f"needs the history since {CHECKED_FROM}, which this clone lacks")
    subjects = git("log", "--no-merges", "--format=%s", f"{CHECKED_FROM}..HEAD").stdout
    wrong = {
        line: commit_subject.subject_problems(line) for line in subjects.splitlines()
    }
    assert {line: problems for line, problems in wrong.items() if problems} == {}


@pytest.mark.parametrize(
    "subject",
    [
        "usmp: Plan pools once",
        "ir, usmp: Plan pools once",
        "docs/building: `scons docs` finds links",
        "Merge branch 'main' into feature",
        'Revert "usmp: Plan pools once"',
        "fixup! usmp: Plan pools once",
        f"usmp: P{'x' * 65}",
    ],
)
def test_subjects_of_the_form_are_accepted(
    commit_subject: ModuleType, subject: str
) -> None:
    assert commit_subject.subject_problems(subject) == []


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("Plan pools once", "its form is not"),
        ("usmp: plan pools once", "its form is not"),
        ("usmp:Plan pools once", "its form is not"),
        ("", "its form is not"),
        (f"usmp: P{'x' * 66}", "73 characters"),
    ],
)
def test_other_subjects_are_refused(
    commit_subject: ModuleType, tmp_path: Path, subject: str, problem: str
) -> None:
    (found,) = commit_subject.subject_problems(subject)
    assert problem in found
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text(
        f"# a comment of the editor\n\n{subject}\n\nText.\n", encoding="utf-8"
    )
    assert commit_subject.main(message) == 1


def test_hooks_run_programs_of_the_environment_on_existing_files() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    (repository,) = yaml.safe_load(text)["repos"]
    assert repository["repo"] == "local"  # nothing is fetched
    files = project_files()
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        program, *words = hook["entry"].split()
        assert program.startswith(".venv/bin/")
        assert [
            w for w in words if w.endswith(".py") and not (ROOT / w).is_file()
        ] == []
        chosen = re.compile(hook.get("files", ""))
        assert any(chosen.search(file) for file in files)
