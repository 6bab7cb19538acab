"""The files of the NPU's model call each other in one direction."""

from __future__ import annotations

from graphlib import TopologicalSorter
from pathlib import Path

from tests.c_call_order import calls_between_files

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "toolchain" / "firmwright" / "extensions" / "ethos_u" / "c"


def test_no_file_of_the_npu_calls_a_file_that_calls_it() -> None:
    calls = calls_between_files(FOLDER, "npu|ethosu")
    order = list(TopologicalSorter(calls).static_order())  # raises CycleError
    assert (
        order.index("npu_errors.c")
        < order.index("npu_memory.c")
        < order.index("npu_stream.c")
    )
