"""A defect planted in an operator's C is found on the device, with its extent."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx
from firmwright.artifacts import SourceTree
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import ModelSession, open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.first_divergence import FirstDivergence
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import Compilation
from onnx import TensorProto, helper, numpy_helper


def spoiled(compiled: Compilation, index: int, statement: str) -> Compilation:
    """Return the compilation with a statement after the call of operator `index`."""
    name = compiled.module.name
    path = f"model/{name}.c"
    text = str(compiled.tree.files[path])
    probe = text.index(f"{name.upper()}_PROBE({index}, 1, ")
    files = {
        **compiled.tree.files,
        path: f"{text[:probe]}{statement}\n    {text[probe:]}",
    }
    return replace(compiled, tree=SourceTree(files))


def first_difference(
    compiled: Compilation, broken: Compilation, **given: Any
) -> FirstDivergence | None:
    def opened(_: Compilation, **options: Any) -> ModelSession:
        image = build_image(broken, options.get("variant", "release"))
        return open_session(compiled, image=image, **options)

    return verify(
        compiled, samples=2, find_first_divergence=True, open_with=opened, **given
    ).layer


@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=[pytest.mark.qemu, pytest.mark.deep]),
    ],
)
def test_integer_divergence_is_reported_with_its_extent(
    board: str, digits_path: Path
) -> None:
    compiled = compile_for(load_model(digits_path), board)
    row = next(r for r in compiled.metadata["operators"] if r["name"] == "conv_2d_2")
    wrong = "conv_2d_2[7] ^= 4; conv_2d_2[9] ^= 1;"
    found = first_difference(compiled, spoiled(compiled, row["index"], wrong))
    assert found is not None
    assert (found.name, found.kind, found.judged) == ("conv_2d_2", "conv2d", board)
    assert (found.mismatches, found.max_abs_error) == (2, 4)
    assert found.values == 8 * 8 * 32


@pytest.mark.deep
@pytest.mark.host_c
def test_row_streamed_operators_are_compared(digits_path: Path) -> None:
    found = verify(
        compile_for(load_model(digits_path), optimize="ram"),
        samples=2,
        find_first_divergence=True,
    )
    assert (found.layer, found.layers_compared) == (None, 9)


def two_convolutions(folder: Path) -> Path:
    """Convolutions of floats with a relu between: channels are moved to the end."""
    rng = np.random.default_rng(0)
    weights = {"w1": (4, 3, 3, 3), "w2": (2, 4, 3, 3)}
    path = folder / "two.onnx"
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Conv", ["b", "w2"], ["y"]),
        ],
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 6, 6])],
        [
            numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


@pytest.mark.deep
@pytest.mark.host_c
def test_float_divergence_is_reported_with_its_extent(tmp_path: Path) -> None:
    compiled = compile_for(load_model(two_convolutions(tmp_path)))
    check = partial(first_difference, compiled)
    assert check(compiled) is None
    row = next(r for r in compiled.metadata["operators"] if r["name"] == "b_moved")
    found = check(
        spoiled(compiled, row["index"], "b_moved[5] += 2.0f; b_moved[6] += 1e-7f;")
    )
    assert found is not None
    assert (found.name, found.values, found.mismatches) == ("b_moved", 4 * 8 * 8, 1)
    assert found.max_abs_error == pytest.approx(2.0, abs=1e-3)
