"""The variants of conformance cases have the results of the reference runtime."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import pytest

from firmwright.conformance.case_tables import ConformanceCase
from firmwright.conformance.case_variants import case_variants
from firmwright.ir.settings import NumericsProfile
from firmwright.ops.registry import op_table
from tests.ops.reference_answers import Array, ask_together
from tests.ops.state_samples import run_samples
from tests.ops.test_ops import PROFILES, assert_agrees, call_of


def variants(op: str) -> list[ConformanceCase]:
    return list(chain.from_iterable(case_variants(op).values()))


VARIED = [op for op in op_table() if variants(op)]
IN_THE_GATE = ("conv2d", "fully_connected", "max_pool2d", "add")


@pytest.mark.parametrize(
    ("op", "numerics"),
    [
        pytest.param(op, numerics, marks=[] if is_cheap else [pytest.mark.deep])
        for op in VARIED
        for numerics in PROFILES
        for is_cheap in [op in IN_THE_GATE and numerics == "litert"]
        if any(numerics in case.oracles for case in variants(op))
    ],
)
def test_numpy_equals_the_runtime_on_variants(
    op: str,
    numerics: NumericsProfile,
    draw: Callable[[ConformanceCase], list[list[Array]]],
) -> None:
    cases = [case for case in variants(op) if numerics in case.oracles]
    answers = ask_together(cases, numerics, draw)
    for case, answer in zip(cases, answers, strict=True):
        call, state = call_of(case, numerics)
        computed = run_samples(call, state, draw(case))
        for (arrays, results), expected in zip(computed, answer.outputs, strict=True):
            assert_agrees(call, arrays, results[: len(expected)], expected)


def test_operators_with_weights_have_each_kind_of_variant() -> None:
    for op in ("conv2d", "depthwise_conv2d", "fully_connected"):
        by_kind = case_variants(op)
        names = [case.name for case in variants(op)]
        assert len(names) == len(set(names))
        # A convolution without a bias is no valid model, a layer has no images.
        missing = {"conv2d": "no_bias", "fully_connected": "two_images"}.get(op)
        few = [kind for kind, cases in by_kind.items() if len(cases) < 3]
        assert few == ([missing] if missing else [])
    assert len(VARIED) >= 52
