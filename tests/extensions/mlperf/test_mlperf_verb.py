"""The output of `mlperf`, and its usage errors."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firmwright.boards import load_board
from firmwright.extensions.mlperf.benchmark import BenchmarkScore
from firmwright.extensions.mlperf.mlperf import format_summary, score_to_json

SCORE = BenchmarkScore(
    "kws", "Firmwright", 4, 0.75, None, 400.0, 2500.0, ((0.5, 0.25),), ()
)


def compiled(board: str) -> Any:
    return SimpleNamespace(
        module=SimpleNamespace(name="m"), board=load_board(board), firmware_main=None
    )


def test_score_states_the_origin_of_its_times():
    told = format_summary(SCORE, compiled("mps2-an386"))
    for words in (
        "75.0 %",
        "2,500.0 us",
        "400.00",
        "the emulator's: 1,000 instructions are 1 us",
    ):
        assert words in told
    assert "area" not in told  # all samples of one class
    assert "emulator" not in format_summary(SCORE, compiled("nucleo-l4r5zi"))
    data = score_to_json(SCORE, compiled("mps2-an386"))
    assert {
        "task": "kws",
        "top1": 0.75,
        "auc": None,
        "inferences_per_second": 400.0,
    }.items() <= (data.items())


@pytest.mark.parametrize("words", [[], ["--dataset", "x", "--serve"]])
def test_exactly_one_of_dataset_and_serve_is_needed(
    words: list[str], fw, digits_path: Path
):
    said = fw("mlperf", digits_path, *words)
    assert said.status == 2
    assert "exactly one of --dataset and --serve is needed." in said.err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("build", "--firmware", "mlperf", "--variant", "debug"), "has no debug image"),
        (
            ("run", "--samples", "1", "--in-process", "--variant", "debug"),
            "has no debug image",
        ),
        (
            ("compile", "--emit-step-api", "--stream-input-rows"),
            "--stream-input-rows and --emit-step-api do not go together",
        ),
    ],
)
def test_exclusive_options_are_usage_errors(
    words: tuple[str, ...], what: str, fw, digits_path: Path
):
    said = fw(words[0], digits_path, *words[1:])
    assert said.status == 2
    assert what in said.err
