"""Reads `board/board.json`, which may have been changed: each value is checked before use."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from firmwright.base.errors import UsageError
from firmwright.base.json_input import parse_json
from firmwright.boards.memory import MemoryKind
from firmwright.boards.schema import Compiler

BOARD_FACTS: Final = "board/board.json"
_ADDRESS_MAX: Final = 1 << 32
_NAME: Final = re.compile(r"[\w.@+-]+")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of value: its description, and whether a value has it."""

    description: str
    includes: Callable[[Any], bool]


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_address(value: Any) -> bool:
    return type(value) is int and 0 <= value < _ADDRESS_MAX


def _one_of(*names: str) -> _Kind:
    return _Kind(" or ".join(names), lambda value: isinstance(value, str) and value in names)


_TEXT: Final = _Kind("a string", lambda value: isinstance(value, str))
_TEXTS: Final = _Kind("a list of strings", _is_texts)
_TRUTH: Final = _Kind("true or false", lambda value: isinstance(value, bool))
_SIZE: Final = _Kind("an integer from 0 to 2^32 - 1", _is_address)
_POSITIVE: Final = _Kind(
    "an integer from 1 to 2^32 - 1", lambda value: _is_address(value) and value > 0
)
_WORD: Final = _Kind(
    "a name", lambda value: isinstance(value, str) and _NAME.fullmatch(value) is not None
)
_OBJECTS: Final = _Kind(
    "a list of objects",
    lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
)
_FACTS: Final[Mapping[str, _Kind]] = {
    "name": _WORD,
    "core": _WORD,
    "port": _one_of("cortex_m", "riscv32", "host"),
    "toolchain": _TEXT,
    "compiler": _one_of(*get_args(Compiler)),
    "compile_flags": _TEXTS,
    "clang_flags": _TEXTS,
    "zig_flags": _TEXTS,
    "zig_target": _TEXTS,
    "library_flags": _TEXTS,
    "warnings": _TEXTS,
    "runtime_sources": _TEXTS,
    "model_optimization": _TEXT,
    "runtime_optimization": _TEXT,
    "link_flags": _TEXTS,
    "memory": _OBJECTS,
    "sections_beside": _TEXTS,
    "exception_frame_bytes": _SIZE,
    "counter_interrupts": _TRUTH,
    "stack_bytes": _SIZE,
    "fit_stack": _TRUTH,
    "watchdog": _TRUTH,
}
_REGION: Final[Mapping[str, _Kind]] = {
    "name": _WORD,
    "start": _SIZE,
    "size_bytes": _POSITIVE,
    "kind": _one_of(*get_args(MemoryKind)),
}


def read_board_facts(directory: Path) -> dict[str, Any]:
    """Return the content of board/board.json, of which each value has the kind that it must have.

    Raise UsageError if there is no such file, or for the first wrong value.
    """
    file = directory / BOARD_FACTS
    if not file.is_file():
        hint = "firmwright compile MODEL --board B -o DIR, then build DIR."
        raise UsageError("this is not a project folder.", where=str(directory), hint=hint)
    facts = read_json_object(file)
    for problem in _problems(facts):
        what = f"{BOARD_FACTS} {problem}."
        raise UsageError(what, where=str(directory), hint="compile the model again.")
    return facts


def read_json_object(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raise UsageError if it has none."""
    try:
        facts = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"the file cannot be read: {error}.", where=str(file)) from error
    if not isinstance(facts, dict):
        raise UsageError("the file has no JSON object.", where=str(file))
    return facts


def _problems(facts: Mapping[str, Any]) -> Iterator[str]:
    yield from _wrong_values(facts, _FACTS, "")
    for index, region in enumerate(facts["memory"]):
        yield from _wrong_values(region, _REGION, f"memory[{index}].")
        for key in region.keys() - _REGION.keys():
            yield f"has the unknown value memory[{index}].{key}"
    kinds = {region["kind"] for region in facts["memory"]}
    needed = () if facts["port"] == "host" else ("flash", "ram")
    yield from (f"has no memory of kind {kind}" for kind in needed if kind not in kinds)


def _wrong_values(
    values: Mapping[str, Any], kinds: Mapping[str, _Kind], where: str
) -> Iterator[str]:
    for key, kind in kinds.items():
        if key not in values:
            yield f"has no {where}{key}"
        elif not kind.includes(values[key]):
            yield f"has the {where}{key} {_shortened(values[key])}, which is not {kind.description}"


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
