"""The files of the runtime call each other in one direction."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

from tests.c_call_order import calls_between_files

RUNTIME = Path(__file__).resolve().parents[2] / "runtime_c"
_LISTED = re.compile(r"^ \* (fwr_server\w*\.c) ", re.MULTILINE)
_CALLBACKS = {"fwr_server_tap", "fwr_fault", "fwr_watchdog_expired"}
"""The functions that probes and ports call: they enter the server from below."""


def test_no_file_of_the_runtime_calls_a_file_that_calls_it() -> None:
    calls = calls_between_files(RUNTIME, "fwr", ignored=_CALLBACKS)
    assert "fwr_server_frames.c" in calls["fwr_server_fault.c"]
    TopologicalSorter(calls).prepare()  # raises CycleError for a circle

    header = (RUNTIME / "fwr_server_internal.h").read_text(encoding="utf-8")
    listed = _LISTED.findall(header)
    assert set(listed) == {file for file in calls if file.startswith("fwr_server")}
    for file in listed:
        below = listed[listed.index(file) + 1 :]
        assert not calls[file] & set(below), (
            f"{file} calls a file that the header lists below it"
        )
