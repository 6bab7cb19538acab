"""docs/numerics.md agrees with the operator definitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from firmwright.base.errors import InternalError
from firmwright.ops.numerics_table import replace_table
from firmwright.ops.registry import op_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "numerics.md"


def test_numerics_table_is_up_to_date(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    current = replace_table(page, op_table())
    if request.config.getoption("--update-golden"):
        PAGE.write_text(current, encoding="utf-8")
        return
    assert page == current, "differs from the operator files; --update-golden rewrites the table"


def test_page_without_markers_is_an_error() -> None:
    with pytest.raises(InternalError, match="lacks"):
        replace_table("# Numerics\n", op_table())
