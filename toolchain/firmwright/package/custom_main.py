"""Projects whose main program is not the server loop but the user's or a benchmark's."""

import json
import re
from collections.abc import Mapping
from typing import Final

from firmwright.artifacts import SourceTree

MAIN_FILE: Final = "firmware/fwr_app.c"
_EMPTY_APP: Final = "firmware/fwr_app_empty.c"
_STOP: Final = "firmware/fwr_stop.c"
_REPLACED: Final = re.compile(r"runtime/fwr_(main|server|server_\w+)\.c")

_EMPTY_TEXT: Final = """\
/* fwr_app_empty.c: an empty program; the size of firmware is measured against it. */
int main(void)
{
    return 0;
}
"""
_STOP_TEXT: Final = """\
/* fwr_stop.c: without a link a fault cannot be reported, so the firmware stops. */
#include "port/fwr_port.h"

FWR_NORETURN void fwr_fault(const struct fwr_fault *fault)
{
    (void)fault;
    fwr_port_fatal();
}

FWR_NORETURN void fwr_watchdog_expired(const struct fwr_fault *fault)
{
    (void)fault;
    fwr_port_reset();
}
"""


def replace_main_loop(project: SourceTree, files: Mapping[str, str | bytes]) -> SourceTree:
    """Return `project` with `files` instead of `fwr_main.c` and the server loop."""
    content = {path: text for path, text in project.files.items() if not _REPLACED.fullmatch(path)}
    content |= files
    facts = json.loads(str(content["board/board.json"]))
    remaining = [name for name in facts["runtime_sources"] if not _REPLACED.fullmatch(name)]
    added = [path for path in files if path.endswith(".c") and path not in (MAIN_FILE, _EMPTY_APP)]
    facts["runtime_sources"] = sorted({*remaining, *added})
    content["board/board.json"] = json.dumps(facts, indent=2) + "\n"
    return SourceTree(content)


def use_custom_main(project: SourceTree, main: str) -> SourceTree:
    """Return `project` with the C text `main`, which defines the pools and main()."""
    return replace_main_loop(project, {MAIN_FILE: main, _EMPTY_APP: _EMPTY_TEXT, _STOP: _STOP_TEXT})
