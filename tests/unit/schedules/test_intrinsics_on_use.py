"""Intrinsics are made, and schedules imported, when a program can use them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import partial

from firmwright.ir.tir.intrinsic import Intrinsic, IntrinsicFamilies, IntrinsicsOnUse
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.schedules.registry import FAMILIES, SCHEDULES, schedules_for

SOME = next(iter(BASE_INTRINSICS.values()))


def test_an_intrinsic_is_made_once_and_only_when_it_is_used() -> None:
    made = list[str]()

    def make() -> Intrinsic:
        made.append("late")
        return replace(SOME, name="late")

    table = IntrinsicsOnUse(
        lambda: IntrinsicFamilies({SOME.name: SOME}, {"late": make})
    )
    assert list(table) == [SOME.name, "late"]
    assert "late" in table
    assert table.get("unknown") is None
    assert made == []
    assert table["late"] is table["late"]
    assert made == ["late"]


def test_parts_are_read_until_the_name_is_found() -> None:
    read = list[str]()

    def part(name: str) -> IntrinsicFamilies:
        read.append(name)
        return IntrinsicFamilies({name: replace(SOME, name=name)}, {})

    table = IntrinsicsOnUse(
        *(partial(part, name) for name in ("first", "second", "third"))
    )
    assert table["second"].name == "second"
    assert read == ["first", "second"]
    assert "unknown" not in table
    assert list(table) == read == ["first", "second", "third"]


def test_a_family_with_features_has_no_schedules_for_other_targets() -> None:
    for family in FAMILIES:
        if family.features:
            assert all(
                schedule.requires & family.features for schedule in family.schedules()
            )
    every = frozenset().union(*(family.features for family in FAMILIES))
    assert list(schedules_for(every)) == list(SCHEDULES)


def test_a_target_without_vectors_loads_no_schedules_for_them() -> None:
    code = """
import sys
from firmwright.schedules.registry import INTRINSICS, schedules_for

assert schedules_for(frozenset({"dsp", "fpu"}))
assert "smmla" in INTRINSICS
print(*(name for name in sys.modules if name.startswith("firmwright.schedules.")))
"""
    command = [sys.executable, "-P", "-c", code]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    )
    packages = {name.split(".")[2] for name in printed.stdout.split()}
    assert "cortex_m_dsp" in packages
    loaded = [name for name in printed.stdout.split() if name.count(".") == 3]
    assert not [
        name
        for name in loaded
        if name.split(".")[2] in {"helium", "helium_floats", "rvv", "rvv_floats"}
    ]
