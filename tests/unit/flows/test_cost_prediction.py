"""Predictions count the calls of an AOT main, including loops and conditions."""

from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.base.dtypes import BOOL
from firmwright.base.errors import InternalError
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.predict.cost_prediction import (
    KernelCall,
    count_kernel_calls,
    predict_instructions,
)
from firmwright.ir import tir
from firmwright.ir.tir.builder import INDEX

STEP = tir.Var("step", INDEX)


def number(value: int) -> tir.IntImm:
    return tir.IntImm(value, INDEX)


def test_calls_in_loops_are_counted_per_iteration():
    every_other = tir.Binary("eq", tir.Binary("mod", STEP, number(2)), number(1))
    body = tir.Seq(
        (
            tir.PrimFuncCall("a", (), op=0),
            tir.If(every_other, tir.PrimFuncCall("b", (), op=1)),
        )
    )
    main = tir.Seq(
        (tir.For(STEP, number(0), number(9), body), tir.PrimFuncCall("b", (), op=2))
    )
    assert count_kernel_calls(main) == {
        KernelCall(0, "a"): 9,
        KernelCall(1, "b"): 4,
        KernelCall(2, "b"): 1,
    }


def test_both_branches_and_one_iteration_count_if_the_data_decide():
    data = tir.BufferLoad(tir.Buffer("x", BOOL, (1,)), (number(0),))
    a, b = (tir.PrimFuncCall(name, (), op=op) for op, name in enumerate("ab"))
    assert count_kernel_calls(tir.If(data, a, b)) == {
        KernelCall(0, "a"): 1,
        KernelCall(1, "b"): 1,
    }
    with pytest.raises(InternalError, match="control flow of an AOT main depends"):
        count_kernel_calls(tir.For(STEP, number(0), data, a))


def test_every_operator_has_a_prediction(digits_path: Path):
    compiled = compile_for(load_model(digits_path), "mps2-an386")
    said = predict_instructions(compiled)
    assert set(said) == {row["index"] for row in compiled.metadata["operators"]}
    assert all(count > 0 for count in said.values())


@pytest.mark.deep
@pytest.mark.models
def test_streamed_operator_is_predicted_for_all_rows(model_path: Callable[[str], Path]):
    model = load_model(model_path("kws_ref_model.tflite"))
    whole = compile_for(model, "mps2-an386")
    streamed = compile_for(model, "mps2-an386", ram_bytes=8000)
    assert streamed.metadata["workspace_bytes"] < whole.metadata["workspace_bytes"]
    kinds = {row["index"]: row["kind"] for row in streamed.metadata["operators"]}
    said, before = predict_instructions(streamed), predict_instructions(whole)
    assert set(said) == set(kinds) == set(before)
    assert sum(before.values()) < sum(said.values()) < 3 * sum(before.values())
