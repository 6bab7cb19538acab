"""Projects with a user's or extension's main program in place of the server loop."""

import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final, Protocol

from firmwright.artifacts import SourceTree
from firmwright.base.templates import render_template
from firmwright.boards import Board
from firmwright.ir.module import IoBinding

MAIN_FILE: Final = "firmware/fwr_app.c"
_EMPTY_APP: Final = "firmware/fwr_app_empty.c"
_STOP: Final = "firmware/fwr_stop.c"
_REPLACED: Final = re.compile(r"runtime/fwr_(main|server|server_\w+)\.c")
"""The sources of the server loop, which such projects do not have."""


class FirmwareMain(Protocol):
    """A main program for a model, with a protocol other than Firmwright's link."""

    def make_project(
        self, project: SourceTree, io: IoBinding, board: Board
    ) -> SourceTree:
        """Return `project`, which has the server loop, with this main program instead.

        `replace_main_loop` exchanges the files.
        """


def replace_main_loop(
    project: SourceTree, files: Mapping[str, str | bytes]
) -> SourceTree:
    """Return `project` with `files` instead of `fwr_main.c` and the server loop."""
    content: dict[str, str | bytes] = {}
    for path, text in project.files.items():
        if not _REPLACED.fullmatch(path):
            content[path] = text
    content |= files
    facts = json.loads(str(content["board/board.json"]))
    sources: set[str] = set()
    for name in facts["runtime_sources"]:
        if not _REPLACED.fullmatch(name):
            sources.add(name)
    for path in files:
        if path.endswith(".c") and path not in (MAIN_FILE, _EMPTY_APP):
            sources.add(path)
    facts["runtime_sources"] = sorted(sources)
    content["board/board.json"] = json.dumps(facts, indent=2) + "\n"
    return SourceTree(content)


def use_custom_main(project: SourceTree, main: str) -> SourceTree:
    """Return `project` with the C text `main`, which defines the pools and main()."""
    port = json.loads(str(project.files["board/board.json"]))["port"]
    files = {MAIN_FILE: main}
    for file in (_EMPTY_APP, _STOP):
        template = f"custom-main/{PurePosixPath(file).name}.j2"
        files[file] = render_template("firmwright.package", template, port=port)
    return replace_main_loop(project, files)
