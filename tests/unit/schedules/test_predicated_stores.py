"""No store before a predicated store is lost, which gcc 12.2 takes for a whole one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import firmwright
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.registry import INTRINSICS
from tests.fuzz.option_combinations import Combination
from tests.fuzz.test_option_combinations import differing, random_model, run_image

SCHEDULES = Path(firmwright.__file__).parent / "schedules"
STORE = re.compile(r"(?:vst[a-z0-9]*(?:\$\{\w+\})?q|\$\{store\}q)_p_\w+\(([^,]+),")


def check_stores(lines: Sequence[str], place: str) -> int:
    """Check the statement before each predicated store; return how many there are."""
    found = 0
    for before, line in itertools.pairwise(lines):
        store = STORE.search(line)
        if store is not None:
            assert before.strip() == f"KEEP_STORES({store[1]});", f"{place}: {line}"
            found += 1
    return found


def test_every_predicated_store_comes_after_keep_stores() -> None:
    found = 0
    for file in sorted(SCHEDULES.rglob("*.c.in")):
        found += check_stores(file.read_text().splitlines(), file.name)
    for item in INTRINSICS.values():
        if item.requires.startswith("mve"):
            lines = item.text["gnu"].splitlines()
            found += check_stores(lines, item.name)
    assert found >= 14
    assert not [
        file for file in SCHEDULES.rglob("*.py") if STORE.search(file.read_text())
    ]


def test_an_intrinsic_defines_the_macro_if_its_assembly_uses_it() -> None:
    for item in INTRINSICS.values():
        is_used = "KEEP_STORES(" in item.text.get("gnu", "")
        assert (KEEP_STORES in item.definitions) == is_used, item.name


@pytest.mark.qemu
def test_a_border_that_is_filled_before_a_predicated_store_stays() -> None:
    """The padding of ten bytes of a row band, whose first three are stored again."""
    model = random_model(2801, "uint8")
    assert model is not None
    outputs = run_image(
        [model], Combination("mps3-an547", "gcc", 1, False, {"optimize": "ram"})
    )
    assert differing([model], outputs) == []
    assert all(np.size(value) for value in outputs[0][0].values())
