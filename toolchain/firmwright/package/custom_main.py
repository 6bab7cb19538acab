"""Projects whose main program is not our loop: somebody's own, or a benchmark's.

In: a project's files. Out: the project with other files in the place of `fwr_main.c` and those of
the loop. Start-up, drivers, linker script and the models are the same. Invariant: every C file
outside of model/ that is to be compiled is listed in board.json, but for the glue, which the
SConstruct names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from firmwright.artifacts import SourceTree

MAIN_FILE: Final = "firmware/fwr_app.c"
_EMPTY_APP: Final = "firmware/fwr_app_empty.c"
_STOP: Final = "firmware/fwr_stop.c"
_REPLACED: Final = re.compile(r"runtime/fwr_(main|loop|loop_\w+)\.c")

_EMPTY_TEXT: Final = """\
/* fwr_app_empty.c: a firmware that does nothing, to tell what the own one adds. */
int main(void)
{
    return 0;
}
"""
_STOP_TEXT: Final = """\
/* fwr_stop.c: without a link nobody can be told of a fault: the firmware stops. */
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
    """`project` with `files` in the place of our main and loop."""
    content = {path: text for path, text in project.files.items() if not _REPLACED.fullmatch(path)}
    content |= files
    facts = json.loads(str(content["board/board.json"]))
    kept = [name for name in facts["runtime_sources"] if not _REPLACED.fullmatch(name)]
    added = [path for path in files if path.endswith(".c") and path not in (MAIN_FILE, _EMPTY_APP)]
    facts["runtime_sources"] = sorted({*kept, *added})
    content["board/board.json"] = json.dumps(facts, indent=2) + "\n"
    return SourceTree(content)


def use_custom_main(project: SourceTree, main: str) -> SourceTree:
    """`project` whose main() is in the C text `main`, which has the models' pools too."""
    return replace_main_loop(project, {MAIN_FILE: main, _EMPTY_APP: _EMPTY_TEXT, _STOP: _STOP_TEXT})
