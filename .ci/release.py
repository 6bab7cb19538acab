"""Check a release: version, changelog, wheel and sdist, reproducible builds.

    python .ci/release.py           check the last commit, print the tag's text
    python .ci/release.py -o dist   keep wheel, sdist and SHA-256 sums there
    python .ci/release.py --tag     check, then make the annotated tag (not pushed)

docs/developing/releasing.md describes the whole procedure. Exit status: 1 if something
hinders the release.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE = "toolchain/firmwright/base/version.py"
UNRELEASED = "[Unreleased]"
UNDATED = "not released yet"
SECTIONS = ("Security", "What is new", "What breaks", "Fixed")


class ReleaseError(Exception):
    """The release cannot be checked further."""


@dataclass(frozen=True, slots=True)
class Release:
    """A section of the changelog: its heading in parts, and the text below it."""

    version: str
    date: str
    text: str


def run(
    *command: str, cwd: Path = ROOT, environment: Mapping[str, str] | None = None
) -> str:
    """Run a program and return its standard output without the last line end."""
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(
            f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}".rstrip()
        )
    return done.stdout.rstrip("\n")


# ---- version and changelog -----------------------------------------------------------


def version_of(text: str) -> str:
    """Return the version that the text of version.py states."""
    found = re.search(r'^VERSION = "(\d+\.\d+\.\d+)"$', text, re.MULTILINE)
    if not found:
        raise ReleaseError(f'{VERSION_FILE} has no line VERSION = "MAJOR.MINOR.PATCH"')
    return found[1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def check_version(version: str, tags: Iterable[str]) -> list[str]:
    """Return the problems of a version, given the tags of earlier releases."""
    released = [tag[1:] for tag in tags if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    newest = max(released, key=_numbers, default=None)
    if newest is None or _numbers(version) > _numbers(newest):
        return []
    return [
        f"{VERSION_FILE}: {version} is not above {newest}, which is tagged: raise "
        "VERSION"
    ]


def releases(changelog: str) -> list[Release]:
    """Return the sections of a changelog, the first being [Unreleased]."""
    parts = re.split(r"^## (.*)\n", changelog, flags=re.MULTILINE)[1:]
    found = []
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        name, _, date = heading.partition(" - ")
        found.append(Release(name.strip("[]"), date, text.strip("\n")))
    return found


def check_changelog(changelog: str, version: str, today: datetime.date) -> list[str]:
    """Return the problems of the changelog as the one of release `version`."""
    sections = releases(changelog)
    if len(sections) < 2 or f"[{sections[0].version}]" != UNRELEASED:
        return [
            f"CHANGELOG.md: the first section must be {UNRELEASED}, the second the "
            "release"
        ]
    unreleased, release = sections[:2]
    problems = []
    if unreleased.text:
        problems.append(
            f"CHANGELOG.md: move the entries of {UNRELEASED} to the release"
        )
    if release.version != version:
        problems.append(
            f"CHANGELOG.md: the newest release is {release.version}, not {version}"
        )
    problems += _check_date(release.date, today)
    for kind in re.findall(r"^### (.*)$", release.text, re.MULTILINE):
        if kind not in SECTIONS:
            problems.append(
                f"CHANGELOG.md: {kind!r} is none of the headings {', '.join(SECTIONS)}"
            )
    return problems


def _check_date(date: str, today: datetime.date) -> list[str]:
    if date == UNDATED:
        return [
            f"CHANGELOG.md: replace {UNDATED!r} by the date of the release ({today})"
        ]
    try:
        dated = datetime.date.fromisoformat(date)
    except ValueError:
        return [f"CHANGELOG.md: the date {date!r} does not have the form YYYY-MM-DD"]
    return [f"CHANGELOG.md: the date {date} is in the future"] if dated > today else []


def check_citation(citation: str, version: str) -> list[str]:
    """Return the problem of CITATION.cff, if it states another version."""
    stated = re.search(r"^version: (.*)$", citation, re.MULTILINE)
    if stated and stated[1] == version:
        return []
    return [
        f"CITATION.cff: the version is {stated[1] if stated else 'missing'}, not "
        f"{version}"
    ]


def tag_text(release: Release) -> str:
    """Return the annotation of a release's tag: a subject and the section as text."""
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", release.text)
    text = re.sub(r"^### (.*)$", r"\1:", text, flags=re.MULTILINE)
    return f"Firmwright {release.version}\n\n{text}\n"


# ---- archives ------------------------------------------------------------------------


def wheel_files(tracked: Iterable[str], settings: Mapping[str, dict]) -> set[str]:
    """Return the files that the wheel must have, without its dist-info folder."""
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    (package,) = wheel["packages"]
    places = {package: Path(package).name, **wheel["force-include"]}
    found = set()
    for file in tracked:
        for source, place in places.items():
            if file == source or file.startswith(f"{source}/"):
                found.add(place + file[len(source) :])
    return found


def check_names(archive: str, names: Iterable[str], expected: set[str]) -> list[str]:
    """Return one problem for each file that an archive lacks, or has without need."""
    found = set(names)
    missing = [f"{archive}: {name} is missing" for name in sorted(expected - found)]
    surplus = [
        f"{archive}: {name} does not belong there" for name in sorted(found - expected)
    ]
    return missing + surplus


def check_wheel(path: Path, expected: set[str], version: str) -> list[str]:
    """Return the problems of a wheel."""
    info = f"firmwright-{version}.dist-info"
    parts = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    with zipfile.ZipFile(path) as wheel:
        problems = check_names(
            path.name, wheel.namelist(), expected | {f"{info}/{part}" for part in parts}
        )
        metadata = wheel.read(f"{info}/METADATA").decode() if not problems else ""
    if metadata and f"\nVersion: {version}\n" not in metadata:
        problems.append(f"{path.name}: METADATA does not state version {version}")
    return problems


def check_sdist(path: Path, tracked: set[str], version: str) -> list[str]:
    """Return the problems of an sdist, which has every file of the repository."""
    folder = f"firmwright-{version}"
    expected = {f"{folder}/{name}" for name in tracked | {"PKG-INFO"}}
    with tarfile.open(path) as sdist:
        names = [member.name for member in sdist.getmembers() if not member.isdir()]
    return check_names(path.name, names, expected)


# ---- builds --------------------------------------------------------------------------


def build(source: Path, target: Path, epoch: str) -> dict[str, str]:
    """Build wheel and sdist of folder `source`; return their SHA-256 sums by name."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    command = (sys.executable, "-m", "hatchling", "build", "-d", str(target))
    run(*command, cwd=source, environment=environment)
    files = sorted(target.iterdir())
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def export_commit(root: Path, folder: Path) -> None:
    """Write the files of the last commit to a new folder."""
    archive = folder.with_suffix(".tar")
    run("git", "archive", "-o", str(archive), "HEAD", cwd=root)
    with tarfile.open(archive) as tar:
        # Python 3.11.2 of Debian 12 has no filters yet.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)


def check_builds(root: Path, work: Path, version: str) -> list[str]:
    """Build twice, in `work/one` and `work/two`; return problems of the archives."""
    epoch = run("git", "log", "-1", "--format=%ct", cwd=root)
    sums = []
    for name in ("one", "two"):
        export_commit(root, work / f"source of {name}")
        sums.append(build(work / f"source of {name}", work / name, epoch))
    problems = [
        f"{name}: two builds differ"
        for name in sums[0]
        if sums[0][name] != sums[1][name]
    ]
    listing = run("git", "ls-tree", "-r", "-z", "--name-only", "HEAD", cwd=root)
    tracked = set(listing.strip("\0").split("\0"))
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    base = work / "one" / f"firmwright-{version}"
    wheel, sdist = Path(f"{base}-py3-none-any.whl"), Path(f"{base}.tar.gz")
    if set(sums[0]) != {wheel.name, sdist.name}:
        return [
            *problems,
            f"the build made {', '.join(sums[0])}, not {wheel.name}, {sdist.name}",
        ]
    problems += check_wheel(wheel, wheel_files(tracked, settings), version)
    return problems + check_sdist(sdist, tracked, version)


def keep(built: Path, target: Path) -> None:
    """Copy the archives to `target`, with a file SHA256SUMS."""
    target.mkdir(parents=True, exist_ok=True)
    lines = []
    for file in sorted(built.iterdir()):
        shutil.copy(file, target / file.name)
        lines.append(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n")
    (target / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


# ---- the command ---------------------------------------------------------------------


def check_all(root: Path, output: Path | None) -> tuple[str, str, list[str]]:
    """Return the version, the text of the tag, and all problems of a repository."""
    problems = []
    if run("git", "status", "--porcelain", cwd=root):
        problems.append(
            "the work tree has changes, which a release would not contain: commit them"
        )
    version = version_of((root / VERSION_FILE).read_text(encoding="utf-8"))
    problems += check_version(
        version, run("git", "tag", "--list", "v*", cwd=root).split()
    )
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    problems += check_changelog(
        changelog, version, datetime.datetime.now(datetime.UTC).date()
    )
    problems += check_citation(
        (root / "CITATION.cff").read_text(encoding="utf-8"), version
    )
    with tempfile.TemporaryDirectory(prefix="firmwright-release-") as folder:
        problems += check_builds(root, Path(folder), version)
        if output:
            keep(Path(folder) / "one", output)
    described = [item for item in releases(changelog) if item.version == version]
    return version, tag_text(described[0]) if described else "", problems


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="release.py", description="Check a release (docs/developing/releasing.md)."
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--dry-run", action="store_true", help="change nothing (the default)"
    )
    action.add_argument(
        "--tag", action="store_true", help="make the annotated tag; do not push it"
    )
    parser.add_argument(
        "-o", "--output", type=Path, help="keep the archives in this folder"
    )
    options = parser.parse_args(arguments)
    try:
        version, text, problems = check_all(root, options.output)
        if not options.tag:
            print(f"The text of the tag v{version}:\n\n{text}")
        for problem in problems:
            print(f"release: {problem}", file=sys.stderr)
        if problems:
            return 1
        if options.tag:
            run(
                "git",
                "tag",
                "-a",
                "--cleanup=verbatim",
                "-m",
                text,
                f"v{version}",
                cwd=root,
            )
            print(f"tagged v{version}; `git push origin v{version}` publishes it")
        else:
            print(f"release: {version} can be tagged (--tag)")
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
