"""The bill of materials of a project's folder.

In: a folder that `compile` wrote, built or not. Out: a CycloneDX document. Files are those of the
project: what a build left there is not among them, except for the release image's hash.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from firmwright.base.errors import ModelError, UsageError
from firmwright.package.sbom import SbomInput, build_sbom

EPOCH_VARIABLE: Final = "SOURCE_DATE_EPOCH"
_PLACES: Final = ("backend", "board", "firmware", "model", "runtime")
_SINGLE: Final = ("SConstruct", "metadata.json")
_COMPILERS: Final = re.compile(rb"(GCC: \([^)\0]*\) [\w.]+|(?:\w+ )?clang version [\w.]+)")


def project_sbom(folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """The document; the time that SOURCE_DATE_EPOCH states is in it. UsageError, ModelError."""
    metadata, board = folder / "metadata.json", folder / "board" / "board.json"
    if not metadata.is_file() or not board.is_file():
        hint = "firmwright compile MODEL --board B -o DIR, then sbom DIR."
        raise UsageError("this is not a project folder.", where=str(folder), hint=hint)
    facts, about = _json(metadata), _json(board)
    elf = folder / "build" / "release" / "firmware.elf"
    image = elf.read_bytes() if elf.is_file() else b""
    said = _COMPILERS.search(image)
    try:
        project = SbomInput(
            board=str(about["name"]),
            core=str(about["core"]),
            models=facts.get("models", [facts]),
            library_flags=about["library_flags"],
            files={path: _sha256((folder / path).read_bytes()) for path in _files(folder)},
            image=_sha256(image) if image else "",
            built_by=said[1].decode("ascii", "replace") if said else "",
        )
        return build_sbom(project, _epoch_s(environment))
    except (KeyError, AttributeError, TypeError) as error:
        raise ModelError("the project's facts cannot be read.", where=str(folder)) from error


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError("the file is no JSON.", where=str(file)) from error
    if not isinstance(found, dict):
        raise ModelError("the file is no JSON object.", where=str(file))
    return found


def _files(folder: Path) -> list[str]:
    """The project's files by relative path, in order."""
    places = (file for place in _PLACES for file in (folder / place).rglob("*"))
    single = (folder / name for name in _SINGLE)
    return sorted(
        file.relative_to(folder).as_posix() for file in (*places, *single) if file.is_file()
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _epoch_s(environment: Mapping[str, str]) -> int | None:
    text = environment.get(EPOCH_VARIABLE, "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > 11:  # seconds until the year 5138
        raise UsageError(f"{text!r} is no number of seconds.", where=EPOCH_VARIABLE)
    return int(text)
