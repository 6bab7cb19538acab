"""No run-time error for any input, by Frama-C, a program that is not ours.

The sources are those of the firmware: their portable form, which
`-DNAME_NO_INLINE_ASM` selects.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.flows.certify.run_time_errors import Analysis, analyze
from firmwright.pipeline import Compilation
from tests.review.misra import MODELS

Compile = Callable[..., Compilation]
SECONDS_MAX = 1200
REACHED_MIN = 0.99
BOARDS = ("mps2-an386", "qemu-riscv32-virt")
PLANTED = {
    "\\valid": ("for (int32_t row = 0; row < 8;", "for (int32_t row = 0; row < 90;"),
    "acc0 * 256": ("(int32_t)((uint32_t)acc0 << 8)", "acc0 * 256"),
    "headroom < 32": ("zeros < 31", "zeros < 32"),
}
"""Edits of the C that cause an alarm, by a part of its claim."""


@pytest.fixture(autouse=True)
def _tool(request: pytest.FixtureRequest) -> None:
    if not shutil.which("frama-c"):
        reason = "needs frama-c, not found on PATH"
        if request.config.getoption("--require-tools"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture
def written(
    compiled: Compile, tmp_path: Path
) -> Callable[[str, str], tuple[Path, str]]:
    """`written("kws", board)`: the folder of that model's C, and its C prefix."""

    def write(model: str, board: str) -> tuple[Path, str]:
        compilation = compiled(model, board=board, analysis_hints=True)
        compilation.save(tmp_path / board)
        return tmp_path / board / "model", compilation.c_prefix

    return write


def assert_proven(analysis: Analysis) -> None:
    assert analysis.alarms == ()
    assert analysis.reached >= REACHED_MIN * analysis.statements


def test_no_input_of_a_small_model_causes_a_run_time_error(
    written: Callable[[str, str], tuple[Path, str]],
) -> None:
    assert_proven(analyze(*written("digits", "mps2-an386"), SECONDS_MAX))


def test_planted_errors_are_alarms(
    written: Callable[[str, str], tuple[Path, str]],
) -> None:
    folder, name = written("digits", "mps2-an386")
    source = folder / f"{name}.c"
    text = source.read_text()
    for before, after in PLANTED.values():
        assert before in text
        text = text.replace(before, after, 1)
    source.write_text(text)
    claims = [alarm.claim for alarm in analyze(folder, name, SECONDS_MAX).alarms]
    for kind in PLANTED:
        assert any(kind in claim for claim in claims), kind


@pytest.mark.deep
@pytest.mark.models
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("model", MODELS)
def test_no_input_of_the_five_models_causes_a_run_time_error(
    model: str, board: str, written: Callable[[str, str], tuple[Path, str]]
) -> None:
    assert_proven(analyze(*written(model, board), SECONDS_MAX))
