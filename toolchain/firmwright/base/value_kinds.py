"""Kinds of values in files that may have been changed, and what violates them."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_ADDRESS_MAX: Final = 1 << 32
_NAME: Final = re.compile(r"[\w.@+-]+")
_SHOWN_CHARACTERS: Final = 80


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: its description, and whether a value has it."""

    description: str
    includes: Callable[[object], bool]


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_integer(value: object, least: int, end: int) -> bool:
    return isinstance(value, int) and type(value) is int and least <= value < end


def one_of(*names: str) -> Kind:
    return Kind(" or ".join(names), lambda value: is_text(value) and value in names)


def matching(pattern: str, description: str) -> Kind:
    """Return the kind of the strings that `pattern` matches as a whole."""
    compiled = re.compile(pattern, re.ASCII)

    def includes(value: object) -> bool:
        return isinstance(value, str) and compiled.fullmatch(value) is not None

    return Kind(description, includes)


def list_of(kind: Kind, description: str) -> Kind:

    def includes(value: object) -> bool:
        return isinstance(value, list) and all(map(kind.includes, value))

    return Kind(description, includes)


def mapping_of(kind: Kind, description: str) -> Kind:
    """Return the kind of the objects with values of `kind`."""

    def includes(value: object) -> bool:
        return isinstance(value, dict) and all(map(kind.includes, value.values()))

    return Kind(description, includes)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


TEXT: Final = Kind("a string", is_text)
TRUTH: Final = Kind("true or false", lambda value: isinstance(value, bool))
OBJECT: Final = Kind("an object", lambda value: isinstance(value, dict))
TEXTS: Final = list_of(TEXT, "a list of strings")
OBJECTS: Final = list_of(OBJECT, "a list of objects")
SIZE: Final = Kind(
    "an integer from 0 to 2^32 - 1", lambda value: is_integer(value, 0, _ADDRESS_MAX)
)
POSITIVE: Final = Kind(
    "an integer from 1 to 2^32 - 1", lambda value: is_integer(value, 1, _ADDRESS_MAX)
)
WORD: Final = Kind("a name", _is_name)


def wrong_values(
    values: Mapping[str, object], kinds: Mapping[str, Kind], where: str
) -> Iterator[str]:
    """Yield a clause for each key of `kinds` that is missing or of another kind."""
    for key, kind in kinds.items():
        if key not in values:
            yield f"has no {where}{key}"
        elif not kind.includes(values[key]):
            found = f"has the {where}{key} {shortened(values[key])}"
            yield f"{found}, which is not {kind.description}"


def shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
