"""A model whose program has no single loop over the rows of its input is refused."""

from __future__ import annotations

import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.errors import UsageError
from firmwright.codegen.model_interface import StreamedInput
from firmwright.codegen.row_streaming_main import _split_at_row_loop
from firmwright.ir import tir

ROWS = StreamedInput("x", "NET_X", "int8_t", 4, 8, 8, 16)
X = tir.Buffer("x", INT8, (4, 8))
ROW = tir.Var("row", INT32)
READ = tir.PrimFuncCall("copy", (tir.AccessPtr(X, tir.IntImm(0, INT32), 8, "r"),))
LOOP = tir.For(ROW, tir.IntImm(0, INT32), tir.IntImm(4, INT32), READ)
OTHER = tir.PrimFuncCall("other", ())


def test_the_loop_that_reads_the_input_is_found() -> None:
    parts = _split_at_row_loop(tir.Seq((OTHER, LOOP, OTHER)), ROWS)
    assert (parts.loop, parts.body) == (LOOP, READ)


@pytest.mark.parametrize(
    "body",
    [
        READ,
        tir.Seq((OTHER, READ)),
        tir.Seq((OTHER,)),
        tir.Seq((LOOP, LOOP)),
        tir.Seq((LOOP, READ)),
    ],
)
def test_a_program_without_one_loop_over_the_rows_is_refused(body: tir.Stmt) -> None:
    with pytest.raises(UsageError, match="no loop over the rows of x remains"):
        _split_at_row_loop(body, ROWS)
