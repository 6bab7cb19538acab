"""What a project folder may decide about its build, unless the user trusts the folder.

A folder that `compile` wrote may have been changed or may come from anywhere. It is
built by this package's SConstruct, of which the folder's must be a copy, with the flags
that boards have. Its C is compiled but does not run here. Anything else requires trust.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from firmwright.base.json_input import JsonObject
from firmwright.base.source_paths import BACKEND_FILES_DIR, BUILD_FLAGS_FILE
from firmwright.base.trust import trusts_path, untrusted_error
from firmwright.boards.trust import MACHINE_FLAG, TOOL_PREFIX
from firmwright.build.board_facts import BOARD_FACTS, read_board_facts, read_json_object

OWN_SCRIPT: Final = Path(__file__).parent / "templates" / "SConstruct"
_FLAG: Final = (
    rf"({MACHINE_FLAG}|-f(?!plugin)[a-z][a-z0-9-]*|-ffp-contract=[a-z]+|-std=\w+|-O[0-3gsz]?|-g|-w"
    r"|-W[a-z][a-z0-9-]*(=\d+)?|-[DU]\w+(=[\w.]*)?|--target=[\w-]+|-target [\w-]+"
    r"|--specs=(nano|picolibc)\.specs|-Tboard/link\.ld|-nostartfiles|-static"
    r"|-Wl,--(gc-sections|no-warn-rwx-segments))"
)
_FLAGS: Final = re.compile(rf"({_FLAG}( {_FLAG})*)?", re.ASCII)
_FLAG_LISTS: Final = (
    "compile_flags",
    "clang_flags",
    "zig_flags",
    "zig_target",
    "library_flags",
    "link_flags",
    "warnings",
)
_RUNTIME_SOURCE: Final = re.compile(
    r"(runtime|firmware)/(\w[\w-]*/)*\w[\w-]*\.c", re.ASCII
)
_SECTION: Final = re.compile(r"\.[\w.]+", re.ASCII)
_FILE_NAME: Final = re.compile(r"[\w.+-]+")
_TOOL_FILE: Final = re.compile(r".*\.(specs|gch|pch)|device-specs", re.IGNORECASE)
"""What gcc reads by itself: specs, which start programs, and compiled headers."""


def find_build_script(directory: Path) -> Path:
    """Return the SConstruct to run; UsageError if that requires trust in the folder."""
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
    """Yield what requires trust: files, their names, and flags."""
    for parent, folders, files in os.walk(directory):
        for name in (*folders, *files):
            path = Path(parent, name)
            problem = _file_problem(directory, path)
            if problem:
                yield f"{path.relative_to(directory)} {problem}."
    for folder in ("model", BACKEND_FILES_DIR):
        for path in sorted((directory / folder).rglob("*")):
            if not _FILE_NAME.fullmatch(path.name):
                yield f"{folder} has a file with the name {path.name!r}."
    yield from _board_problems(read_board_facts(directory))
    for file in sorted(directory.glob(f"{BACKEND_FILES_DIR}/*/{BUILD_FLAGS_FILE}")):
        name = file.relative_to(directory).as_posix()
        facts = read_json_object(file)
        if not _are_flags(facts.get("flags")):
            found = f"{name} has flags for more than code generation"
            yield f"{found}: {facts.get('flags')}."


def _file_problem(directory: Path, path: Path) -> str:
    """Return why a file or folder requires trust; "" if it does not."""
    status = path.lstat()
    is_link = path.is_symlink()
    is_regular = stat.S_ISREG(status.st_mode)
    is_hard_link = is_regular and status.st_nlink > 1
    # File systems that ignore case may show the build's folder in another one.
    is_product = path.relative_to(directory).parts[0].casefold() == "build"
    if is_link and not path.resolve().is_relative_to(directory):
        return "is a link that leaves the folder"
    if is_product and (is_link or is_hard_link):
        return "is a link, through which the build would write to another file"
    if not is_link and not is_regular and not stat.S_ISDIR(status.st_mode):
        return "is not a regular file"
    if _TOOL_FILE.fullmatch(path.name):
        return "is a file that compilers read by themselves"
    return ""


def _board_problems(facts: JsonObject) -> Iterator[str]:
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


def _are_flags(value: object) -> bool:
    """Return whether a value is a list of flags that boards may have."""
    if not isinstance(value, list):
        return False
    if not all(isinstance(flag, str) and flag for flag in value):
        return False
    return _FLAGS.fullmatch(" ".join(value)) is not None


def _all_match(pattern: re.Pattern[str], value: object) -> bool:
    if not isinstance(value, list):
        return False
    return all(pattern.fullmatch(str(item)) for item in value)
