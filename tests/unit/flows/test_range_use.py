"""`verify --ranges` lists how layers use their ranges, and warns if values clip."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from firmwright.cli.main import main
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.range_use import (
    RangeUse,
    describe_range_use,
    measure_range_use,
)
from tests.state.model_writer import ModelFile

DIGITS = Path(__file__).parents[3] / "examples/01_digits"


def clipping_model() -> bytes:
    """Return a model of a RELU whose result has a quarter of the input's range."""
    file = ModelFile()
    graph = file.graph("main")
    x = graph.input("x", "int8", (1, 64), 0.1, 0)
    half = graph.tensor("half", "int8", (1, 64), 0.025, 0)
    graph.op("QUANTIZE", [x], [half])
    y = graph.tensor("y", "int8", (1, 64), 0.1, -128)
    graph.op("RELU", [half], [y])
    graph.outputs(y)
    return file.data()


def test_counts_are_those_of_litert(tmp_path: Path) -> None:
    path = tmp_path / "clip.tflite"
    path.write_bytes(clipping_model())
    compiled = compile_for(load_model(path))
    rng = np.random.default_rng(5)
    inputs = [rng.integers(-128, 128, (1, 64)).astype(np.int8) for _ in range(40)]
    uses = {
        use.name: use
        for use in measure_range_use(compiled, [{"x": values} for values in inputs])
    }
    runtime = Interpreter(
        str(path),
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    runtime.allocate_tensors()
    found: list[np.ndarray] = []
    for values in inputs:
        runtime.set_tensor(0, values)
        runtime.invoke()
        found.append(runtime.get_tensor(1).copy())
    half = np.stack(found)
    at_ends = np.count_nonzero((half == -128) | (half == 127))
    assert (uses["half"].values, uses["half"].at_ends) == (half.size, at_ends)
    assert at_ends > half.size / 2
    assert uses["half"].value_range == pytest.approx((-3.2, 3.175))
    # Zeros of the activation are no clipped values.
    assert (uses["y"].at_ends, uses["y"].lowest) == (0, 0.0)
    (warning,) = describe_range_use(uses.values())
    assert warning.startswith(f"half: {100 * at_ends / half.size:.1f} % of the values")


@pytest.mark.host_c
def test_the_data_of_the_example_cause_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = np.load(DIGITS / "digits_test.npz")["input_1"][:80]
    np.savez(tmp_path / "in.npz", input_1=images)
    words = ["verify", str(DIGITS / "digits.tflite"), "--input", f"{tmp_path}/in.npz"]
    assert main([*words, "--ranges", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["warnings"] == []
    layers = {use["name"]: use for use in said["ranges"]}
    assert layers["digit"]["op"] == "softmax"
    assert layers["digit"]["at_ends"] == 0
    assert layers["digit"]["value_range"] == [0.0, 255 / 256]
    assert len(layers) >= 8
    assert main([*words, "--ranges"]) == 0
    assert "at an end" in capsys.readouterr().out


def test_generated_samples_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(DIGITS / "digits.tflite"), "--ranges"]) == 2
    assert "generated samples say nothing about the ranges" in capsys.readouterr().err


def test_one_value_at_each_end_is_normal() -> None:
    use = RangeUse("y", "add", 1000, (-2.0, 2.0), -2.0, 2.0, 2)
    assert describe_range_use([use]) == ()
    assert use.used_percent == 100.0
