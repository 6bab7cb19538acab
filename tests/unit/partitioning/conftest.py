"""Packages of backends as a user installs them: a site-packages folder, offline."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import invalidate_caches
from pathlib import Path

import pytest

from firmwright.targets.backend_registry import BACKENDS

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "adding-an-accelerator.md"


@pytest.fixture
def no_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the backends that a test registers."""
    monkeypatch.setattr(BACKENDS, "_known", {})


def page_files() -> dict[str, str]:
    """The files on the page, by their paths in the package's folder."""
    texts = re.findall(r"```(?:ini|py|c)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = ("pyproject.toml", "npu1/__init__.py", "npu1/npu1.h", "npu1/npu1.c")
    return dict(zip(names, texts, strict=True))


@pytest.fixture(name="page_files")
def page_files_fixture() -> dict[str, str]:
    return page_files()


Install = Callable[[str, str, dict[str, str]], None]


@pytest.fixture
def install(
    no_backends: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Install:
    """Write a package with an entry point like an installer, or a new version of it."""
    site = tmp_path / "site"

    def installed(name: str, entry: str, files: dict[str, str]) -> None:
        for file, text in files.items():
            path = site / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        info = site / f"firmwright_{name}-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: firmwright-{name}\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(
            f"[firmwright.backends]\n{name} = {entry}\n"
        )
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr(BACKENDS, "_known", {})
        invalidate_caches()

    return installed


@pytest.fixture
def npu1(install: Install) -> None:
    """The package of docs/reference/adding-an-accelerator.md."""
    files = page_files()
    entry = re.search(r'^npu1 = "(.*)"$', files.pop("pyproject.toml"), re.MULTILINE)
    assert entry is not None
    install(
        "npu1",
        entry[1],
        {name.removeprefix("npu1/"): text for name, text in files.items()},
    )


@pytest.fixture
def squeeze(install: Install) -> None:
    """The package of tests/backends/squeeze.py."""
    text = (ROOT / "tests" / "backends" / "squeeze.py").read_text()
    install("squeeze", "squeeze:Squeeze", {"__init__.py": text})
