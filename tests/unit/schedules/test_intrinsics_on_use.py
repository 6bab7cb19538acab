"""Intrinsics of large families are made when a program uses them."""

from __future__ import annotations

from dataclasses import replace

from firmwright.ir.tir.intrinsic import Intrinsic, IntrinsicFamilies, IntrinsicsOnUse
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.schedules.registry import INTRINSICS

SOME = next(iter(BASE_INTRINSICS.values()))


def test_an_intrinsic_is_made_once_and_only_when_it_is_used() -> None:
    made = list[str]()

    def make() -> Intrinsic:
        made.append("late")
        return replace(SOME, name="late")

    table = IntrinsicsOnUse(lambda: IntrinsicFamilies({SOME.name: SOME}, {"late": make}))
    assert list(table) == [SOME.name, "late"]
    assert "late" in table
    assert table.get("unknown") is None
    assert made == []
    assert table["late"] is table["late"]
    assert made == ["late"]


def test_every_intrinsic_has_the_name_under_which_it_is_found() -> None:
    assert [name for name, item in INTRINSICS.items() if item.name != name] == []
