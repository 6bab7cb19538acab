"""Reads `board/board.json`, of which each value is checked, as it may be changed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, get_args

from firmwright.base.errors import UsageError
from firmwright.base.input_files import read_input_text
from firmwright.base.json_input import JsonObject, as_objects, parse_json
from firmwright.base.value_kinds import (
    OBJECTS,
    POSITIVE,
    SIZE,
    TEXT,
    TEXTS,
    TRUTH,
    WORD,
    Kind,
    one_of,
    wrong_values,
)
from firmwright.boards.memory import MemoryKind
from firmwright.boards.schema import Compiler

BOARD_FACTS: Final = "board/board.json"
_FACTS: Final[Mapping[str, Kind]] = {
    "name": WORD,
    "core": WORD,
    "port": one_of("cortex_m", "cortex_r", "riscv32", "xtensa", "host"),
    "toolchain": TEXT,
    "compiler": one_of(*get_args(Compiler)),
    "compile_flags": TEXTS,
    "clang_flags": TEXTS,
    "zig_flags": TEXTS,
    "zig_target": TEXTS,
    "library_flags": TEXTS,
    "warnings": TEXTS,
    "runtime_sources": TEXTS,
    "model_optimization": TEXT,
    "runtime_optimization": TEXT,
    "link_flags": TEXTS,
    "memory": OBJECTS,
    "sections_beside": TEXTS,
    "data_distance_bytes": SIZE,
    "exception_frame_bytes": SIZE,
    "counter_interrupts": TRUTH,
    "stack_bytes": SIZE,
    "fit_stack": TRUTH,
    "watchdog": TRUTH,
}
_REGION: Final[Mapping[str, Kind]] = {
    "name": WORD,
    "start": SIZE,
    "size_bytes": POSITIVE,
    "kind": one_of(*get_args(MemoryKind)),
}


def read_board_facts(directory: Path) -> JsonObject:
    """Return the content of board/board.json, with each value of its right kind.

    Raise UsageError if there is no such file, or for the first wrong value.
    """
    file = directory / BOARD_FACTS
    if not file.is_file():
        hint = "firmwright compile MODEL --board B -o DIR, then build DIR."
        what = "this is not a project folder."
        raise UsageError(what, where=str(directory), hint=hint)
    facts = read_json_object(file)
    for problem in _problems(facts):
        what = f"{BOARD_FACTS} {problem}."
        raise UsageError(what, where=str(directory), hint="compile the model again.")
    return facts


def read_json_object(file: Path) -> JsonObject:
    """Return the object in a JSON file; raise UsageError if it has none."""
    try:
        facts = parse_json(read_input_text(file))
    except (OSError, ValueError) as error:
        what = f"the file cannot be read: {error}."
        raise UsageError(what, where=str(file)) from error
    if not isinstance(facts, Mapping):
        raise UsageError("the file has no JSON object.", where=str(file))
    return facts


def _problems(facts: JsonObject) -> Iterator[str]:
    yield from wrong_values(facts, _FACTS, "")
    regions = as_objects(facts["memory"])
    for index, region in enumerate(regions):
        yield from wrong_values(region, _REGION, f"memory[{index}].")
        for key in region.keys() - _REGION.keys():
            yield f"has the unknown value memory[{index}].{key}"
    kinds = {region["kind"] for region in regions}
    needed = () if facts["port"] == "host" else ("flash", "ram")
    for kind in needed:
        if kind not in kinds:
            yield f"has no memory of kind {kind}"
