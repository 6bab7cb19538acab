"""The same compilation once more, and whether it writes what lies in a project's folder.

In: a folder that `compile` wrote, and the model files that it was made of. Out: a
`ReproductionResult`:
which of the files differ, are missing, or are no part of it. Invariant: nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firmwright.base.errors import ModelError, UsageError
from firmwright.base.json_input import parse_json
from firmwright.base.version import VERSION
from firmwright.flows.compilation import compile_for
from firmwright.flows.model import load_model
from firmwright.flows.tuning_log import read_tuning
from firmwright.ir.tuning_records import TuningRecords
from firmwright.package.option_serialization import TUNING_OPTION, deserialize_options
from firmwright.pipeline import Bundle, Compilation, Options, bundle

METADATA = "metadata.json"


@dataclass(frozen=True, slots=True)
class ReproductionResult:
    """Paths relative to the folder; `same` counts the files that are equal to the byte."""

    model: str
    same: int
    different: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def exact(self) -> bool:
        return not self.different and not self.missing


def reproduce(
    folder: Path,
    models: Sequence[Path],
    *,
    tuning: Path | None = None,
    board_dirs: Sequence[Path] = (),
) -> ReproductionResult:
    """Compile `models` as `folder` says that they were. Raises UsageError, ModelError."""
    facts = _facts(folder)
    parts = facts.get("models", [facts])
    if len(models) != len(parts):
        raise UsageError(
            f"the folder was made of {len(parts)} models, not of {len(models)}.",
            where=str(folder),
            hint=f"name the files of {', '.join(str(part['model']) for part in parts)}.",
        )
    log = read_tuning(tuning) if tuning else None
    made = [
        _compiled(part, path, folder, log, tuple(board_dirs))
        for part, path in zip(parts, models, strict=True)
    ]
    whole = made[0] if "models" not in facts else bundle(made, concurrent=facts["concurrent"])
    return _compared(folder, whole, str(facts["model"]))


def _facts(folder: Path) -> Mapping[str, Any]:
    file = folder / METADATA
    if not file.is_file():
        raise UsageError(
            "this is not a project folder.", where=str(folder), hint="one that compile -o wrote."
        )
    try:
        facts = parse_json(file.read_text(encoding="utf-8"))
        version = facts.get("tool_version") or facts["models"][0]["tool_version"]
    except (ValueError, KeyError, AttributeError, TypeError, IndexError) as error:
        raise ModelError("metadata.json cannot be read.", where=str(file)) from error
    if version != VERSION:
        raise UsageError(
            f"the folder was written by version {version}, and this is {VERSION}.",
            where=str(folder),
            hint=f"pip install firmwright=={version}.",
        )
    return facts  # type: ignore[no-any-return]  # plain JSON


def _compiled(
    facts: Mapping[str, Any],
    path: Path,
    folder: Path,
    log: TuningRecords | None,
    board_dirs: tuple[Path, ...],
) -> Compilation:
    model = load_model(path)
    name = str(facts.get("model"))
    if model.module.attrs.get("source_sha256") != facts.get("source_sha256"):
        raise UsageError(
            f"this is not the file that {name} was made of: its SHA-256 is another.",
            where=str(path),
            hint=f"the folder's has {str(facts.get('source_sha256'))[:16]}...",
        )
    found = recorded_options(facts, folder)
    digest = found.get(TUNING_OPTION, "")
    if digest != (log.digest if log else ""):
        raise UsageError(
            f"{name} was compiled {'with other' if digest else 'without'} measurements.",
            where=str(folder),
            hint="--tuning with the log that compile was given."
            if digest
            else "leave --tuning out.",
        )
    given = deserialize_options(found, Options, folder / METADATA)
    if log is not None:
        given[TUNING_OPTION] = log
    return compile_for(model, board_dirs=board_dirs, **{"board": "host", **given})


def recorded_options(facts: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """How the model of those facts was compiled; ModelError where they do not say so."""
    found = facts.get("options")
    if not isinstance(found, dict):
        raise ModelError("metadata.json has no recipe.", where=str(folder / METADATA))
    return found


def _compared(folder: Path, made: Compilation | Bundle, model: str) -> ReproductionResult:
    files = made.project().files
    different, missing = [], []
    for path, content in sorted(files.items()):
        data = content.encode() if isinstance(content, str) else content
        place = folder / path
        if not place.is_file():
            missing.append(path)
        elif place.read_bytes() != data:
            different.append(path)
    same = len(files) - len(different) - len(missing)
    return ReproductionResult(model, same, tuple(different), tuple(missing))
