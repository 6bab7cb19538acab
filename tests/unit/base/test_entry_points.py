"""Entry points of packages are found once, and again when the import path changes."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from firmwright.base.plugin_calls import entry_points

GROUP = "firmwright.tests"


def install(folder: Path, name: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {name}:RUN\n")


def names() -> list[str]:
    return [point.name for point in entry_points(GROUP)]


def test_a_package_is_found_when_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert names() == []
    install(tmp_path, "first")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert names() == ["first"]
    install(tmp_path, "second")
    os.utime(tmp_path, (0, 0))  # the clock of a file system may be too coarse to tell
    assert names() == ["first", "second"]


def test_packages_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = entry_points(GROUP)

    def search(**group: Any) -> None:
        raise AssertionError("the packages are searched again")

    monkeypatch.setattr(metadata, "distributions", search)
    assert entry_points(GROUP) == before


def test_a_checkout_has_the_entry_points_of_its_pyproject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "firmwright")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert names() == [], "an editable installation may be older than the checkout"
