"""The checks of a release (.ci/release.py), on this repository and planted faults."""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from firmwright.base.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
TODAY = datetime.date(2026, 1, 1)
CHANGELOG = """\
# Changelog

## [Unreleased]

## [0.2.0] - 2026-01-01

A [summary](docs/x.md).

### Fixed

- One fault.

## [0.1.0] - 2025-12-31

The first.
"""


@pytest.fixture(scope="module")
def release(ci_script: Callable[[str], ModuleType]) -> ModuleType:
    return ci_script("release")


@pytest.fixture
def history() -> None:
    inside = shutil.which("git") and (ROOT / ".git").exists()
    if not inside:
        pytest.skip("needs git, and the repository that the files belong to")


@pytest.mark.usefixtures("history")
def test_packages_are_complete_and_built_twice_with_the_same_bytes(
    release: ModuleType, tmp_path: Path
) -> None:
    committed = git(ROOT, "show", f"HEAD:{release.VERSION_FILE}")
    assert release.check_builds(ROOT, tmp_path, release.version_of(committed)) == []


def test_the_changelog_describes_this_version(release: ModuleType) -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = release.releases(text)[1]
    assert newest.version == VERSION
    problems = release.check_changelog(text, VERSION, datetime.date.max)
    pending = re.compile(rf"move the entries|replace '{release.UNDATED}'")
    assert [problem for problem in problems if not pending.search(problem)] == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("## [Unreleased]\n", "", r"the first section must be \[Unreleased\]"),
        ("## [Unreleased]\n", "## [Unreleased]\n\n- An entry.\n", "move the entries"),
        ("[0.2.0]", "[0.3.0]", "the newest release is 0.3.0, not 0.2.0"),
        ("2026-01-01", "not released yet", "by the date of the release .2026-01-01"),
        ("2026-01-01", "1 December", "does not have the form YYYY-MM-DD"),
        ("2026-01-01", "2026-01-02", "is in the future"),
        ("### Fixed", "### Repaired", "'Repaired' is none of the headings"),
    ],
)
def test_faults_of_a_changelog_are_named(
    release: ModuleType, old: str, new: str, problem: str
) -> None:
    assert release.check_changelog(CHANGELOG, "0.2.0", TODAY) == []
    (found,) = release.check_changelog(CHANGELOG.replace(old, new), "0.2.0", TODAY)
    assert re.search(problem, found)


def test_the_citation_has_this_version(release: ModuleType) -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert release.check_citation(text, VERSION) == []
    (problem,) = release.check_citation(text, "9.0.0")
    assert f"the version is {VERSION}, not 9.0.0" in problem


def test_a_version_must_be_above_all_tags(release: ModuleType) -> None:
    assert release.check_version("0.10.0", ["v0.9.0", "v0.2.1", "not-a-version"]) == []
    (problem,) = release.check_version("0.9.0", ["v0.9.0", "v0.10.0"])
    assert "0.9.0 is not above 0.10.0" in problem


def test_the_text_of_a_tag_is_plain(release: ModuleType) -> None:
    text = release.tag_text(release.releases(CHANGELOG)[1])
    assert text == "Firmwright 0.2.0\n\nA summary.\n\nFixed:\n\n- One fault.\n"


def test_missing_and_surplus_files_of_a_wheel_are_named(
    release: ModuleType, tmp_path: Path
) -> None:
    info = "firmwright-0.2.0.dist-info"
    path = tmp_path / "firmwright.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt"):
            wheel.writestr(f"{info}/{name}", "")
        wheel.writestr("firmwright/__pycache__/x.pyc", "")
    assert release.check_wheel(path, {"firmwright/py.typed"}, "0.2.0") == [
        f"firmwright.whl: {info}/licenses/LICENSE is missing",
        "firmwright.whl: firmwright/py.typed is missing",
        "firmwright.whl: firmwright/__pycache__/x.pyc does not belong there",
    ]


def test_missing_and_surplus_files_of_an_sdist_are_named(
    release: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "notes").write_text("")
    path = tmp_path / "firmwright.tar.gz"
    with tarfile.open(path, "w:gz") as sdist:
        sdist.add(tmp_path / "notes", "firmwright-0.2.0/notes")
        sdist.add(tmp_path / "notes", "firmwright-0.2.0/PKG-INFO")
    assert release.check_sdist(path, {"LICENSE"}, "0.2.0") == [
        "firmwright.tar.gz: firmwright-0.2.0/LICENSE is missing",
        "firmwright.tar.gz: firmwright-0.2.0/notes does not belong there",
    ]


def small_repository(folder: Path) -> None:
    """Make a repository of a package with the same build settings."""
    (folder / "toolchain/firmwright/base").mkdir(parents=True)
    (folder / "toolchain/firmwright/__init__.py").write_text("")
    (folder / "toolchain/firmwright/base/version.py").write_text('VERSION = "0.2.0"\n')
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    (folder / "CITATION.cff").write_text("version: 0.2.0\n")
    (folder / "LICENSE").write_text("A license.\n")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "firmwright"\ndynamic = ["version"]\nlicense-files = ["LICENSE"]\n'
        'requires-python = ">=3.11"\n'
        '[project.scripts]\nfirmwright = "firmwright:main"\n'
        '[tool.hatch.version]\npath = "toolchain/firmwright/base/version.py"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["toolchain/firmwright"]\n'
        '[tool.hatch.build.targets.wheel.force-include]\n"LICENSE" = "firmwright/LICENSE"\n'
    )
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "all: Begin")


def git(folder: Path, *words: str) -> str:
    settings = (
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@example.org",
        "-c",
        "tag.gpgSign=false",
    )
    done = subprocess.run(
        ["git", *settings, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.usefixtures("history")
def test_a_dry_run_changes_nothing_and_tag_makes_the_tag(
    release: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(name, "A")
    for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "a@example.org")
    folder = tmp_path / "repository"
    folder.mkdir()
    small_repository(folder)
    assert release.main([], folder) == 0
    assert git(folder, "tag") == ""
    assert "A summary." in capsys.readouterr().out
    assert release.main(["--tag", "-o", str(tmp_path / "dist")], folder) == 0
    assert "- One fault." in git(folder, "tag", "-n99", "v0.2.0")
    kept = {file.name for file in (tmp_path / "dist").iterdir()}
    assert kept == {
        "firmwright-0.2.0-py3-none-any.whl",
        "firmwright-0.2.0.tar.gz",
        "SHA256SUMS",
    }
    assert release.main(["--tag"], folder) == 1
    assert "0.2.0 is not above 0.2.0, which is tagged" in capsys.readouterr().err
