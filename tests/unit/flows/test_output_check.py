"""A report states that outputs equal the reference only if this run compared them."""

from datetime import date
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.base.source_date import output_date, source_date_s
from firmwright.flows.board.model_session import ModelSession, open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.evaluation import evaluate
from firmwright.flows.verify.output_check import (
    check_generated_samples,
    checked_by_evaluation,
)
from firmwright.pipeline import Compilation

DAY = date(2026, 11, 29)
EXAMPLE = Path(__file__).resolve().parents[3] / "examples/01_digits"


@pytest.fixture(scope="module")
def digits() -> Compilation:
    return compile_for(load_model(EXAMPLE / "digits.tflite"), "host")


@pytest.mark.host_c
def test_generated_samples_are_compared_with_the_reference(digits: Compilation):
    check = check_generated_samples(digits, "firmwright report m", DAY, samples=3)
    assert check.passed
    assert check.verdict.startswith("Bit-exact with LiteRT BUILTIN_REF ")
    assert check.verdict.endswith(" on 3 samples")
    assert (check.command, check.date) == ("firmwright report m", "2026-11-29")


@pytest.mark.host_c
def test_a_wrong_output_is_counted(
    digits: Compilation, monkeypatch: pytest.MonkeyPatch
):
    run_all = ModelSession.run_all

    def run_wrongly(session: ModelSession, samples: object) -> object:
        outputs = run_all(session, samples)  # type: ignore[arg-type] # any sequence
        outputs[1]["digit"].flat[0] ^= 1
        return outputs

    monkeypatch.setattr(ModelSession, "run_all", run_wrongly)
    check = check_generated_samples(digits, "", DAY, samples=3, open_with=open_session)
    assert not check.passed
    assert check.verdict.startswith("Differs from LiteRT BUILTIN_REF ")
    assert check.verdict.endswith(" in 1 value of 3 samples")


@pytest.mark.host_c
def test_an_evaluation_includes_a_comparison(digits: Compilation):
    evaluation = evaluate(digits, EXAMPLE / "digits_test.npz", samples=5)
    check = checked_by_evaluation(digits, evaluation, "", DAY)
    assert check.passed
    assert check.verdict.endswith(" on 5 samples")
    assert check.data.endswith("digits_test.npz")


def test_the_date_of_outputs_is_fixed_by_the_environment():
    assert output_date({"SOURCE_DATE_EPOCH": "0"}) == date(1970, 1, 1)
    assert source_date_s({}) is None
    with pytest.raises(UsageError, match="is not a number of seconds"):
        output_date({"SOURCE_DATE_EPOCH": "-1"})
