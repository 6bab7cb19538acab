"""The files of the runtime call each other in one direction."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

RUNTIME = Path(__file__).resolve().parents[2] / "runtime_c"
_CALL = re.compile(r"\b(fwr_[a-z0-9_]+)\(")
_DEFINITION = re.compile(r"^\w[\w *]*?\b(fwr_[a-z0-9_]+)\([^;]*?\)\n\{", re.MULTILINE)
_LISTED = re.compile(r"^ \* (fwr_server\w*\.c) ", re.MULTILINE)
_CALLBACKS = {"fwr_server_tap", "fwr_fault", "fwr_watchdog_expired"}
"""The functions that probes and ports call: they enter the server from below."""


def test_no_file_of_the_runtime_calls_a_file_that_calls_it() -> None:
    texts = {
        file.name: file.read_text(encoding="utf-8") for file in RUNTIME.glob("*.c")
    }
    home = {
        name: file for file, text in texts.items() for name in _DEFINITION.findall(text)
    }
    assert home["fwr_server_reply"] == "fwr_server_frames.c"
    calls = {
        file: {
            home[name]
            for name in _CALL.findall(text)
            if name in home.keys() - _CALLBACKS
        }
        - {file}
        for file, text in texts.items()
    }
    TopologicalSorter(calls).prepare()  # raises CycleError for a circle

    header = (RUNTIME / "fwr_server_internal.h").read_text(encoding="utf-8")
    listed = _LISTED.findall(header)
    assert set(listed) == {file for file in texts if file.startswith("fwr_server")}
    for file in listed:
        below = listed[listed.index(file) + 1 :]
        assert not calls[file] & set(below), (
            f"{file} calls a file that the header lists below it"
        )
