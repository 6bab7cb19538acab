"""The smallest image within a time, the fastest within bytes; calls sharing code."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from firmwright.base.errors import DoesNotFitError
from firmwright.choose import thresholds
from firmwright.choose.flash_budget import CandidatesPerCall, CodeKey
from firmwright.choose.image_search import ImageSearch, within_time
from firmwright.ir import tir
from firmwright.ir.graph.nodes import Call
from firmwright.ops.schedule import NO_CONFIG, LoweringCandidate


def offers(*calls: tuple[tuple[str, int, int, int], ...]) -> CandidatesPerCall:
    """Return calls with candidates (name of code, instructions, constants, code)."""
    return [
        (
            Call("relu", (), ()),
            tuple(
                LoweringCandidate(
                    "r",
                    NO_CONFIG,
                    tir.PrimFunc(name, (), tir.Seq(())),
                    {},
                    0,
                    flash,
                    code,
                    time,
                )
                for name, time, flash, code in own
            ),
        )
        for own in calls
    ]


def names(calls: CandidatesPerCall, time_max: int) -> list[str]:
    return names_of(search(calls).smallest_within(time_max))


def search(calls: CandidatesPerCall) -> ImageSearch:
    return ImageSearch(calls, lambda kernel: CodeKey(kernel.name))


def names_of(chosen: CandidatesPerCall) -> list[str]:
    return [item.function.name for _, own in chosen for item in own]


def test_code_that_several_calls_share_counts_once() -> None:
    calls = offers(
        *[(("shared", 12, 0, 900), (f"own{i}", 10, 0, 500)) for i in range(3)]
    )
    assert names(calls, 36) == ["shared"] * 3
    assert names(calls[:1], 36) == ["own0"]
    assert names(calls, 31) == ["own0", "own1", "own2"]


@pytest.mark.parametrize("seed", range(10))
def test_the_image_is_near_the_optimum_within_the_time(seed: int) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    calls = offers(
        *[
            tuple(
                (
                    str(rng.integers(3)),
                    int(rng.integers(50, 300)),
                    int(rng.integers(900)),
                    400,
                )
                for _ in range(4)
            )
            for _ in range(4)
        ]
    )

    def image(items: tuple[LoweringCandidate, ...]) -> int:
        return sum(i.flash_bytes for i in items) + 400 * len(
            {i.function.name for i in items}
        )

    every = [own for _, own in calls]
    limit = sum(min(item.time for item in own) for own in every) * 3 // 2
    best = min(image(p) for p in product(*every) if sum(i.time for i in p) <= limit)
    found = search(calls).smallest_within(limit)
    picked = tuple(item for _, own in found for item in own)
    assert sum(item.time for item in picked) <= limit
    assert image(picked) <= 1.35 * best


def test_the_fastest_image_within_the_budget_shares_code_if_it_must() -> None:
    calls = offers(
        *[(("shared", 12, 0, 900), (f"own{i}", 10, 0, 500)) for i in range(3)]
    )
    rest = 3 * thresholds.CALL_CODE_BYTES + thresholds.MAIN_CODE_BYTES
    own, shared = (
        rest + code * thresholds.CODE_MARGIN_PERCENT // 100 for code in (1500, 900)
    )
    assert names_of(search(calls).fastest_within(own)) == ["own0", "own1", "own2"]
    assert names_of(search(calls).fastest_within(own - 1)).count("shared") == 2
    assert names_of(search(calls).fastest_within(shared)) == ["shared"] * 3
    with pytest.raises(DoesNotFitError, match=f"at least {shared} bytes"):
        search(calls).fastest_within(shared - 1)


@pytest.mark.parametrize("saved", [None, 0, 300])
def test_errors_give_sizes_after_the_coding_of_weights(saved: int | None) -> None:
    calls = offers((("kernel", 12, 400, 600),))
    least = 400 + 600 * thresholds.CODE_MARGIN_PERCENT // 100 - (saved or 0)
    least += thresholds.CALL_CODE_BYTES + thresholds.MAIN_CODE_BYTES
    assert names_of(search(calls).fastest_within(least, saved)) == ["kernel"]
    match = f"at least {least} bytes of flash, as predicted, and may take {least - 1}"
    with pytest.raises(DoesNotFitError, match=match) as error:
        search(calls).fastest_within(least - 1, saved)
    assert f"--flash {least}, " in str(error.value.hint)
    assert ("--compress-weights" in str(error.value.hint)) == (saved is None)


@pytest.mark.parametrize("seed", range(10))
def test_the_time_is_near_the_optimum_within_the_budget(seed: int) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    calls = offers(
        *[
            tuple(
                (f"{k}{at}", int(rng.integers(50, 300)), int(rng.integers(900)), 0)
                for at in range(4)
            )
            for k in range(4)
        ]
    )
    every = [own for _, own in calls]
    budget = sum(min(item.flash_bytes for item in own) for own in every) * 3 // 2
    fitting = [p for p in product(*every) if sum(i.flash_bytes for i in p) <= budget]
    rest = 4 * thresholds.CALL_CODE_BYTES + thresholds.MAIN_CODE_BYTES
    found = [
        item for _, own in search(calls).fastest_within(budget + rest) for item in own
    ]
    assert sum(item.flash_bytes for item in found) <= budget
    assert sum(i.time for i in found) <= 1.1 * min(
        sum(i.time for i in p) for p in fitting
    )


@pytest.mark.parametrize(("uses", "is_shared"), [(0, True), (50, False)])
def test_kernels_that_would_become_slow_share_no_code(
    uses: int, is_shared: bool
) -> None:
    calls = offers(*[((f"kernel{i}", 100, 0, 900),) for i in range(2)])
    keys = {f"kernel{i}": CodeKey("code", ((i, uses),)) for i in range(2)}
    found = ImageSearch(calls, lambda kernel: keys[kernel.name])
    budget = 2 * thresholds.CALL_CODE_BYTES + thresholds.MAIN_CODE_BYTES + 1_000
    if is_shared:
        assert names_of(found.fastest_within(budget)) == ["kernel0", "kernel1"]
        return
    with pytest.raises(DoesNotFitError):
        found.fastest_within(budget)


def test_balanced_images_share_code_that_hardly_takes_time() -> None:
    calls = offers(
        *[(("shared", 1005, 0, 900), (f"own{i}", 1000, 0, 500)) for i in range(3)]
    )
    found = search(calls)
    fastest = found.image_of([(call, own[1:]) for call, own in calls])
    assert fastest.picks == (1, 1, 1)
    balanced = found.balanced_with(fastest, time_max=3030)
    assert names_of(balanced.chosen_of(calls)) == ["shared"] * 3
    assert balanced.size_bytes < fastest.size_bytes
    assert found.balanced_with(fastest, time_max=3014).time <= 3014


def test_only_kernels_with_equal_forms_need_keys() -> None:
    calls = offers(
        *[(("shared", 1005, 0, 900), (f"own{i}", 1000, 0, 500)) for i in range(3)]
    )
    keyed: list[str] = []

    def key(kernel: tir.PrimFunc) -> CodeKey:
        keyed.append(kernel.name)
        return CodeKey(kernel.name)

    found = ImageSearch(calls, key, lambda kernel: CodeKey(kernel.name))
    fastest = found.image_of([(call, own[1:]) for call, own in calls])
    assert fastest == search(calls).image_of([(c, own[1:]) for c, own in calls])
    assert keyed == ["shared"] * 3


def test_kernels_that_alone_take_too_much_time_are_left_out() -> None:
    calls = offers(
        (("a", 100, 0, 9), ("b", 110, 0, 9), ("c", 111, 0, 9)), (("d", 50, 0, 9),)
    )
    assert names_of(within_time(calls, 160)) == ["a", "b", "d"]


def test_balanced_images_are_never_larger() -> None:
    """A kernel that is twice as fast does not count if it takes more flash."""
    calls = offers((("fast", 500, 400, 200), ("small", 1000, 0, 200)))
    found = search(calls)
    small = found.image_of([(call, own[1:]) for call, own in calls])
    assert found.balanced_with(small, time_max=2000) is small


def test_a_program_without_a_kernel_has_an_image() -> None:
    found = search(offers(()))
    empty = found.image_of(offers(()))
    assert empty.time == 0
    assert found.balanced_with(empty, time_max=0) is empty
