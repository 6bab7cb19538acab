"""The files of the NPU's model call each other in one direction."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "toolchain" / "firmwright" / "extensions" / "ethos_u" / "c"
_CALL = re.compile(r"\b((?:npu|ethosu)_[a-z0-9_]+)\(")
_DEFINITION = re.compile(
    r"^\w[\w *]*?\b((?:npu|ethosu)_[a-z0-9_]+)\([^;]*?\)\n\{", re.MULTILINE
)


def test_no_file_of_the_npu_calls_a_file_that_calls_it() -> None:
    texts = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.c")}
    home = {
        name: file for file, text in texts.items() for name in _DEFINITION.findall(text)
    }
    calls = {
        file: {home[name] for name in _CALL.findall(text) if name in home} - {file}
        for file, text in texts.items()
    }
    # Raises CycleError for a circle.
    order = list(TopologicalSorter(calls).static_order())
    assert (
        order.index("npu_errors.c")
        < order.index("npu_memory.c")
        < order.index("npu_stream.c")
    )
