"""The functions that write kernels state the type of the builder they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest

from firmwright.base.dtypes import Array
from firmwright.ir import tir
from firmwright.ir.graph import OpCall
from firmwright.ir.tir.builder import Builder
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef, RowReduction
from firmwright.ops.schedule import ConfigT_co, LoweringCandidate, Schedule

_BAND = Callable[[OpCall, Builder, tir.Buffer, tir.Buffer], None]


@pytest.mark.parametrize(
    ("record", "field", "expected"),
    [
        (OpDef, "lower", Callable[[OpCall, Kernel], None]),
        (Schedule, "build", Callable[[OpCall, ConfigT_co, Kernel], None]),
        (Schedule, "fold", _BAND | None),
        (RowReduction, "accumulate", _BAND),
        (RowReduction, "finish", _BAND),
    ],
)
def test_what_writes_a_kernel_names_its_builder(
    record: type, field: str, expected: object
) -> None:
    assert get_type_hints(record)[field] == expected


def _parts(hint: object) -> list[object]:
    """Return a type with all types inside of it; arrays have elements of any type."""
    if hint == Array:
        return []
    inside = hint if isinstance(hint, list) else get_args(hint)
    return [hint, *(part for item in inside for part in _parts(item))]


@pytest.mark.parametrize("record", [OpDef, RowReduction, Schedule, LoweringCandidate])
def test_no_field_of_the_records_of_lowering_is_of_any_type(record: type) -> None:
    hints = get_type_hints(record)
    assert [name for name, hint in hints.items() if Any in _parts(hint)] == []
