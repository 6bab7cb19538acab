"""Whole models with every access of their C held against the memory plan, byte by byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from firmwright.flows.verifying import verify
from firmwright.flows.watching import open_watched
from firmwright.pipeline import Compiled

Compile = Callable[..., Compiled]

MODELS = ("ad", "ic", "kws", "vww", "ww")
CORES = ("cortex-m4", "cortex-m55", "cortex-m0")
GOALS = ("balanced", "ram", "speed")
ALWAYS = {("kws", "cortex-m4", "ram"), ("ww", "cortex-m55", "balanced")}
CASES = [
    pytest.param(*case, marks=[] if case in ALWAYS else [pytest.mark.deep])
    for case in ((model, core, goal) for model in MODELS for core in CORES for goal in GOALS)
]


@pytest.mark.models
@pytest.mark.host_c
@pytest.mark.parametrize(("model", "core", "goal"), CASES)
def test_every_byte_that_is_read_is_its_buffers_own(
    model: str, core: str, goal: str, compiled: Compile
) -> None:
    done = compiled(model, board="host", target=f"cortex-m -mcpu={core}", optimize=goal)
    found = verify(done, samples=2, open_with=open_watched)
    assert (found.samples, found.mismatches) == (2, 0)
