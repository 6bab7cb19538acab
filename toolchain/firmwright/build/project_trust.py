"""What a project folder may decide about its build, unless the user trusts the folder.

A folder that `compile` wrote may have been changed or may come from anywhere. It is built by this
package's SConstruct, of which the folder's must be a copy, with the flags that boards have. Its C
is compiled but does not run here. Anything else requires trust.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from firmwright.base.errors import UsageError
from firmwright.base.source_paths import BACKEND_FILES_DIR, BUILD_FLAGS_FILE
from firmwright.base.trust import trusts_path, untrusted_error
from firmwright.boards.trust import MACHINE_FLAG, TOOL_PREFIX

OWN_SCRIPT: Final = Path(__file__).parent / "templates" / "SConstruct"
BOARD_FACTS: Final = "board/board.json"
_FLAG: Final = (
    rf"({MACHINE_FLAG}|-f(?!plugin)[a-z][a-z0-9-]*|-ffp-contract=[a-z]+|-std=\w+|-O[0-3gsz]?|-g|-w"
    r"|-W[a-z][a-z0-9-]*(=\d+)?|-[DU]\w+(=[\w.]*)?|--target=[\w-]+|-target [\w-]+"
    r"|--specs=(nano|picolibc)\.specs|-Tboard/link\.ld|-nostartfiles|-static"
    r"|-Wl,--(gc-sections|no-warn-rwx-segments))"
)
_FLAGS: Final = re.compile(rf"({_FLAG}( {_FLAG})*)?", re.ASCII)
_FLAG_LISTS: Final = (
    *("compile_flags", "clang_flags", "zig_flags", "zig_target", "library_flags", "link_flags"),
    "warnings",
)
_RUNTIME_SOURCE: Final = re.compile(r"(runtime|firmware)/(\w[\w-]*/)*\w[\w-]*\.c", re.ASCII)
_SECTION: Final = re.compile(r"\.[\w.]+", re.ASCII)
_FILE_NAME: Final = re.compile(r"[\w.+-]+")


def find_build_script(directory: Path) -> Path:
    """Return the SConstruct to run; raise UsageError for what requires trust in the folder."""
    script = directory / "SConstruct"
    if trusts_path(directory):
        return script
    if not script.is_file() or script.read_bytes() != OWN_SCRIPT.read_bytes():
        what = "the folder's SConstruct is not the one that this version writes."
        raise untrusted_error(what, directory)
    for problem in _problems(directory):
        raise untrusted_error(problem, directory)
    return OWN_SCRIPT


def _problems(directory: Path) -> Iterator[str]:
    for parent, folders, files in os.walk(directory):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink() and not path.resolve().is_relative_to(directory):
                yield f"{path.relative_to(directory)} is a link that leaves the folder."
    for folder in ("model", BACKEND_FILES_DIR):
        for path in sorted((directory / folder).rglob("*")):
            if not _FILE_NAME.fullmatch(path.name):
                yield f"{folder} has a file with the name {path.name!r}."
    yield from _board_problems(read_board_facts(directory))
    for file in sorted(directory.glob(f"{BACKEND_FILES_DIR}/*/{BUILD_FLAGS_FILE}")):
        name = file.relative_to(directory).as_posix()
        facts = _read_json(file)
        if not _are_flags(facts.get("flags")):
            yield f"{name} has flags for more than code generation: {facts.get('flags')}."


def _board_problems(facts: dict[str, Any]) -> Iterator[str]:
    for key in _FLAG_LISTS:
        if not _are_flags(facts.get(key)):
            yield f"{BOARD_FACTS} has unusual {key}: {facts.get(key)}."
    levels = [facts.get(f"{part}_optimization") for part in ("model", "runtime")]
    if not _are_flags(levels):
        yield f"{BOARD_FACTS} has unusual optimization levels: {levels}."
    if not re.fullmatch(TOOL_PREFIX, str(facts.get("toolchain"))):
        yield f"{BOARD_FACTS} has the toolchain {facts.get('toolchain')!r}."
    if not _all_match(_RUNTIME_SOURCE, facts.get("runtime_sources")):
        yield f"{BOARD_FACTS} has runtime_sources outside of runtime/ and firmware/."
    if not _all_match(_SECTION, facts.get("sections_beside")):
        yield f"{BOARD_FACTS} has the sections {facts.get('sections_beside')}."
    if type(facts.get("stack_bytes")) is not int:
        yield f"{BOARD_FACTS} has the stack_bytes {facts.get('stack_bytes')!r}."


def _are_flags(value: Any) -> bool:
    is_list = isinstance(value, list) and all(isinstance(flag, str) and flag for flag in value)
    return is_list and _FLAGS.fullmatch(" ".join(value)) is not None


def _all_match(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, list) and all(pattern.fullmatch(str(item)) for item in value)


def read_board_facts(directory: Path) -> dict[str, Any]:
    """Return the content of board/board.json; raise UsageError if there is none."""
    file = directory / BOARD_FACTS
    if not file.is_file():
        hint = "firmwright compile MODEL --board B -o DIR, then build DIR."
        raise UsageError("this is not a project folder.", where=str(directory), hint=hint)
    return _read_json(file)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"the file cannot be read: {error}.", where=str(file)) from error
    if not isinstance(facts, dict):
        raise UsageError("the file has no JSON object.", where=str(file))
    return facts
