"""Whether a program fits a budget is answered as its compilation would be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.base.errors import DoesNotFitError
from firmwright.ir.module import IRModule
from firmwright.lower.lowering import Lowering
from firmwright.pipeline import Options, load_module, lower_program
from firmwright.pipeline.program_existence import has_program
from firmwright.pipeline.selection_oracle import SelectionMemo
from tests.fuzz.random_networks import random_network

OPTIONS = Options(board="mps2-an386")
PERCENTAGES = (40, 80, 100)
"""Budgets in percent of the need without a budget."""


def workspace_bytes(module: IRModule, options: Options) -> int | None:
    try:
        return lower_program(module, options).module.memory_plan.workspace_bytes
    except DoesNotFitError:
        return None


def check_answers(module: IRModule) -> set[bool]:
    """Compare the answers for several budgets with compilations; return them."""
    need_bytes = workspace_bytes(module, OPTIONS)
    assert need_bytes is not None
    memo, answers = SelectionMemo(), set[bool]()
    for percent in PERCENTAGES:
        budget = replace(OPTIONS, ram_bytes=max(need_bytes * percent // 100, 1))
        answer = has_program(module, budget, memo)
        assert answer == (workspace_bytes(module, budget) is not None), percent
        answers.add(answer)
    return answers


@pytest.mark.sampled(2)
def test_random_networks_fit_as_they_compile(deep: bool) -> None:
    answers = set[bool]()
    for seed in range(100 if deep else 2):
        answers |= check_answers(random_network(seed))
    assert answers == {True, False}


def test_a_model_fits_as_it_compiles(digits_path: Path) -> None:
    assert check_answers(load_module(digits_path)) == {True, False}


def test_no_kernel_is_built_for_a_budget_below_every_tensor(
    digits_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_module(digits_path)

    def fail(lowering: Lowering) -> None:
        raise AssertionError("the largest tensor alone exceeds the budget")

    monkeypatch.setattr(Lowering, "calls", fail)
    budget = replace(OPTIONS, ram_bytes=200)
    assert not has_program(module, budget, SelectionMemo())
