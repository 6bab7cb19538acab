"""The files of the project in this folder, also where there is no git."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_MADE_BY_TOOLS = {".git", ".venv", "__pycache__"}


def project_files() -> list[str]:
    """Return the paths of all files, without those that tools make, sorted."""
    found: list[str] = []
    for folder, below, names in os.walk(ROOT):
        for name in list(below):
            is_output = Path(folder) == ROOT and name in ("build", "dist")
            is_cache = name.endswith(("_cache", ".egg-info"))
            if is_output or is_cache or name in _MADE_BY_TOOLS:
                below.remove(name)
        found += [(Path(folder) / name).relative_to(ROOT).as_posix() for name in names]
    assert "pyproject.toml" in found
    return sorted(found)
