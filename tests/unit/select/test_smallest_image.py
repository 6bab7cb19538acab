"""The smallest image within a time, compared with enumeration; calls that share code."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from firmwright.ir import tir
from firmwright.ir.graph.nodes import Call
from firmwright.ir.tir.schedule import LoweringCandidate
from firmwright.select.flash_budget import CandidatesPerCall
from firmwright.select.smallest_image import SmallestImage


def offers(*calls: tuple[tuple[str, int, int, int], ...]) -> CandidatesPerCall:
    """Return calls with candidates (name of the code, instructions, constants, code)."""
    return [
        (
            Call("relu", (), ()),
            tuple(
                LoweringCandidate(
                    "r", {}, tir.PrimFunc(name, (), tir.Seq(())), {}, 0, flash, code, time
                )
                for name, time, flash, code in own
            ),
        )
        for own in calls
    ]


def names(calls: CandidatesPerCall, time_max: int) -> list[str]:
    chosen = SmallestImage(calls, lambda kernel: kernel.name, time_max).choose()
    return [item.function.name for _, own in chosen for item in own]


def test_code_that_several_calls_share_counts_once() -> None:
    calls = offers(*[(("shared", 12, 0, 900), (f"own{i}", 10, 0, 500)) for i in range(3)])
    assert names(calls, 36) == ["shared"] * 3
    assert names(calls[:1], 36) == ["own0"]
    assert names(calls, 31) == ["own0", "own1", "own2"]


@pytest.mark.parametrize("seed", range(10))
def test_the_image_is_near_the_optimum_within_the_time(seed: int) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    calls = offers(
        *[
            tuple(
                (str(rng.integers(3)), int(rng.integers(50, 300)), int(rng.integers(900)), 400)
                for _ in range(4)
            )
            for _ in range(4)
        ]
    )

    def image(items: tuple[LoweringCandidate, ...]) -> int:
        return sum(i.flash_bytes for i in items) + 400 * len({i.function.name for i in items})

    every = [own for _, own in calls]
    limit = sum(min(item.time for item in own) for own in every) * 3 // 2
    best = min(image(p) for p in product(*every) if sum(i.time for i in p) <= limit)
    found = SmallestImage(calls, lambda kernel: kernel.name, limit).choose()
    picked = tuple(item for _, own in found for item in own)
    assert sum(item.time for item in picked) <= limit
    assert image(picked) <= 1.35 * best
