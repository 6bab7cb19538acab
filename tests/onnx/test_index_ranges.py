"""Generated indices stay within the table that a Gather reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
import onnx
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import index_ranges
from onnx import TensorProto, helper, numpy_helper

ROWS = 10


@pytest.mark.parametrize(
    ("operator", "number", "largest"),
    [("", 0, 9), ("Add", 1, 8), ("Sub", 3, 9), ("Mul", 2, 4)],
)
def test_indices_computed_with_a_number_are_in_the_table(
    operator: str, number: int, largest: int, tmp_path: Path
) -> None:
    nodes = [helper.make_node("Gather", ["table", "row" if operator else "i"], ["y"])]
    if operator:
        nodes.insert(0, helper.make_node(operator, ["i", "number"], ["row"]))
    graph = helper.make_graph(
        nodes,
        "lookup",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 4])],
        [
            numpy_helper.from_array(np.ones((ROWS, 4), np.float32), "table"),
            numpy_helper.from_array(np.array(number, np.int64), "number"),
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    file = tmp_path / "lookup.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), file)
    assert index_ranges(compile_for(load_model(file))) == {"i": (0, largest)}
