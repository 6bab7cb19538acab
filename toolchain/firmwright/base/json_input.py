"""The type of JSON values, their narrowing, and the parsing of untrusted JSON.

The narrowing functions raise ValueError for a value of another kind. Readers of files
check all values beforehand, by value_kinds.py, so that the user gets a sentence about
the file instead.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = (
    "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
)
"""A value that JSON can hold."""
JsonObject: TypeAlias = Mapping[str, Json]


def parse_json(text: str) -> Json:
    """Return the value of a JSON text; ValueError if it is invalid or too deep."""
    try:
        value: Json = json.loads(text)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deeply") from error
    return value


def as_object(value: Json) -> JsonObject:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is not an object")
    return value


def as_list(value: Json) -> Sequence[Json]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"{value!r} is not a list")
    return value


def as_text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


def as_integer(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is not an integer")
    return value


def as_number(value: Json) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a number")
    return value


def as_objects(value: Json) -> list[JsonObject]:
    return [as_object(item) for item in as_list(value)]


def as_texts(value: Json) -> list[str]:
    return [as_text(item) for item in as_list(value)]
