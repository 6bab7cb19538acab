"""Reads metadata.json, which may have been changed: each value is checked before use.

A reader names the keys that it uses: other keys may differ between versions. The
options are checked further by option_serialization.py, the choices by
ir/program_record.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, get_args

from firmwright.artifacts import MARKER
from firmwright.base.errors import ModelError, UsageError
from firmwright.base.input_files import read_input_text
from firmwright.base.json_input import JsonObject, as_objects, parse_json
from firmwright.base.value_kinds import (
    OBJECT,
    OBJECTS,
    TEXT,
    TEXTS,
    TRUTH,
    WORD,
    Kind,
    matching,
    one_of,
    wrong_values,
)
from firmwright.ir.settings import NumericsProfile

MODELS: Final = "models"
"""The key of the facts of each model; a single model has its facts at the top."""
_HINT: Final = "compile the model again."


def _is_integer(value: object) -> bool:
    return type(value) is int


_KINDS: Final[Mapping[str, Kind]] = {
    "board": WORD,
    "bound": OBJECT,
    "choices": OBJECT,
    "compiler": OBJECT,
    "concurrent": TRUTH,
    "files": TEXTS,
    "model": matching(r"[A-Za-z_]\w*(\+[A-Za-z_]\w*)*", "the name of a model"),
    "model_id": matching(r"[0-9a-f]{32}", "a number of 32 hexadecimal digits"),
    "numerics": one_of(*get_args(NumericsProfile)),
    "options": OBJECT,
    "schema": Kind("an integer", _is_integer),
    "source_sha256": matching(r"([0-9a-f]{64})?", "a hash of 64 hexadecimal digits"),
    "tool_version": matching(r"[\w.+-]+", "a version"),
}
"""The valid values of each key."""
_COMPILER: Final[Mapping[str, Kind]] = {"tool": TEXT, "flags": TEXTS}
_OPTIONAL: Final = frozenset({"bound", "choices", "compiler", "files"})
_OF_BUNDLES: Final = frozenset(
    {"board", "concurrent", "files", "model", "model_id", "schema"}
)
"""Keys at the top of a project with several models."""
_OF_MODELS: Final = _KINDS.keys() - {"bound", "concurrent", "files"}


def read_metadata(folder: Path, uses: Sequence[str]) -> JsonObject:
    """Return the content of a project's metadata.json with valid keys `uses`.

    Raise UsageError if there is no such file, and ModelError if it or a value cannot be
    used.
    """
    file = folder / MARKER
    if not file.is_file():
        hint = "give a folder that compile -o wrote."
        raise UsageError("this is not a project folder.", where=str(folder), hint=hint)
    try:
        text = read_input_text(file)
    except (OSError, UnicodeDecodeError) as error:
        what = f"{MARKER} cannot be read: {error}."
        raise ModelError(what, where=str(file)) from error
    return parse_metadata(text, str(file), uses)


def parse_metadata(text: str, where: str, uses: Sequence[str]) -> JsonObject:
    """Return the object in metadata.json text; ModelError as in read_metadata."""
    try:
        facts = parse_json(text)
    except ValueError as error:
        what = f"{MARKER} cannot be read: {error}."
        raise ModelError(what, where=where, hint=_HINT) from error
    if not isinstance(facts, Mapping):
        raise ModelError(f"{MARKER} is not a JSON object.", where=where, hint=_HINT)
    check_metadata(facts, where, uses)
    return facts


def check_metadata(facts: JsonObject, where: str, uses: Sequence[str]) -> None:
    """Raise ModelError if a key of `uses` is missing or has a value of another kind."""
    for problem in _problems(facts, uses):
        raise ModelError(f"{MARKER} {problem}.", where=where, hint=_HINT)


def facts_of_models(facts: JsonObject) -> list[JsonObject]:
    """Return the facts of each model of a project."""
    return as_objects(facts[MODELS]) if MODELS in facts else [facts]


def _problems(facts: JsonObject, uses: Sequence[str]) -> Iterator[str]:
    if MODELS not in facts:
        yield from _wrong_facts(facts, [key for key in uses if key != "concurrent"], "")
        return
    yield from wrong_values(facts, {MODELS: OBJECTS}, "")
    if not facts[MODELS]:
        yield f"has no {MODELS}"
    yield from _wrong_facts(facts, [key for key in uses if key in _OF_BUNDLES], "")
    own = [key for key in uses if key in _OF_MODELS]
    for index, part in enumerate(as_objects(facts[MODELS])):
        yield from _wrong_facts(part, own, f"{MODELS}[{index}].")


def _wrong_facts(facts: JsonObject, keys: Sequence[str], where: str) -> Iterator[str]:
    needed: dict[str, Kind] = {}
    for key in keys:
        if key in facts or key not in _OPTIONAL:
            needed[key] = _KINDS[key]
    yield from wrong_values(facts, needed, where)
    if "compiler" in keys and facts.get("compiler"):
        compiler = facts["compiler"]
        if isinstance(compiler, Mapping):
            yield from wrong_values(compiler, _COMPILER, f"{where}compiler.")
