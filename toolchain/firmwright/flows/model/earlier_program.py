"""Reads an earlier compilation's choices from its project, package or metadata.json."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from firmwright.artifacts import MARKER
from firmwright.base.errors import ModelError, UsageError
from firmwright.base.input_files import (
    TEXT_BYTES_MAX,
    check_regular_file,
    read_input_text,
)
from firmwright.base.json_input import Json, as_object, as_text, parse_json
from firmwright.base.resource_limits import scaled_limit
from firmwright.flows.model.given_options import OptionValues, to_option_values
from firmwright.ir.program_record import ProgramRecord, record_from_json
from firmwright.package.metadata_reader import MODELS, check_metadata
from firmwright.package.option_serialization import deserialize_options
from firmwright.pipeline import Options

_CHOICES = "choices"
_USED_FACTS = (_CHOICES, "model", "board", "tool_version", "options")
_HINT = (
    "compile the old model again, with the version and options of the firmware in use."
)


def read_program(path: str | Path) -> ProgramRecord:
    """Return the record in a project or package, or in its metadata.json.

    Raise UsageError if there is none, and ModelError if it cannot be read.
    """
    path = Path(path)
    try:
        facts = parse_json(_metadata_text(path))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        what = f"it has no {MARKER} that can be read ({error})."
        hint = f"give --update-of a project, a package or its {MARKER}."
        raise UsageError(what, where=str(path), hint=hint) from error
    return program_of(facts, path)


def _metadata_text(path: Path) -> str:
    if path.is_dir():
        return read_input_text(path / MARKER)
    check_regular_file(path)
    if not zipfile.is_zipfile(path):
        return read_input_text(path)
    with zipfile.ZipFile(path) as archive:
        markers = [name for name in archive.namelist() if Path(name).name == MARKER]
        # The package's own record is the one closest to the top of the archive.
        name = min(markers, key=len)
        size = archive.getinfo(name).file_size
        if size > scaled_limit(TEXT_BYTES_MAX):
            raise ValueError(f"it unpacks to {size:,} bytes")
        return archive.read(name).decode("utf-8")


def program_of(facts: Json, where: Path) -> ProgramRecord:
    """Return the record in the content of metadata.json."""
    if isinstance(facts, Mapping) and MODELS in facts:
        what = "it has several models; only a single one can be updated."
        raise UsageError(what, where=str(where), hint="update the code, too.")
    if not isinstance(facts, Mapping) or _CHOICES not in facts:
        what = (
            "it does not record the choices of its compilation, as older versions did "
            "not."
        )
        raise UsageError(what, where=str(where), hint=_HINT)
    check_metadata(facts, str(where), _USED_FACTS)
    try:
        record = record_from_json(as_object(facts[_CHOICES]))
    except ValueError as error:
        what = f"its record of choices cannot be read: it {error}."
        raise ModelError(what, where=str(where), hint=_HINT) from error
    return replace(
        record,
        name=as_text(facts["model"]),
        board=as_text(facts["board"]),
        tool_version=as_text(facts["tool_version"]),
        options=as_object(facts["options"]),
    )


def options_of_program(record: ProgramRecord, where: str | Path) -> OptionValues:
    """Return the options of the earlier compilation, with board, name and choices."""
    recorded = deserialize_options(record.options, Options, Path(where))
    options = to_option_values(recorded)
    return {**options, "board": record.board, "name": record.name, "update_of": record}
