"""The development environment: its lock file, how ./fw installs it, where CI runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-dev.txt"
PYTHONS = ("3.11", "3.12", "3.13")

# Stand-ins for Python: the first makes environments, whose Python is the second.
MAKES_ENVIRONMENTS = """\
#!/bin/sh
case "$*" in
--version) echo "Python 3.11.0" ;;
"-m venv"*) mkdir -p "$4/bin" && cp "$STAND_IN" "$4/bin/python" ;;
esac
"""
INSTALLS = """\
#!/bin/sh
case "$*" in
*"-m pip install"*)
    echo "$*" >>"$CALLS"
    case "$*" in
    *--constraint*) [ -z "$LOCK_ERROR" ] || { echo "$LOCK_ERROR"; exit 1; } ;;
    *) [ -z "$OTHER_ERROR" ] || { echo "$OTHER_ERROR"; exit 1; } ;;
    esac ;;
*"-m firmwright"*) echo "the verb runs" ;;
*) echo 3.11 ;;
esac
"""

INSTALLS_PACKAGES = """\
#!/bin/sh
[ "$1" != install ] || echo "$*" >>"$CALLS.apt"
exit "$APT_STATUS"
"""
REFUSES_UNKNOWN_PACKAGES = """\
#!/bin/sh
[ "$1" != install ] || echo "$*" >>"$CALLS.apt"
case "$*" in *chromium-headless-shell*) exit 100 ;; esac
"""
KNOWS_NO_BROWSER = """\
#!/bin/sh
case "$2" in *chromium*) ;; *) echo "  Candidate: 1.0" ;; esac
"""
# What ./fw itself uses, so that it finds no compiler.
SYSTEM_PROGRAMS = [
    "sh",
    "cat",
    "cksum",
    "cmp",
    "cp",
    "dirname",
    "flock",
    "grep",
    "mkdir",
    "mktemp",
    "mv",
    "readlink",
    "rm",
    "tail",
    "tr",
]


def requirements(python: str) -> dict[str, Requirement]:
    """The lock file's entries for a version of Python on Linux, by canonical name."""
    environment = {
        "python_full_version": f"{python}.9",
        "python_version": python,
        "sys_platform": "linux",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    lines = [
        line.partition("#")[0].strip() for line in LOCK.read_text("utf-8").splitlines()
    ]
    entries = [Requirement(line) for line in lines if line]
    valid = [
        item for item in entries if not item.marker or item.marker.evaluate(environment)
    ]
    names = [canonicalize_name(item.name) for item in valid]
    assert len(names) == len(set(names))
    return dict(zip(names, valid, strict=True))


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_file_has_an_allowed_version_of_each_package(python: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    extras = project["optional-dependencies"]
    todo, wanted = [*project["dependencies"], *extras["dev"], *extras["verify"]], []
    while todo:
        needed = Requirement(todo.pop())
        if needed.name == "firmwright":
            todo += [item for extra in needed.extras for item in extras[extra]]
        else:
            wanted.append(needed)
    locked = requirements(python)
    for needed in wanted:
        (pin,) = locked[canonicalize_name(needed.name)].specifier
        assert pin.operator == "=="
        assert needed.specifier.contains(pin.version, prereleases=True), needed


def test_the_workflow_runs_the_checks_on_all_supported_systems() -> None:
    text = (ROOT / ".github/workflows/check.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert jobs["ubuntu"]["strategy"]["matrix"] == {"python": list(PYTHONS)}
    assert jobs["debian"]["strategy"]["matrix"] == {"image": ["debian:12", "debian:13"]}
    for job in jobs.values():
        assert job["steps"][-1]["run"] == ".ci/run"
    assert jobs["ubuntu"]["steps"][-1]["env"] == {"FW_PYTHON": "python"}


class Checkout:
    """A copy of ./fw with stand-ins for Python and the system's tools."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a checkout"
        self.folder.mkdir()
        for name in ("fw", "pyproject.toml", LOCK.name):
            shutil.copy(ROOT / name, self.folder / name)
        self.tools = folder / "tools"
        self.tools.mkdir()
        self.script(
            "id", "#!/bin/sh\necho 1000\n"
        )  # root without a terminal would install
        self.script("python-stand-in", MAKES_ENVIRONMENTS)
        self.script("installer", INSTALLS)
        self.calls = folder / "calls"
        self.path = os.environ["PATH"]

    def script(self, name: str, text: str) -> None:
        file = self.tools / name
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)

    def hide_system_packages(self) -> None:
        """Leave no program to ./fw but the stand-ins and SYSTEM_PROGRAMS."""
        programs = self.folder.parent / "programs"
        programs.mkdir()
        for name in SYSTEM_PROGRAMS:
            (programs / name).symlink_to(str(shutil.which(name)))
        self.path = str(programs)
        self.script("id", "#!/bin/sh\necho 0\n")
        self.script("apt-get", INSTALLS_PACKAGES)

    def fw(
        self,
        lock_error: str = "",
        other_error: str = "",
        apt_status: int = 0,
        ci: str = "",
    ) -> subprocess.CompletedProcess[str]:
        self.calls.write_text("", encoding="utf-8")
        environment = {
            "PATH": f"{self.tools}:{self.path}",
            "APT_STATUS": str(apt_status),
            "CI": ci,
            "FW_PYTHON": "python-stand-in",
            "STAND_IN": str(self.tools / "installer"),
            "CALLS": str(self.calls),
            "LOCK_ERROR": lock_error,
            "OTHER_ERROR": other_error,
            "TMPDIR": str(self.folder.parent),
        }
        return subprocess.run(
            ["sh", self.folder / "fw", "ops"],
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def installations(self) -> list[bool]:
        """Whether each call of pip used the lock file."""
        return [
            "--constraint" in line
            for line in self.calls.read_text("utf-8").splitlines()
        ]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_fw_installs_the_locked_versions_once(checkout: Checkout) -> None:
    done = checkout.fw()
    assert (done.returncode, done.stdout) == (0, "the verb runs\n")
    assert checkout.installations() == [True]
    assert checkout.fw().returncode == 0
    assert checkout.installations() == []


def test_fw_installs_anew_after_a_change_of_the_lock_file(checkout: Checkout) -> None:
    checkout.fw()
    lock = checkout.folder / LOCK.name
    lock.write_text(lock.read_text("utf-8") + "another==1\n", encoding="utf-8")
    checkout.fw()
    assert checkout.installations() == [True]


def test_fw_explains_that_locked_versions_are_unavailable_and_goes_on(
    checkout: Checkout,
) -> None:
    done = checkout.fw(
        "ERROR: ResolutionImpossible\n  The user requested (constraint) numpy==2.4.6"
    )
    assert (done.returncode, done.stdout) == (0, "the verb runs\n")
    assert checkout.installations() == [True, False]
    assert "the versions in requirements-dev.txt cannot be installed" in done.stderr
    assert "The user requested (constraint) numpy==2.4.6" in done.stderr
    checkout.fw()
    assert checkout.installations() == []


def test_fw_does_not_try_again_without_a_network(checkout: Checkout) -> None:
    done = checkout.fw(
        lock_error="WARNING: NewConnectionError\nERROR: No matching distribution"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert checkout.installations() == [True]
    assert "network that cannot be reached" in done.stderr


def test_fw_shows_the_error_of_pip_if_nothing_can_be_installed(
    checkout: Checkout,
) -> None:
    done = checkout.fw("ERROR: a first error", "ERROR: No space left on device")
    assert done.returncode == 1
    assert checkout.installations() == [True, False]
    assert "No space left on device" in done.stderr
    assert "Run ./fw again" in done.stderr


def test_fw_installs_system_and_python_packages(checkout: Checkout) -> None:
    checkout.hide_system_packages()
    done = checkout.fw()
    assert (done.returncode, done.stdout) == (0, "the verb runs\n")
    assert checkout.installations() == [True]
    (call,) = Path(f"{checkout.calls}.apt").read_text("utf-8").splitlines()
    assert "gcc-arm-none-eabi" in call.split()
    assert "going on without" not in done.stderr


def test_fw_leaves_out_packages_that_the_system_does_not_have(
    checkout: Checkout,
) -> None:
    checkout.hide_system_packages()
    checkout.script("apt-get", REFUSES_UNKNOWN_PACKAGES)
    checkout.script("apt-cache", KNOWS_NO_BROWSER)
    done = checkout.fw()
    assert (done.returncode, done.stdout) == (0, "the verb runs\n")
    assert "this system has no package chromium-headless-shell" in done.stderr
    assert "going on without: " not in done.stderr
    *_, call = Path(f"{checkout.calls}.apt").read_text("utf-8").splitlines()
    assert "chromium-headless-shell" not in call
    assert "gcc-arm-none-eabi" in call


def test_fw_waits_for_apt_before_it_gives_up(checkout: Checkout) -> None:
    checkout.hide_system_packages()
    fails = MAKES_ENVIRONMENTS.replace("mkdir -p", "exit 1; mkdir -p")
    checkout.script("python-stand-in", fails)
    done = checkout.fw(apt_status=100)
    assert done.returncode == 1
    assert "going on without: " in done.stderr  # the outcome of apt-get is known
    assert "could not make the virtual environment" in done.stderr


def test_fw_without_root_and_sudo_names_the_command(checkout: Checkout) -> None:
    checkout.hide_system_packages()
    checkout.script("id", "#!/bin/sh\necho 1000\n")
    done = checkout.fw(ci="1")
    assert done.returncode == 0
    assert "not root and no sudo; run as root: apt-get update" in done.stderr
    assert "sudo: " not in done.stderr.replace("no sudo; ", "")


@pytest.mark.parametrize("pip_error", ["", "ERROR: No space left on device"])
def test_fw_explains_that_system_packages_cannot_be_installed(
    checkout: Checkout, pip_error: str
) -> None:
    checkout.hide_system_packages()
    done = checkout.fw(pip_error, pip_error, apt_status=100)
    assert "apt-get failed (above; whole log: " in done.stderr
    assert "going on without: " in done.stderr
    assert done.returncode == bool(pip_error)
