"""Projects with a worst-case bound in metadata.json and in a header."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from firmwright.artifacts import StackUsage
from firmwright.cli.bound import format_summary
from firmwright.cli.main import main
from firmwright.flows.measure.time_bound import TimeBound
from firmwright.targets.path_analysis import WorstPath


def test_a_measurement_above_the_bound_is_explained_by_the_counter() -> None:
    stack, path = StackUsage("run", 8, ()), WorstPath(117_943, 0.0, (), {}, {})
    bound = TimeBound("digits", "b", 117_943, None, (), stack, path)
    text = " ".join(format_summary(bound, None, 40).split())
    assert "steps of 40, so it may show up to 40 more" in text
    assert "counter" not in format_summary(bound, None)


@pytest.mark.qemu
def test_a_project_has_the_bound_and_can_be_reproduced(
    digits_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, board = tmp_path / "out", ("--board", "mps2-an386")
    assert main(["bound", str(digits_path), *board, "-o", str(folder), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    metadata = json.loads((folder / "metadata.json").read_text())
    bound = metadata["bound"]
    assert "model/digits_bound.h" in metadata["files"]
    assert printed.items() >= bound.items()
    source = tmp_path / "limits.c"
    limits = ("RUN_MAX_INSTRUCTIONS", "RUN_MAX_CYCLES", "RUN_MAX_STACK_BYTES")
    words = " ".join(
        f"DIGITS_{limit}" for limit in (*limits, "OPERATOR_MAX_INSTRUCTIONS")
    )
    source.write_text(f'#include "digits_bound.h"\n{words}\n')
    compiler = shutil.which("arm-none-eabi-gcc") or "cc"
    command = [compiler, "-E", "-P", f"-I{folder / 'model'}", str(source)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    longest = bound["longest_operator"]
    numbers = [bound["instructions"], bound["cycles"], bound["stack_bytes"]]
    assert text.split() == [
        f"{number}u" for number in (*numbers, longest["instructions"])
    ]
    assert longest == max(
        bound["operators"], key=lambda operator: operator["instructions"]
    )

    assert main(["reproduce", str(folder), str(digits_path)]) == 0
